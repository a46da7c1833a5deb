"""Arithmetic of two tensors with broadcasting, and the sum that takes a gradient back to a smaller shape."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, TensorType
from .elemwise import divide, only
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .pointwise import Found, broadcast_shapes
from .reduce import sum_into, sum_workspace
from .registry import register


def reduce_to(b: Builder, grad: Entry, like: Entry) -> Entry:
    """`grad` summed over the axes along which `like` was broadcast; no node when there is none."""
    if b.shape(grad) == b.shape(like):
        return grad
    return only(b.node("_sum_like", [grad, like]))


class Broadcast(Op):
    """Base of the broadcasting ops; a subclass gives `apply` and `backward`."""

    recompute = "cheap"
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 1.0

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return list(ins), [merge_shapes(broadcast_shapes(ins[0], ins[1]), outs[0])]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        self.apply(ins[0], ins[1], outs[0])

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        """Write f(lhs, rhs) to `out`, which may be an operand of its size."""
        raise NotImplementedError(self.name)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None, None]
        found: list[Entry | None] = [None, None]
        for i in (0, 1):
            if wanted[i]:
                found[i] = reduce_to(b, self.backward(b, i, ins, outs[0], grads[0]), ins[i])
        return found

    def backward(self, b: Builder, which: int, ins: Sequence[Entry], out: Entry, grad: Entry) -> Entry:
        """The gradient of an input in the output's shape."""
        raise NotImplementedError(self.name)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, shapes, low=self.low, high=self.high)
                for shapes in (((2, 3), (2, 3)), ((2, 3, 4), (1, 3, 1)), ((2, 1, 2), (1, 3, 2)),
                               ((3,), (2, 3)))]


@register
class BroadcastAdd(Broadcast):
    """lhs + rhs with broadcasting."""

    name = "broadcast_add"
    aliases = ("broadcast_plus",)

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.add(lhs, rhs, out=out)

    def backward(self, b: Builder, which: int, ins: Sequence[Entry], out: Entry, grad: Entry) -> Entry:
        return grad


@register
class BroadcastSubtract(Broadcast):
    """lhs - rhs with broadcasting."""

    name = "broadcast_sub"
    aliases = ("broadcast_minus",)

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.subtract(lhs, rhs, out=out)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None, None]
        return [reduce_to(b, grads[0], ins[0]) if wanted[0] else None,
                only(b.node("negative", [reduce_to(b, grads[0], ins[1])])) if wanted[1] else None]


@register
class BroadcastMultiply(Broadcast):
    """lhs * rhs with broadcasting."""

    name = "broadcast_mul"

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.multiply(lhs, rhs, out=out)

    def backward(self, b: Builder, which: int, ins: Sequence[Entry], out: Entry, grad: Entry) -> Entry:
        return only(b.node("broadcast_mul", [grad, ins[1 - which]]))


@register
class BroadcastDivide(Broadcast):
    """lhs / rhs with broadcasting; integers are divided towards zero."""

    name = "broadcast_div"
    low, high = 0.5, 1.5

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        divide(lhs, rhs, out)

    def backward(self, b: Builder, which: int, ins: Sequence[Entry], out: Entry, grad: Entry) -> Entry:
        if which == 0:
            return only(b.node("broadcast_div", [grad, ins[1]]))
        return only(b.node("_div_backward_rhs", [grad, ins[1], out]))


def summed_axes(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The axes of `shape` along which a tensor of shape `target` was broadcast to it."""
    lead = len(shape) - len(target)
    return tuple(range(lead)) + tuple(
        lead + i for i, d in enumerate(target) if d == 1 and shape[lead + i] != 1)


@register
class SumLike(Op):
    """`grad` summed to the shape of `like`, of which only the shape is read."""

    name = "_sum_like"
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "like")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[1], outs[0])
        return [merge_shapes(ins[0], broadcast_shapes(shape, ins[0])), shape], [shape]

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", sum_workspace(ins[0], summed_axes(ins[0].shape, ins[1].shape))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        sum_into(ins[0], summed_axes(ins[0].shape, ins[1].shape), outs[0], work)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, shapes, differentiable=False)
                for shapes in (((2, 3, 4), (1, 3, 1)), ((5, 3), (3,)), ((2, 3), (2, 3)))]
