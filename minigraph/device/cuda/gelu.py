"""CUDA forms of gelu; kernels/gelu.cu."""
from __future__ import annotations

from .pointwise import define

define("_gelu", "gelu_forward_float32")
define("_gelu_backward", "gelu_backward_float32")
