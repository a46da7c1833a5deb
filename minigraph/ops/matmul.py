"""dot and batch_dot: products of matrices, each axis that is left in the order it came."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Cost, Entry, PartialShape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class DotParams:
    """Parameters of dot and batch_dot."""

    transpose_a: bool = param(False, "bool", "sum over the first axis of lhs instead of its last")
    transpose_b: bool = param(False, "bool", "sum over the last axis of rhs instead of its first")


def _matrices(p: DotParams, lhs: np.ndarray, rhs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """lhs as (rows, depth) and rhs as (depth, columns), as views."""
    return _left(p, lhs), _right(p, rhs)


def _left(p: DotParams, lhs: np.ndarray) -> np.ndarray:
    if p.transpose_a:
        return lhs.reshape(lhs.shape[0], prod(lhs.shape[1:])).T
    return lhs.reshape(prod(lhs.shape[:-1]), lhs.shape[-1])


def _right(p: DotParams, rhs: np.ndarray) -> np.ndarray:
    if p.transpose_b:
        return rhs.reshape(prod(rhs.shape[:-1]), rhs.shape[-1]).T
    return rhs.reshape(rhs.shape[0], prod(rhs.shape[1:]))


@register
class Dot(Op):
    """The sum over the last axis of lhs and the first of rhs; of two vectors, their product of shape (1,).

    transpose_a sums over the first axis of lhs, transpose_b over the last of rhs; the other axes keep their
    order.
    """

    name = "dot"
    Params = DotParams

    def inputs(self, p: DotParams) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def infer_shape(self, p: DotParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        lhs, rhs = ins
        if lhs is None or rhs is None:
            return ins, outs
        if not lhs or not rhs:
            raise ShapeError(f"dot: lhs {format_shape(lhs)} and rhs {format_shape(rhs)} must have an axis each")
        (left, *rows) = lhs if p.transpose_a else (lhs[-1], *lhs[:-1])
        (right, *columns) = (rhs[-1], *rhs[:-1]) if p.transpose_b else rhs
        if left is not None and right is not None and left != right:
            raise ShapeError(f"dot: lhs {format_shape(lhs)} and rhs {format_shape(rhs)} are summed over axes of "
                             f"lengths {left} and {right}; transpose_a={p.transpose_a}, "
                             f"transpose_b={p.transpose_b}")
        depth = right if left is None else left
        lhs = (depth, *rows) if p.transpose_a else (*rows, depth)
        rhs = (*columns, depth) if p.transpose_b else (depth, *columns)
        return [lhs, rhs], [merge_shapes((*rows, *columns) or (1,), outs[0])]

    def compute(self, p: DotParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        left, right = _matrices(p, *ins)
        np.matmul(left, right, out=outs[0].reshape(left.shape[0], right.shape[1]))

    def cost(self, p: DotParams, ins: Types, outs: Types) -> Cost:
        depth = ins[0].shape[0 if p.transpose_a else -1]
        return Cost(2.0 * depth * outs[0].size, ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)

    def gradient(self, b: Builder, p: DotParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None, None]
        right = only(b.node("_dot_backward_rhs", [grads[0], *ins], **vars(p))) if wanted[1] else None
        left = only(b.node("_dot_backward_lhs", [grads[0], ins[1], ins[0]], **vars(p))) if wanted[0] else None
        return [left, right]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
            ({}, (2, 3), (3, 4)), ({}, (3,), (3,)), ({}, (2, 3, 4), (4, 2, 3)), ({}, (2, 3), (3,)),
            ({"transpose_a": True}, (3, 2), (3, 4)), ({"transpose_b": True}, (2, 3), (4, 3)),
            ({"transpose_a": True, "transpose_b": True}, (3, 2, 2), (4, 3)), ({}, (3,), (3, 2))]
        return [Sample(params, (lhs, rhs)) for params, lhs, rhs in cases]


class _DotBackward(Op):
    """Base: the gradient of one operand from (grad, other operand, operand); the last is read for its shape."""

    Params = DotParams

    def unread(self, p: DotParams) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: DotParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[2], outs[0])
        return [ins[0], ins[1], shape], [shape]

    def cost(self, p: DotParams, ins: Types, outs: Types) -> Cost:
        flops = 2.0 * ins[0].size * self._depth(p, ins)
        return Cost(flops, ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)

    def _depth(self, p: DotParams, ins: Types) -> int:
        """Length of the axis that the product was summed over."""
        raise NotImplementedError(self.name)


@register
class _DotBackwardLhs(_DotBackward):
    """grad times rhs turned, as lhs lies."""

    name = "_dot_backward_lhs"

    def inputs(self, p: DotParams) -> tuple[str, ...]:
        return ("grad", "rhs", "lhs")

    def _depth(self, p: DotParams, ins: Types) -> int:
        return ins[1].shape[-1 if p.transpose_b else 0]

    def compute(self, p: DotParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        right, out = _right(p, ins[1]), _left(p, outs[0])
        grad = ins[0].reshape(out.shape[0], right.shape[1])
        if p.transpose_a:
            np.matmul(right, grad.T, out=out.T)
        else:
            np.matmul(grad, right.T, out=out)


@register
class _DotBackwardRhs(_DotBackward):
    """lhs turned times grad, as rhs lies."""

    name = "_dot_backward_rhs"

    def inputs(self, p: DotParams) -> tuple[str, ...]:
        return ("grad", "lhs", "rhs")

    def _depth(self, p: DotParams, ins: Types) -> int:
        return ins[1].shape[0 if p.transpose_a else -1]

    def compute(self, p: DotParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        left, out = _left(p, ins[1]), _right(p, outs[0])
        grad = ins[0].reshape(left.shape[0], out.shape[1])
        if p.transpose_b:
            np.matmul(grad.T, left, out=out.T)
        else:
            np.matmul(left.T, grad, out=out)


@register
class BatchDot(Op):
    """The product of the matrices (..., m, k) and (..., k, n), one by one; each may lie transposed."""

    name = "batch_dot"
    Params = DotParams

    def inputs(self, p: DotParams) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def sliced(self, p: DotParams, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: DotParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        lhs, rhs = ins
        if lhs is None or rhs is None:
            return ins, outs
        if len(lhs) < 3 or len(rhs) != len(lhs):
            raise ShapeError(f"batch_dot: lhs {format_shape(lhs)} and rhs {format_shape(rhs)} must be batches of "
                             f"matrices, of the same rank")
        batch = merge_shapes(lhs[:-2], rhs[:-2])
        assert batch is not None
        m, k = lhs[-2:][::-1] if p.transpose_a else lhs[-2:]
        other, n = rhs[-2:][::-1] if p.transpose_b else rhs[-2:]
        if k is not None and other is not None and k != other:
            raise ShapeError(f"batch_dot: lhs {format_shape(lhs)} and rhs {format_shape(rhs)} are summed over axes "
                             f"of lengths {k} and {other}; transpose_a={p.transpose_a}, "
                             f"transpose_b={p.transpose_b}")
        k = other if k is None else k
        return [(*batch, *((k, m) if p.transpose_a else (m, k))),
                (*batch, *((n, k) if p.transpose_b else (k, n)))], [merge_shapes((*batch, m, n), outs[0])]

    def compute(self, p: DotParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        left = ins[0].swapaxes(-1, -2) if p.transpose_a else ins[0]
        right = ins[1].swapaxes(-1, -2) if p.transpose_b else ins[1]
        np.matmul(left, right, out=outs[0])

    def cost(self, p: DotParams, ins: Types, outs: Types) -> Cost:
        depth = ins[0].shape[-2 if p.transpose_a else -1]
        return Cost(2.0 * depth * outs[0].size, ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)

    def gradient(self, b: Builder, p: DotParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        grad, (lhs, rhs) = grads[0], ins
        if grad is None:
            return [None, None]

        def product(a: Entry, c: Entry, transpose_a: bool, transpose_b: bool) -> Entry:
            return only(b.node("batch_dot", [a, c], transpose_a=transpose_a, transpose_b=transpose_b))
        right = left = None
        if wanted[1]:
            right = (product(grad, lhs, True, p.transpose_a) if p.transpose_b
                     else product(lhs, grad, not p.transpose_a, False))
        if wanted[0]:
            left = (product(rhs, grad, p.transpose_b, True) if p.transpose_a
                    else product(grad, rhs, False, not p.transpose_b))
        return [left, right]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
            ({}, (2, 2, 3), (2, 3, 4)), ({"transpose_a": True}, (3, 3, 2), (3, 3, 1)),
            ({"transpose_b": True}, (2, 2, 3), (2, 4, 3)), ({}, (2, 3, 1, 2), (2, 3, 2, 2)),
            ({"transpose_a": True, "transpose_b": True}, (2, 3, 2), (2, 4, 3))]
        return [Sample(params, (lhs, rhs)) for params, lhs, rhs in cases]
