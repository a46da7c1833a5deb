"""Remainders and hypotenuses of two tensors, or of a tensor and a constant."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, TensorType
from .elemwise import Derivative2, only
from .op import Arrays, Sample, Workspace
from .pointwise import BLOCK, Binary, Derivative, Found, blocks
from .registry import register
from .scalar import Scalar, ScalarParams, constant


def modulo(lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray, zero: np.ndarray) -> None:
    """lhs modulo rhs with the sign of rhs, and 0 where rhs is 0; `zero` is bool scratch of rhs's shape."""
    np.equal(rhs, 0, out=zero)
    np.remainder(lhs, rhs, out=out)
    np.copyto(out, 0, where=zero)


@register
class Mod(Binary):
    """lhs modulo rhs, with the sign of rhs; 0 where rhs is 0."""

    name = "_mod"
    aliases = ("_Mod",)
    low, high = 0.5, 1.5

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for(((min(outs[0].size, BLOCK),), bool))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = work.array((min(outs[0].size, BLOCK),), bool)
        for lhs, rhs, out in blocks(*ins, outs[0]):
            modulo(lhs, rhs, out, scratch[:out.size])

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [grad if wanted[0] else None,
                only(b.node("_mod_backward_rhs", [grad, lhs, rhs])) if wanted[1] else None]

    def samples(self) -> Sequence[Sample]:
        # Away from multiples of rhs, where the remainder jumps.
        return [Sample({}, (shape, shape), low=0.5, high=0.95) for shape in ((2, 3), (7,), (3, 2, 5))]


@register
class ModBackwardRhs(Derivative2):
    """-grad * floor(lhs / rhs)."""

    name = "_mod_backward_rhs"

    def derivative(self, p: Any, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        np.floor_divide(first, second, out=out)
        np.negative(out, out=out)


@register
class ModScalar(Scalar):
    """data modulo scalar, with the sign of scalar; 0 for a scalar of 0."""

    name, aliases, ufunc = "_mod_scalar", ("_ModScalar",), np.remainder
    low, high = 0.2, 0.9
    sample_params = ({"scalar": 1.5}, {"scalar": -2.0})

    def apply(self, p: ScalarParams, data: np.ndarray, out: np.ndarray) -> None:
        if p.scalar == 0:
            out.fill(0)
        else:
            super().apply(p, data, out)

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return grad


@register
class ReverseModScalar(Scalar):
    """scalar modulo data, with the sign of data; 0 where data is 0."""

    name, aliases = "_rmod_scalar", ("_RModScalar",)
    low, high = 0.8, 1.4
    sample_params = ({"scalar": 1.5}, {"scalar": -2.0})

    def algorithms(self, p: ScalarParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for(((min(outs[0].size, BLOCK),), bool))),)

    def compute(self, p: ScalarParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = work.array((min(outs[0].size, BLOCK),), bool)
        for data, out in blocks(ins[0], outs[0]):
            modulo(constant(p, data), data, out, scratch[:out.size])

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_rmod_scalar_backward", [grad, data], scalar=p.scalar))


@register
class ReverseModScalarBackward(Derivative):
    """-grad * floor(scalar / data)."""

    name = "_rmod_scalar_backward"
    Params = ScalarParams
    sample_params = ({"scalar": 1.5},)

    def derivative(self, p: ScalarParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.floor_divide(constant(p, saved), saved, out=out)
        np.negative(out, out=out)


@register
class Hypot(Binary):
    """sqrt(lhs ** 2 + rhs ** 2), without overflow on the way."""

    name = "_hypot"
    aliases = ("_Hypot",)

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.hypot(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [only(b.node("_hypot_backward", [grad, leg, out])) if ask else None
                for leg, ask in zip((lhs, rhs), wanted, strict=True)]


@register
class HypotBackward(Derivative2):
    """grad * leg / out."""

    name = "_hypot_backward"
    saved = ("leg", "out")

    def derivative(self, p: Any, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        np.divide(first, second, out=out)


@register
class HypotScalar(Scalar):
    """sqrt(data ** 2 + scalar ** 2), without overflow on the way."""

    name, aliases, ufunc = "_hypot_scalar", ("_HypotScalar",), np.hypot

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_hypot_backward", [grad, data, out]))
