"""CUDA forms of the elementwise ops of a tensor and a constant; kernels/scalar.cu."""
from __future__ import annotations

import math
from typing import Any

from .operands import single
from .pointwise import define


def _constant(p: Any) -> list[tuple[str, float]]:
    return [single(p.scalar)]


for _op in ("plus", "minus", "rminus", "mul", "div", "rdiv", "power", "rpower", "maximum", "minimum", "equal",
            "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"):
    define(f"_{_op}_scalar", f"{_op}_scalar_forward_float32", _constant)
for _op in ("rdiv_scalar_backward", "power_scalar_backward"):
    define(f"_{_op}", f"{_op}_float32", _constant)
define("_rpower_scalar_backward", "rpower_scalar_backward_float32",
       lambda p: [single(math.log(p.scalar) if p.scalar > 0 else math.nan)])
define("_multiply_compare_scalar", lambda p: f"multiply_compare_scalar_forward_{p.compare}", _constant)
