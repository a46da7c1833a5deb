"""Reductions over axes: sum, mean, max, min.

A sum is defined piece by piece: canonical chunks of the batch when it runs over the batch, else pieces of 128
along its first axis. NumPy adds within a piece and float64 totals combine pieces in ascending order, so the
error does not grow with the length, and slices cut at chunk boundaries give the same bits.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .chunks import MAX_CHUNK, chunk_rows, chunks
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register


def kept_shape(shape: Sequence[int], axes: Sequence[int]) -> Shape:
    """`shape` with 1 on the reduced axes."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape))


def _batch_rows(shape: Sequence[int], dtype: np.dtype) -> int:
    return chunk_rows(prod(shape[1:]) * dtype.itemsize)


def _piece(shape: Sequence[int], axes: Sequence[int], dtype: np.dtype) -> tuple[Shape, int]:
    """(kept shape of one piece, its length along the first reduced axis)."""
    kept = kept_shape(shape, axes)
    rows = _batch_rows(shape, dtype)
    if axes[0] == 0:
        return kept, rows
    return (min(kept[0], rows), *kept[1:]), MAX_CHUNK


def sum_workspace(data: TensorType, axes: Sequence[int]) -> int:
    """Workspace bytes of `sum_into` for a tensor summed over ascending axes."""
    if not axes:
        return 0
    kept, length = _piece(data.shape, axes, data.dtype)
    if data.shape[axes[0]] <= length:
        return 0
    return Workspace.bytes_for((kept, data.dtype), (kept, np.float64), (kept, np.float64))


def sum_into(data: np.ndarray, axes: Sequence[int], out: np.ndarray, work: Workspace) -> None:
    """Write the sum of `data` over ascending `axes` to `out`, which has as many elements as are left."""
    if not axes:
        np.copyto(out, data.reshape(out.shape))
        return
    kept, length = _piece(data.shape, axes, data.dtype)
    target = out.reshape(kept_shape(data.shape, axes))
    if data.shape[axes[0]] <= length:
        scratch = None
    else:
        scratch = (work.array(kept, data.dtype), work.array(kept, np.float64), work.array(kept, np.float64))
    if axes[0] == 0:
        _sum_pieces(data, tuple(axes), target, length, scratch)
        return
    for s in chunks(data.shape[0], _batch_rows(data.shape, data.dtype)):
        part = None if scratch is None else tuple(a[:s.stop - s.start] for a in scratch)
        _sum_pieces(data[s], tuple(axes), target[s], length, part)


def _sum_pieces(data: np.ndarray, axes: Shape, target: np.ndarray, length: int,
                scratch: tuple[np.ndarray, ...] | None) -> None:
    if scratch is None:
        np.add.reduce(data, axis=axes, keepdims=True, out=target)
        return
    part, wide, total = scratch
    total.fill(0)
    lead = (slice(None),) * axes[0]
    for s in chunks(data.shape[axes[0]], length):
        index = (*lead, s)
        np.add.reduce(data[index], axis=axes, keepdims=True, out=part)
        np.copyto(wide, part)
        np.add(total, wide, out=total)
    np.copyto(target, total, casting="unsafe")


@dataclass(frozen=True)
class ReduceParams:
    """Parameters of a reduction."""

    axis: tuple[int, ...] | None = param(None, "shape", "axes to reduce; all of them when not given")
    keepdims: bool = param(False, "bool", "keep reduced axes with length 1")
    exclude: bool = param(False, "bool", "reduce all axes but the given ones")


def reduced_axes(p: ReduceParams, rank: int) -> Shape:
    """The ascending axes that are reduced in a tensor of a rank; ShapeError for an axis it does not have."""
    if not p.axis:
        return () if p.exclude and p.axis is not None else tuple(range(rank))
    for axis in p.axis:
        if not -rank <= axis < rank:
            raise ShapeError(f"axis {axis} is outside a tensor with {rank} axes")
    given = {axis % rank for axis in p.axis}
    if len(given) != len(p.axis):
        raise ShapeError(f"axis {p.axis} names an axis twice")
    return tuple(i for i in range(rank) if (i in given) != p.exclude)


def check_not_empty(op: str, shape: Sequence[int | None], axes: Iterable[int]) -> None:
    """ShapeError unless there is an element along all of some axes: none is an extremum of no elements."""
    for axis in axes:
        if shape[axis] == 0:
            raise ShapeError(f"{op} over no elements: axis {axis} of {format_shape(tuple(shape))} is empty")


