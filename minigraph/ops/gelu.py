"""gelu, the input times the normal distribution function of it, with an error function in arithmetic."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, TensorType
from .elemwise import only
from .op import Arrays, Workspace
from .pointwise import Derivative, Unary, block_bytes, block_scratch, blocks
from .registry import register

ERFC_SINGLE = (
    0.5107913527612236, 0.3435803329700964, 0.13973603266188656, 0.018221384245757106, -0.01075511615275464,
    -0.0032418548953675043, 0.0015440476830892505, 0.0004270201507622499, -0.0003281001479851415,
    -3.295153927018533e-05, 6.768780689734518e-05, -1.327395517676192e-06, -8.508869900319127e-06)
ERFC_DOUBLE = (
    0.5107913526210115, 0.34358034220690514, 0.13973604627802688, 0.01822111575345904, -0.010755330944716365,
    -0.0032395925345820673, 0.0015453060290576436, 0.0004186480432791111, -0.00033153674761946043,
    -1.7185831874889756e-05, 7.223535061438544e-05, -1.7073781133818897e-05, -1.0848057268891146e-05,
    8.057875867147286e-06, -5.628166935191401e-07, -1.8150355080540424e-06, 1.0009185862650897e-06,
    -1.375450823337776e-08, -2.8554818238295035e-07, 1.78672294791883e-07, -1.6982724017409134e-09,
    -6.965842943422144e-08, 2.904198544448831e-08, 1.3216325517682064e-08, -9.744756626033555e-09,
    -1.0590333143654261e-09, 1.205166599604592e-09)
"""Coefficients of P in erfc(z) = t exp(-z^2) P(2 t - 1) with t = 2 / (2 + z), z >= 0, in ascending powers.

Truncated Chebyshev series of erfc(z) exp(z^2) / t, computed with 50 digits; relative errors 2e-9 and 2e-15.
"""


def normal_cdf(x: np.ndarray, out: np.ndarray, z: np.ndarray, u: np.ndarray) -> None:
    """The standard normal distribution function, precise in relative terms below 0; z and u are scratch."""
    coefficients = ERFC_DOUBLE if x.dtype == np.float64 else ERFC_SINGLE
    np.abs(x, out=z)
    np.multiply(z, math.sqrt(0.5), out=z)
    np.add(z, 2, out=u)
    np.divide(4, u, out=u)
    np.subtract(u, 1, out=u)
    out.fill(coefficients[-1])
    for c in coefficients[-2::-1]:
        np.multiply(out, u, out=out)
        np.add(out, c, out=out)
    np.add(u, 1, out=u)
    np.multiply(out, u, out=out)
    np.square(z, out=z)
    np.negative(z, out=z)
    np.exp(z, out=z)
    np.multiply(out, z, out=out)
    np.multiply(out, 0.25, out=out)
    # out = erfc(|x| / sqrt 2) / 2 = cdf(-|x|); above 0 the answer is 1 - out: |s - out| with s = (x > 0).
    np.greater(x, 0, out=u)
    np.subtract(u, out, out=out)
    np.abs(out, out=out)


@register
class Gelu(Unary):
    """data * cdf(data), in the form with the error function (Hendrycks and Gimpel 2016)."""

    name = "_gelu"

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0], 3)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = [block_scratch(work, outs[0]) for _ in range(3)]
        for data, out in blocks(ins[0], outs[0]):
            cdf, z, u = (s[:out.size] for s in scratch)
            normal_cdf(data, cdf, z, u)
            np.multiply(data, cdf, out=out)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_gelu_backward", [grad, data]))


@register
class GeluBackward(Derivative):
    """grad * (cdf(data) + data * density(data))."""

    name = "_gelu_backward"
    low, high = -2.0, 2.0
    extra = 3

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        density, z, u = extra
        normal_cdf(saved, out, z, u)
        np.square(saved, out=density)
        np.multiply(density, -0.5, out=density)
        np.exp(density, out=density)
        np.multiply(density, 1 / math.sqrt(2 * math.pi), out=density)
        np.multiply(density, saved, out=density)
        np.add(out, density, out=out)
