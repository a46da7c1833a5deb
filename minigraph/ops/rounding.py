"""Elementwise functions with kinks: rounding, clip, hard_sigmoid, smooth_l1, erf, through blocks of scratch."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, TensorType
from .bits import BoundsParams, slope_encoding
from .elemwise import only
from .gelu import normal_cdf
from .op import Arrays, Encoding, Sample, Workspace
from .params import param
from .pointwise import Derivative, Unary, block_bytes, block_scratch, blocks
from .registry import register
from .unary import FromUfunc


class Blocked(Unary):
    """Base of functions that need scratch: a subclass gives `block`, and `scratch_count` blocks of scratch."""

    scratch_count: ClassVar[int] = 1

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0], self.scratch_count)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = [block_scratch(work, outs[0]) for _ in range(self.scratch_count)]
        for data, out in blocks(ins[0], outs[0]):
            self.block(p, data, out, *(s[:out.size] for s in scratch))

    def block(self, p: Any, data: np.ndarray, out: np.ndarray, *scratch: np.ndarray) -> None:
        """Write f(data) to `out`, which may be `data`."""
        raise NotImplementedError(self.name)


@register
class Floor(FromUfunc):
    """The next integer below; no gradient."""

    name, ufunc, smooth = "floor", np.floor, False


@register
class Ceil(FromUfunc):
    """The next integer above; no gradient."""

    name, ufunc, smooth = "ceil", np.ceil, False


@register
class Trunc(FromUfunc):
    """The next integer towards zero; no gradient."""

    name, ufunc, smooth = "trunc", np.trunc, False


@register
class Fix(FromUfunc):
    """The next integer towards zero; no gradient."""

    name, ufunc, smooth = "fix", np.trunc, False


@register
class Round(Blocked):
    """The nearest integer, halves away from zero; no gradient."""

    name, smooth = "round", False

    def block(self, p: Any, data: np.ndarray, out: np.ndarray, *scratch: np.ndarray) -> None:
        (fraction,) = scratch
        np.modf(data, fraction, out)
        np.multiply(fraction, 2, out=fraction)
        np.trunc(fraction, out=fraction)
        np.add(out, fraction, out=out)


@register
class Rint(Blocked):
    """The nearest integer, halves down, as in MXNet; no gradient."""

    name, smooth = "rint", False
    scratch_count = 2

    def block(self, p: Any, data: np.ndarray, out: np.ndarray, *scratch: np.ndarray) -> None:
        fraction, up = scratch
        np.modf(data, fraction, out)
        np.greater(fraction, 0.5, out=up)
        np.less_equal(fraction, -0.5, out=fraction)
        np.add(out, up, out=out)
        np.subtract(out, fraction, out=out)


@register
class Clip(Unary):
    """data held within [a_min, a_max]; the gradient passes inside and at the bounds."""

    name = "clip"
    Params = BoundsParams
    sample_params = ({"a_min": -0.4, "a_max": 0.5},)

    def apply(self, p: BoundsParams, data: np.ndarray, out: np.ndarray) -> None:
        np.maximum(data, data.dtype.type(p.a_min), out=out)
        np.minimum(out, data.dtype.type(p.a_max), out=out)

    def backward(self, b: Builder, p: BoundsParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_clip_backward", [grad, data], **vars(p)))


@register
class ClipBackward(Derivative):
    """grad where a_min <= data <= a_max, 0 elsewhere."""

    name = "_clip_backward"
    Params = BoundsParams
    extra = 1
    sample_params = ({"a_min": 0.3, "a_max": 0.6},)

    def derivative(self, p: BoundsParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.greater_equal(saved, saved.dtype.type(p.a_min), out=out)
        np.less_equal(saved, saved.dtype.type(p.a_max), out=extra[0])
        np.multiply(out, extra[0], out=out)

    def encoding(self, p: BoundsParams, ins: Sequence[TensorType]) -> Encoding | None:
        return slope_encoding("_within_bits", ins, 0.0, **vars(p))


@dataclass(frozen=True)
class HardSigmoidParams:
    """Parameters of hard_sigmoid."""

    alpha: float = param(0.2, "float", "slope")
    beta: float = param(0.5, "float", "value at 0")


@register
class HardSigmoid(Unary):
    """alpha * data + beta held within [0, 1]."""

    name = "hard_sigmoid"
    Params = HardSigmoidParams
    low, high = -4.0, 4.0
    sample_params = ({}, {"alpha": 0.3, "beta": 0.4})

    def apply(self, p: HardSigmoidParams, data: np.ndarray, out: np.ndarray) -> None:
        np.multiply(data, p.alpha, out=out)
        np.add(out, p.beta, out=out)
        np.maximum(out, 0, out=out)
        np.minimum(out, 1, out=out)

    def backward(self, b: Builder, p: HardSigmoidParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_hard_sigmoid_backward", [grad, out], **vars(p)))


@register
class HardSigmoidBackward(Derivative):
    """grad * alpha where 0 < out < 1, 0 elsewhere."""

    name = "_hard_sigmoid_backward"
    Params = HardSigmoidParams
    low, high = -0.5, 1.5
    extra = 1

    def derivative(self, p: HardSigmoidParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.greater(saved, 0, out=out)
        np.less(saved, 1, out=extra[0])
        np.multiply(out, extra[0], out=out)
        np.multiply(out, p.alpha, out=out)


@dataclass(frozen=True)
class SmoothL1Params:
    """Parameters of smooth_l1."""

    scalar: float = param(1.0, "float", "sigma: the loss is quadratic up to 1 / sigma ** 2")


@register
class SmoothL1(Blocked):
    """(sigma data) ** 2 / 2 up to |data| = 1 / sigma ** 2, and |data| - 1 / (2 sigma ** 2) beyond."""

    name = "smooth_l1"
    Params = SmoothL1Params
    low, high = -2.0, 2.0
    sample_params = ({}, {"scalar": 2.0})

    def block(self, p: SmoothL1Params, data: np.ndarray, out: np.ndarray, *scratch: np.ndarray) -> None:
        (inner,) = scratch
        bound = 1 / p.scalar ** 2       # the loss is bound^-1 c (x - c / 2) with c = x held within the bound
        np.maximum(data, -bound, out=inner)
        np.minimum(inner, bound, out=inner)
        np.multiply(inner, -0.5, out=inner)
        np.add(data, inner, out=out)
        np.multiply(out, inner, out=out)
        np.multiply(out, -2 * p.scalar ** 2, out=out)

    def backward(self, b: Builder, p: SmoothL1Params, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_smooth_l1_backward", [grad, data], **vars(p)))


@register
class SmoothL1Backward(Derivative):
    """grad * (sigma ** 2 data held within [-1, 1])."""

    name = "_smooth_l1_backward"
    Params = SmoothL1Params
    low, high = -2.0, 2.0

    def derivative(self, p: SmoothL1Params, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.multiply(saved, p.scalar ** 2, out=out)
        np.maximum(out, -1, out=out)
        np.minimum(out, 1, out=out)


SERIES_BOUND = 0.5
ERF_SERIES = tuple(2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(13))
"""erf(x) = x * sum of coefficients times x ** (2 k): precise to 1e-17 for |x| up to SERIES_BOUND."""


@register
class Erf(Blocked):
    """The error function: by its series near 0, where 1 - erfc loses digits, and by erfc elsewhere."""

    name = "erf"
    low, high = -2.0, 2.0
    scratch_count = 5

    def block(self, p: Any, data: np.ndarray, out: np.ndarray, *scratch: np.ndarray) -> None:
        far, near, z, u, flags = scratch
        np.absolute(data, out=near)
        np.multiply(near, -math.sqrt(2), out=near)
        normal_cdf(near, far, z, u)
        np.multiply(far, -2, out=far)
        np.add(far, 1, out=far)
        np.square(data, out=z)
        near.fill(ERF_SERIES[-1])
        for coefficient in ERF_SERIES[-2::-1]:
            np.multiply(near, z, out=near)
            np.add(near, coefficient, out=near)
        np.absolute(data, out=u)
        np.multiply(near, u, out=near)
        small = flags.view(bool)[:data.size]
        np.less(u, SERIES_BOUND, out=small)
        np.copyto(far, near, where=small)
        np.copysign(far, data, out=out)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_function_backward", [grad, data], function="erf"))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((4, 7),), low=-3.0, high=3.0), Sample({}, ((9,),), low=-0.6, high=0.6)]
