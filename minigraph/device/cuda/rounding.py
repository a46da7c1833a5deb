"""CUDA forms of rounding, clip, hard_sigmoid, smooth_l1 and erf, and their gradients; kernels/rounding.cu."""
from __future__ import annotations

from typing import Any

from .operands import single
from .pointwise import Arguments, define

for _op in ("floor", "ceil", "trunc", "round", "rint", "erf"):
    define(_op, f"{_op}_forward_float32")
define("fix", "trunc_forward_float32")


def _bounds(p: Any) -> Arguments:
    return single(p.a_min), single(p.a_max)


def _line(p: Any) -> Arguments:
    return single(p.alpha), single(p.beta)


def _sigma(p: Any) -> Arguments:
    """Sigma squared and its inverse."""
    return single(p.scalar ** 2), single(1 / p.scalar ** 2)


def _whole_bounds(p: Any) -> tuple[int, int] | None:
    """The bounds without fractions; None where one is no number of 64 bits."""
    ends = p.a_min, p.a_max
    return (int(ends[0]), int(ends[1])) if all(-2.0 ** 63 <= end < 2.0 ** 63 for end in ends) else None


define("clip", "clip_forward_float32", _bounds, _whole_bounds)
define("_clip_backward", "clip_backward_float32", _bounds)
for _op, _constants in (("hard_sigmoid", _line), ("smooth_l1", _sigma)):
    define(_op, f"{_op}_forward_float32", _constants)
    define(f"_{_op}_backward", f"{_op}_backward_float32", _constants)
