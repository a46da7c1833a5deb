"""erfinv, by a rational approximation of the normal distribution's quantiles and one step of Halley's method.

The approximation is Acklam's (2003), with a relative error of 1.15e-9.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base import Builder, Entry
from .chunks import chunks
from .elemwise import only
from .gelu import normal_cdf
from .op import Arrays, Workspace
from .pointwise import Unary, flat
from .registry import register
from .rounding import ERF_SERIES, SERIES_BOUND

MIDDLE = ((-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.3577518672690, -30.66479806614716,
           2.506628277459239),
          (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0))
TAIL = ((-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
         2.938163982698783), (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0))
"""Numerators and denominators, highest powers first."""
TAIL_FROM = 0.95
"""Arguments beyond it have the tail's form."""
STRETCH = 128
"""Elements computed at a time, in float64: some temporaries of 1 KiB."""


def _inverse(x: np.ndarray) -> np.ndarray:
    """erfinv of float64 numbers."""
    size = np.abs(x)
    rest = (1 - size) / 2                   # the quantile's probability, exact for sizes from 0.5 on
    root = np.sqrt(-2 * np.log(rest))
    z = np.where(size <= TAIL_FROM, -size / 2 * np.polyval(MIDDLE[0], size**2 / 4) / np.polyval(MIDDLE[1], size**2 / 4),
                 np.polyval(TAIL[0], root) / np.polyval(TAIL[1], root))
    cdf, *scratch = (np.empty_like(z) for _ in range(3))
    normal_cdf(z, cdf, *scratch)
    near = -z * math.sqrt(0.5)
    erf = near * np.polyval(ERF_SERIES[::-1], near**2)
    error = np.where(near < SERIES_BOUND, (size - erf) / 2, cdf - rest)
    step = error * math.sqrt(2 * math.pi) * np.exp(z**2 / 2)
    z -= step / (1 + z * step / 2)
    return np.copysign(np.where(size == 1, np.inf, -z * math.sqrt(0.5)), x)


@register
class Erfinv(Unary):
    """The number whose error function is data; infinite at -1 and 1, NaN beyond."""

    name = "erfinv"
    low, high = -0.95, 0.95

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, out = flat(ins[0]), flat(outs[0])
        with np.errstate(all="ignore"):
            for s in chunks(data.size, STRETCH):
                out[s] = _inverse(data[s].astype(np.float64))

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_function_backward", [grad, out], function="erfinv"))
