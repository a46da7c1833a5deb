"""CUDA forms of remainders and hypotenuses, and their gradients; kernels/modulo.cu."""
from __future__ import annotations

from typing import Any

from .operands import single
from .pointwise import Arguments, define


def _constant(p: Any) -> Arguments:
    return [single(p.scalar)]


for _op in ("mod", "hypot"):
    define(f"_{_op}", f"{_op}_forward_float32")
for _op in ("mod_backward_rhs", "hypot_backward"):
    define(f"_{_op}", f"{_op}_float32")
def _positive(p: Any) -> tuple[int] | None:
    """The constant where it is a positive whole number."""
    return (int(p.scalar),) if 0 < p.scalar < 2.0 ** 63 and p.scalar == int(p.scalar) else None


define("_mod_scalar", "mod_scalar_forward_float32", _constant, _positive)
for _op in ("rmod", "hypot"):
    define(f"_{_op}_scalar", f"{_op}_scalar_forward_float32", _constant)
define("_rmod_scalar_backward", "rmod_scalar_backward_float32", _constant)
