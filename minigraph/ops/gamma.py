"""The gamma function, its logarithm, and that one's derivative, in double precision whatever data's dtype.

Lanczos's approximation (C. Lanczos 1964, with g = 7 and nine coefficients, relative error below 1e-14) serves from 1/2
on, the reflection formula below. The derivative goes up by its recurrence to 8, from where its asymptotic series is
precise to 2e-15.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry
from .chunks import chunks
from .elemwise import only
from .op import Arrays, Op, Sample, Workspace
from .pointwise import Unary, flat
from .registry import register

PIECE = 256
"""Numbers computed at a time: some ten temporaries of 2 KiB."""
LANCZOS_G = 7
LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
           12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)
"""gamma(y) = sqrt(2 pi) t ** (y - 1/2) exp(-t) (c[0] + c[1] / y + c[2] / (y + 1) ...) with t = y + g - 1/2."""
OVERFLOW = 200.0
"""Where the gamma function is far beyond double precision's range, which ends at 171.6."""
DIGAMMA_START = 8
DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""digamma(y) = log(y) - 1 / (2 y) - sum of c[k] y ** (-2 k - 2), from DIGAMMA_START on."""


def _mirrored(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where x is below 1/2, 1 - x there and x elsewhere)."""
    below = x < 0.5
    return below, np.where(below, 1 - x, x)


def _fraction(x: np.ndarray) -> np.ndarray:
    """The signed distance from the nearest whole number, exact however large x is."""
    return x - np.rint(x)


def _lanczos(y: np.ndarray) -> np.ndarray:
    total = np.full_like(y, LANCZOS[0])
    for k, coefficient in enumerate(LANCZOS[1:]):
        total += coefficient / (y + k)
    return math.sqrt(2 * math.pi) * total


def gamma(x: np.ndarray) -> np.ndarray:
    """The gamma function in float64: infinite at 0, NaN at negative whole numbers."""
    below, y = _mirrored(x)
    t = y + (LANCZOS_G - 0.5)
    power = t ** ((y - 0.5) / 2)  # half of it at a time: the whole overflows before the function does
    value = np.where(y > OVERFLOW, np.inf, _lanczos(y) * power * np.exp(-t) * power)
    sine = np.sin(math.pi * _fraction(x)) * np.where(np.rint(x) % 2 == 0, 1, -1)
    value = np.where(below, math.pi / (sine * value), value)
    return np.where(x == 0, 1 / x, np.where(below & (sine == 0), np.nan, value))


def gammaln(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)| in float64: infinite at 0 and at negative whole numbers."""
    below, y = _mirrored(x)
    t = y + (LANCZOS_G - 0.5)
    value = np.log(_lanczos(y)) + (y - 0.5) * np.log(t) - t
    reflected = math.log(math.pi) - np.log(np.abs(np.sin(math.pi * _fraction(x)))) - value
    return np.where(np.isinf(x), np.inf, np.where(below, reflected, value))


def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of gammaln in float64: NaN at 0 and at negative whole numbers."""
    below, y = _mirrored(x)
    value = np.zeros_like(y)
    for _ in range(DIGAMMA_START):
        low = y < DIGAMMA_START
        value -= np.where(low, 1 / y, 0)
        y = np.where(low, y + 1, y)
    square, tail = 1 / (y * y), np.zeros_like(y)
    for coefficient in reversed(DIGAMMA_SERIES):
        tail = (tail + coefficient) * square
    value += np.log(y) - 0.5 / y - tail
    fraction = _fraction(x)
    reflected = np.where(fraction == 0, np.nan, value - math.pi / np.tan(math.pi * fraction))
    return np.where(below, reflected, value)


class Wide(Unary):
    """Base: `function`, of arrays in float64, piece by piece."""

    function: ClassVar[Any]
    low, high = 0.4, 3.0
    recompute = "costly"

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, out = flat(ins[0]), flat(outs[0])
        with np.errstate(all="ignore"):
            for s in chunks(data.size, PIECE):
                out[s] = type(self).function(data[s].astype(np.float64))


@register
class Gamma(Wide):
    """The gamma function: infinite at 0, NaN at negative whole numbers."""

    name, function = "gamma", staticmethod(gamma)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        scaled = only(b.node("elemwise_mul", [grad, out]))
        return only(b.node("elemwise_mul", [scaled, only(b.node("_digamma", [data]))]))


@register
class Gammaln(Wide):
    """log |gamma(data)|: infinite at 0 and at negative whole numbers."""

    name, function = "gammaln", staticmethod(gammaln)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("elemwise_mul", [grad, only(b.node("_digamma", [data]))]))


@register
class Digamma(Wide):
    """The derivative of gammaln: NaN at 0 and at negative whole numbers; it has no gradient of its own."""

    name, function = "_digamma", staticmethod(digamma)
    gradient = Op.gradient

    def samples(self) -> Sequence[Sample]:
        return ()
