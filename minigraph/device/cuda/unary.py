"""CUDA forms of the elementwise functions of one tensor; kernels/unary.cu."""
from __future__ import annotations

from .pointwise import define

for _op in ("exp", "log", "sqrt", "square", "abs", "negative", "reciprocal", "sign"):
    define(_op, f"{_op}_forward_float32")
for _op in ("sqrt", "square", "abs", "reciprocal"):
    define(f"_{_op}_backward", f"{_op}_backward_float32")
