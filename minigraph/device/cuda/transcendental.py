"""CUDA forms of roots, logarithms, trigonometric and hyperbolic functions; kernels/transcendental.cu."""
from __future__ import annotations

from .pointwise import define

for _op in ("rsqrt", "cbrt", "rcbrt", "log1p", "expm1", "log2", "log10", "sin", "cos", "tan", "arcsin", "arccos",
            "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "degrees", "radians"):
    define(_op, f"{_op}_forward_float32")
define("_function_backward", lambda p: f"{p.function}_backward_float32")
