"""CUDA forms of logical and, or, xor and not; kernels/logical.cu."""
from __future__ import annotations

from .broadcast_more import define_broadcast
from .operands import single
from .pointwise import define

for _op in ("logical_and", "logical_or", "logical_xor"):
    define(f"_{_op}", f"{_op}_forward_float32")
    define(f"_{_op}_scalar", f"{_op}_scalar_forward_float32", lambda p: [single(p.scalar)])
    define_broadcast(_op)
define("logical_not", "logical_not_forward_float32")
