"""Logical and, or, xor and not: whatever is not 0 holds, and results are 1 or 0 in the operands' dtype."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry
from .broadcast import Broadcast
from .op import Sample
from .pointwise import Binary, Found
from .registry import register
from .scalar import CompareScalar
from .unary import FromUfunc


class Logical(Binary):
    """Base of the ops of two tensors of one shape."""

    ufunc: ClassVar[np.ufunc]
    smooth = False

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        self.ufunc(lhs, rhs, out=out)

    def samples(self) -> Sequence[Sample]:
        return _samples(((2, 3), (2, 3)), ((7,), (7,)))


def _samples(*shapes: tuple[tuple[int, ...], ...]) -> Sequence[Sample]:
    """Samples of zeros and ones."""
    return [Sample({}, each, integer={"lhs": 2, "rhs": 2}, differentiable=False) for each in shapes]


@register
class LogicalAnd(Logical):
    """Whether both hold."""

    name, aliases, ufunc = "_logical_and", ("_Logical_And", "logical_and"), np.logical_and


@register
class LogicalOr(Logical):
    """Whether one or both hold."""

    name, aliases, ufunc = "_logical_or", ("_Logical_Or", "logical_or"), np.logical_or


@register
class LogicalXor(Logical):
    """Whether one holds and the other does not."""

    name, aliases, ufunc = "_logical_xor", ("_Logical_Xor", "logical_xor"), np.logical_xor


@register
class LogicalNot(FromUfunc):
    """Whether data is 0."""

    name, ufunc, smooth = "logical_not", np.logical_not, False

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), integer={"data": 2}, differentiable=False) for shape in ((2, 3), (7,))]


class LogicalScalar(CompareScalar):
    """Base of the ops of a tensor and a constant."""

    def samples(self) -> Sequence[Sample]:
        return [Sample({"scalar": scalar}, ((2, 3),), integer={"data": 2}, differentiable=False)
                for scalar in (1.5, 0.0)]


@register
class LogicalAndScalar(LogicalScalar):
    """Whether data and the constant hold."""

    name, aliases, ufunc = "_logical_and_scalar", ("_LogicalAndScalar",), np.logical_and


@register
class LogicalOrScalar(LogicalScalar):
    """Whether data or the constant holds."""

    name, aliases, ufunc = "_logical_or_scalar", ("_LogicalOrScalar",), np.logical_or


@register
class LogicalXorScalar(LogicalScalar):
    """Whether one of data and the constant holds."""

    name, aliases, ufunc = "_logical_xor_scalar", ("_LogicalXorScalar",), np.logical_xor


class BroadcastLogical(Broadcast):
    """Base of the ops of two tensors with broadcasting."""

    ufunc: ClassVar[np.ufunc]

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        self.ufunc(lhs, rhs, out=out)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None, None]

    def samples(self) -> Sequence[Sample]:
        return _samples(((2, 3), (2, 3)), ((2, 3, 4), (1, 3, 1)), ((3,), (2, 3)))


@register
class BroadcastLogicalAnd(BroadcastLogical):
    """Whether both hold, with broadcasting."""

    name, ufunc = "broadcast_logical_and", np.logical_and


@register
class BroadcastLogicalOr(BroadcastLogical):
    """Whether one or both hold, with broadcasting."""

    name, ufunc = "broadcast_logical_or", np.logical_or


@register
class BroadcastLogicalXor(BroadcastLogical):
    """Whether one holds and the other does not, with broadcasting."""

    name, ufunc = "broadcast_logical_xor", np.logical_xor
