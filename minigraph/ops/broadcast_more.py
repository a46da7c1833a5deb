"""Powers, extrema, remainders, hypotenuses and comparisons of two tensors with broadcasting."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, TensorType
from .broadcast import Broadcast, reduce_to
from .elemwise import COMPARISONS, only
from .modulo import modulo
from .op import Arrays, Sample, Workspace
from .pointwise import Binary, Found
from .registry import get_op, register


def repeated(b: Builder, entry: Entry, like: Entry) -> Entry:
    """`entry` repeated to the shape of `like`; no node when it has that shape."""
    for _ in range(len(b.shape(like)) - len(b.shape(entry))):
        entry = only(b.node("expand_dims", [entry], axis=0))
    return entry if b.shape(entry) == b.shape(like) else only(b.node("broadcast_like", [entry, like]))


class ByElementwise(Broadcast):
    """Base: an elementwise op with broadcasting.

    Its gradient is that of the elementwise op, of operands repeated to the output's shape where they were
    broadcast, summed back over the axes along which they were.
    """

    elementwise: ClassVar[str]

    @property
    def form(self) -> Binary:
        """The op of equal shapes."""
        op = get_op(self.elementwise)
        assert isinstance(op, Binary)
        return op

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        self.form.apply(lhs, rhs, out)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        grad = grads[0]
        if grad is None:
            return [None, None]
        lhs, rhs = (repeated(b, e, grad) for e in ins)
        found = self.form.backward(b, lhs, rhs, outs[0], grad, wanted)
        return [None if g is None or not ask else reduce_to(b, g, e)
                for g, ask, e in zip(found, wanted, ins, strict=True)]


@register
class BroadcastPower(ByElementwise):
    """lhs to the power rhs with broadcasting."""

    name, elementwise = "broadcast_power", "_power"
    low, high = 0.5, 1.5


@register
class BroadcastMaximum(ByElementwise):
    """The larger of lhs and rhs with broadcasting; a tie sends the gradient to lhs."""

    name, elementwise = "broadcast_maximum", "_maximum"


@register
class BroadcastMinimum(ByElementwise):
    """The smaller of lhs and rhs with broadcasting; a tie sends the gradient to lhs."""

    name, elementwise = "broadcast_minimum", "_minimum"


@register
class BroadcastHypot(ByElementwise):
    """sqrt(lhs ** 2 + rhs ** 2) with broadcasting."""

    name, elementwise = "broadcast_hypot", "_hypot"


@register
class BroadcastMod(ByElementwise):
    """lhs modulo rhs with broadcasting, with the sign of rhs; 0 where rhs is 0."""

    name, elementwise = "broadcast_mod", "_mod"
    low, high = 0.5, 0.95       # away from multiples of rhs, where the remainder jumps

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("mask", Workspace.bytes_for((ins[1].shape, bool))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        modulo(ins[0], ins[1], outs[0], work.array(ins[1].shape, bool))


class BroadcastComparison(Broadcast):
    """Base of comparisons with broadcasting: 1 where it holds and 0 elsewhere; no gradient."""

    compare: ClassVar[str]

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        COMPARISONS[self.compare](lhs, rhs, out=out)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None, None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, shapes, integer={"lhs": 3, "rhs": 3}, differentiable=False)
                for shapes in (((2, 3), (2, 3)), ((2, 3, 4), (1, 3, 1)), ((3,), (2, 3)))]


@register
class BroadcastEqual(BroadcastComparison):
    """lhs == rhs with broadcasting."""

    name, compare = "broadcast_equal", "equal"


@register
class BroadcastNotEqual(BroadcastComparison):
    """lhs != rhs with broadcasting."""

    name, compare = "broadcast_not_equal", "not_equal"


@register
class BroadcastGreater(BroadcastComparison):
    """lhs > rhs with broadcasting."""

    name, compare = "broadcast_greater", "greater"


@register
class BroadcastGreaterEqual(BroadcastComparison):
    """lhs >= rhs with broadcasting."""

    name, compare = "broadcast_greater_equal", "greater_equal"


@register
class BroadcastLesser(BroadcastComparison):
    """lhs < rhs with broadcasting."""

    name, compare = "broadcast_lesser", "lesser"


@register
class BroadcastLesserEqual(BroadcastComparison):
    """lhs <= rhs with broadcasting."""

    name, compare = "broadcast_lesser_equal", "lesser_equal"
