"""CUDA forms of the activation functions; kernels/activation.cu."""
from __future__ import annotations

from .pointwise import define

define("Activation", lambda p: f"activation_forward_{p.act_type}")
define("_activation_backward", lambda p: f"activation_backward_{p.act_type}")
for _op in ("relu", "sigmoid", "tanh", "softsign"):
    define(_op, f"activation_forward_{_op}")