class Reduction(Op):
    """Base of reductions; reducing every axis without keepdims gives shape (1,)."""

    Params: ClassVar[type] = ReduceParams
    recompute = "cheap"
    smooth: ClassVar[bool] = True

    def infer_shape(self, p: ReduceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        axes = reduced_axes(p, len(shape))
        if p.keepdims:
            out: PartialShape = tuple(1 if i in axes else d for i, d in enumerate(shape))
        else:
            out = tuple(d for i, d in enumerate(shape) if i not in axes) or (1,)
        return [shape], [merge_shapes(out, outs[0])]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], tuple[int, ...]]] = [
            ({}, (2, 3)), ({"axis": 1}, (2, 3, 4)), ({"axis": (0, 2)}, (3, 2, 4)), ({"axis": -1}, (2, 5)),
            ({"axis": (0,), "keepdims": True}, (5, 2)), ({"axis": 1, "exclude": True}, (3, 2, 2)),
            ({"keepdims": True}, (3, 2))]
        return [Sample(params, (shape,), differentiable=self.smooth) for params, shape in cases]


@register
class Sum(Reduction):
    """The sum over axes."""

    name = "sum"
    aliases: ClassVar[tuple[str, ...]] = ("sum_axis",)

    def algorithms(self, p: ReduceParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", sum_workspace(ins[0], reduced_axes(p, len(ins[0].shape)))),)

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        sum_into(ins[0], reduced_axes(p, ins[0].ndim), outs[0], work)

    def gradient(self, b: Builder, p: ReduceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_sum_backward", [grads[0], ins[0]], **vars(p)))]


@register
class Mean(Sum):
    """The mean over axes."""

    name = "mean"
    aliases = ()

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        super().compute(p, ins, outs, work)
        np.divide(outs[0], ins[0].size // max(outs[0].size, 1), out=outs[0])

    def gradient(self, b: Builder, p: ReduceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_mean_backward", [grads[0], ins[0]], **vars(p)))]


class BackwardLike(Op):
    """Base of gradients from grad alone, for ops of one input: of that, `data`, only the shape is read."""

    Params: ClassVar[type] = ReduceParams
    recompute = "cheap"
    forward: ClassVar[type[Op]]
    """The op whose gradient it is, which says what goes with what."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data,), (grad,) = self.forward().infer_shape(p, [merge_shapes(ins[1], outs[0])], [ins[0]])
        return [grad, data], [data]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": 1}, ((2, 4), (2, 3, 4)), differentiable=False),
                Sample({}, ((1,), (2, 3)), differentiable=False)]


@register
class SumBackward(BackwardLike):
    """grad repeated along the reduced axes."""

    name, forward = "_sum_backward", Sum

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        shape = outs[0].shape
        np.copyto(outs[0], ins[0].reshape(kept_shape(shape, reduced_axes(p, len(shape)))))


@register
class MeanBackward(BackwardLike):
    """grad / count repeated along the reduced axes."""

    name, forward = "_mean_backward", Mean

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        shape = outs[0].shape
        grad = ins[0].reshape(kept_shape(shape, reduced_axes(p, len(shape))))
        np.divide(grad, outs[0].size // max(grad.size, 1), out=outs[0])


class Extremum(Reduction):
    """Base of max and min; every element equal to the extremum gets the gradient, as in MXNet."""

    ufunc: ClassVar[np.ufunc]

    def infer_shape(self, p: ReduceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found = super().infer_shape(p, ins, outs)
        if ins[0] is not None:
            check_not_empty(self.name, ins[0], reduced_axes(p, len(ins[0])))
        return found

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data = ins[0]
        axes = reduced_axes(p, data.ndim)
        self.ufunc.reduce(data, axis=axes, keepdims=True, out=outs[0].reshape(kept_shape(data.shape, axes)))

    def gradient(self, b: Builder, p: ReduceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_extremum_backward", [grads[0], ins[0], outs[0]], **vars(p)))]


@register
class Max(Extremum):
    """The largest element over axes."""

    name, aliases, ufunc = "max", ("max_axis",), np.maximum


@register
class Min(Extremum):
    """The smallest element over axes."""

    name, aliases, ufunc = "min", ("min_axis",), np.minimum


@register
class ExtremumBackward(Op):
    """grad wherever data equals the extremum of its group, 0 elsewhere."""

    name = "_extremum_backward"
    Params = ReduceParams
    recompute = "cheap"

    def inputs(self, p: ReduceParams) -> tuple[str, ...]:
        return ("grad", "data", "out")

    def outputs(self, p: ReduceParams) -> tuple[str, ...]:
        return ("data_grad",)

    def infer_shape(self, p: ReduceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data,), (reduced,) = Max().infer_shape(p, [merge_shapes(ins[1], outs[0])], [merge_shapes(ins[0], ins[2])])
        return [reduced, data, reduced], [data]

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, extremum = ins
        kept = kept_shape(data.shape, reduced_axes(p, data.ndim))
        np.equal(data, extremum.reshape(kept), out=outs[0])
        np.multiply(outs[0], grad.reshape(kept), out=outs[0])

    def inplace(self, p: ReduceParams) -> tuple[tuple[int, int], ...]:
        # Not over grad or the extremum: each is read again for all elements of its group.
        return ((1, 0),)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": 1}, ((2, 4), (2, 3, 4), (2, 4)), differentiable=False)]
