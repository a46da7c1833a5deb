"""Ops that select: where, argmax and argmin, gather_nd and scatter_nd."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .chunks import CHUNK_BYTES, chunks
from .elemwise import only
from .indexing import ByIndex, IdRange, numbers
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import BLOCK, Found, flat
from .reduce import check_not_empty
from .registry import register
from .shape import axis_in
from .softmax import layout


def conditions(condition: np.ndarray, work: Workspace, hold: bool) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows, where the condition is `hold`) piece by piece of a tensor seen as (rows, elements a row).

    A condition of the tensor's shape has one element a row; one of its first axis speaks for whole rows.
    """
    row = flat(condition)
    scratch = work.array((min(row.size, BLOCK),), bool)
    for s in chunks(row.size, BLOCK):
        mask = scratch[:s.stop - s.start]
        (np.not_equal if hold else np.equal)(row[s], 0, out=mask)
        yield s, mask[:, None]


def _condition_bytes(condition: TensorType) -> int:
    return Workspace.bytes_for(((min(condition.size, BLOCK),), bool))


class Conditional(ByIndex):
    """Base of ops whose condition has a dtype, and perhaps a shape, of its own."""

    condition: ClassVar[int]

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        at = self.condition
        shape = merge_shapes(*(s for i, s in enumerate(ins) if i != at), outs[0])
        condition = ins[at]
        if shape is not None and (condition is None or len(condition) == len(shape) > 1):
            condition = merge_shapes(condition, shape)
        elif shape is not None and condition is not None:
            condition = merge_shapes(condition, shape[:1])
        return [condition if i == at else shape for i in range(len(ins))], [shape]

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", _condition_bytes(ins[self.condition])),)


def _by_row(condition: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
    rows = max(condition.size, 1)
    return [a.reshape(condition.size, a.size // rows) for a in arrays]


@register
class Where(Conditional):
    """x where condition is not 0, else y; a condition of one axis chooses among rows of the first axis."""

    name = "where"
    names = ("condition", "x", "y")
    ids = (0,)
    condition = 0

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((2, 0),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        condition = ins[0]
        x, out = _by_row(condition, ins[1], outs[0])
        np.copyto(outs[0], ins[2])
        for s, mask in conditions(condition, work, True):
            np.copyto(out[s], x[s], where=mask)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None] * 3
        return [None, *(only(b.node("_where_backward", [grads[0], ins[0]], hold=hold)) if ask else None
                        for hold, ask in zip((True, False), wanted[1:], strict=True))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3),) * 3, integer={"condition": 2}),
                Sample({}, ((4,), (4, 3, 2), (4, 3, 2)), integer={"condition": 2}),
                Sample({}, ((5,),) * 3, integer={"condition": 2})]


@dataclass(frozen=True)
class WhereBackwardParams:
    """Parameters of the gradient of where."""

    hold: bool = param(REQUIRED, "bool", "whether grad passes where the condition holds, or where it does not")


@register
class WhereBackward(Conditional):
    """grad where the condition is as `hold` says, 0 elsewhere."""

    name = "_where_backward"
    Params = WhereBackwardParams
    names = ("grad", "condition")
    ids = (1,)
    condition = 1

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: WhereBackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (out,) = _by_row(ins[1], outs[0])
        np.copyto(outs[0], ins[0])
        for s, mask in conditions(ins[1], work, not p.hold):
            np.copyto(out[s], 0, where=mask)


@dataclass(frozen=True)
class ArgParams:
    """Parameters of argmax and argmin."""

    axis: int | None = param(None, "int", "axis along which to look; over all of data, made flat, when not given")
    keepdims: bool = param(False, "bool", "keep the axis with length 1")


class ArgExtremum(Op):
    """Base: the index of the first extremum along an axis, in data's dtype; no gradient."""

    Params: ClassVar[type] = ArgParams
    recompute = "cheap"
    find: ClassVar[Any]

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        check_not_empty(self.name, shape, range(len(shape)) if p.axis is None else [axis_in(p.axis, len(shape))])
        if p.axis is None:
            return ins, [merge_shapes((1,) * len(shape) if p.keepdims else (1,), outs[0])]
        axis = axis_in(p.axis, len(shape))
        kept = (1,) if p.keepdims else ()
        return ins, [merge_shapes((*shape[:axis], *kept, *shape[axis + 1:]) or (1,), outs[0])]

    def _view(self, p: Any, shape: Sequence[int]) -> tuple[int, int, int]:
        return (1, prod(shape), 1) if p.axis is None else layout(shape, p.axis)

    def _scratch(self, view: tuple[int, int, int], dtype: np.dtype) -> list[tuple[tuple[int, ...], Any]]:
        """Rows side by side unless they lie so in data, and their indices."""
        outer, classes, inner = view
        rows = max(1, min(outer, CHUNK_BYTES // max(1, classes * inner * dtype.itemsize)))
        return [((rows, inner, classes) if inner > 1 else (0, inner, classes), dtype), ((rows, inner), np.intp)]

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        scratch = self._scratch(self._view(p, ins[0].shape), ins[0].dtype)
        return (Algorithm("rows", Workspace.bytes_for(*scratch)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = self._view(p, ins[0].shape)
        beside, places = (work.array(*each) for each in self._scratch(view, ins[0].dtype))
        data, out = ins[0].reshape(view), outs[0].reshape(view[0], view[2])
        for s in chunks(view[0], len(places)):
            rows = data[s].transpose(0, 2, 1)
            if view[2] > 1:
                np.copyto(beside[:len(rows)], rows)
                rows = beside[:len(rows)]
            self.find(rows, axis=2, out=places[:len(rows)])
            np.copyto(out[s], places[:len(rows)], casting="unsafe")

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None]

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,), differentiable=False) for params, shape in (
            ({}, (2, 3)), ({"axis": 1}, (3, 4)), ({"axis": 0}, (3, 4)), ({"axis": -2, "keepdims": True}, (2, 5, 3)),
            ({"keepdims": True}, (2, 2)))]


@register
class Argmax(ArgExtremum):
    """The index of the first largest element along an axis."""

    name, find = "argmax", staticmethod(np.argmax)


@register
class Argmin(ArgExtremum):
    """The index of the first smallest element along an axis."""

    name, find = "argmin", staticmethod(np.argmin)


@dataclass(frozen=True)
class _ChannelParams:
    """The parameters of argmax_channel, which are fixed."""

    axis: int | None = param(1, "int", "the channel axis")
    keepdims: bool = param(False, "bool", "keep the axis with length 1")


@register
class ArgmaxChannel(ArgExtremum):
    """The index of the first largest element along axis 1."""

    name, find = "argmax_channel", staticmethod(np.argmax)
    Params = _ChannelParams

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),), differentiable=False)]


def _gather_shape(data: Sequence[int | None], indices: Sequence[int | None]) -> PartialShape:
    depth = indices[0]
    if depth is None:
        return None
    if depth == 0:
        raise ShapeError(f"indices {format_shape(tuple(indices))} are empty along axis 0, and name no axis of data")
    if depth > len(data):
        raise ShapeError(f"indices {format_shape(tuple(indices))} name {depth} axes, data "
                         f"{format_shape(tuple(data))} has {len(data)}")
    return (*indices[1:], *data[depth:]) or (1,)


def _as_rows(data: np.ndarray, depth: int) -> np.ndarray:
    """data as a matrix of all but its first `depth` axes."""
    return data.reshape(prod(data.shape[:depth]), prod(data.shape[depth:]))


def _flat_indices(data: Sequence[int], indices: np.ndarray, where: str) -> Iterator[tuple[int, np.ndarray]]:
    """(position of the first, row numbers of data seen as rows of all but the indexed axes) piece by piece."""
    table = indices.reshape(indices.shape[0], prod(indices.shape[1:]))
    axes = [numbers(row, bound, f"{where}: index of axis {axis}")
            for axis, (row, bound) in enumerate(zip(table, data, strict=False))]
    for pieces in zip(*axes, strict=True):
        place = pieces[0][1]
        for (_, ids), bound in zip(pieces[1:], data[1:], strict=False):
            place = place * bound + ids
        yield pieces[0][0], place


def _id_ranges(where: str, data: Shape, indices: Shape) -> list[IdRange]:
    """The ids (m, ...) of input 1, one axis of data after the other."""
    places = indices[1:]
    return [IdRange(f"{where}: index of axis {axis}", 1, (prod(places),), bound, start=axis * prod(places))
            for axis, bound in enumerate(data[:indices[0]])]


@register
class GatherNd(ByIndex):
    """data[indices[0], indices[1], ...]: indices (m, ...) name the first m axes; one out of range raises."""

    name = "gather_nd"
    names = ("data", "indices")
    looks_up = (0,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, indices = ins
        if data is None or indices is None:
            return ins, outs
        return ins, [merge_shapes(_gather_shape(data, indices), outs[0])]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, indices = ins
        rows = _as_rows(data, indices.shape[0])
        out = outs[0].reshape(prod(indices.shape[1:]), rows.shape[1])
        for start, ids in _flat_indices(data.shape, indices, self.name):
            np.take(rows, ids, axis=0, out=out[start:start + ids.size], mode="clip")

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return _id_ranges(self.name, ins[0].shape, ins[1].shape)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_gather_nd_backward", [grads[0], ins[1], ins[0]])), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 3, 2), (2, 4)), integer={"indices": 3}),
                Sample({}, ((3, 4), (1, 2, 2)), integer={"indices": 3}),
                Sample({}, ((3, 3), (2, 5)), integer={"indices": 3})]


@register
class GatherNdBackward(ByIndex):
    """grad added to the rows of each index, in ascending order of position; data is read for its shape."""

    name = "_gather_nd_backward"
    names = ("grad", "indices", "data")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[2], outs[0])
        _, (grad,) = GatherNd().infer_shape(p, [data, ins[1]], [ins[0]])
        return [grad, ins[1], data], [data]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        add_rows(ins[0], ins[1], outs[0], "gather_nd")

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return _id_ranges("gather_nd", outs[0].shape, ins[1].shape)


def add_rows(data: np.ndarray, indices: np.ndarray, target: np.ndarray, where: str) -> None:
    """Fill `target` with zeros and add each row of data where its indices say, in ascending order of position."""
    out = _as_rows(target, indices.shape[0])
    rows = data.reshape(prod(indices.shape[1:]), out.shape[1])
    out.fill(0)
    for start, ids in _flat_indices(target.shape, indices, where):
        for position, number in enumerate(ids.tolist(), start):
            np.add(out[number], rows[position], out=out[number])


@dataclass(frozen=True)
class ScatterParams:
    """Parameters of scatter_nd."""

    shape: tuple[int, ...] = param(REQUIRED, "shape", "shape of the output")


@register
class ScatterNd(ByIndex):
    """Zeros of `shape` with data's rows at indices, the inverse of gather_nd; one out of range raises.

    Rows with the same indices are added, where MXNet leaves open which of them stands.
    """

    name = "scatter_nd"
    Params = ScatterParams
    names = ("data", "indices")

    def infer_shape(self, p: ScatterParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, indices = ins
        if indices is not None:
            data = merge_shapes(data, _gather_shape(p.shape, indices))
        return [data, indices], [merge_shapes(p.shape, outs[0])]

    def compute(self, p: ScatterParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        add_rows(ins[0], ins[1], outs[0], self.name)

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return _id_ranges(self.name, outs[0].shape, ins[1].shape)

    def gradient(self, b: Builder, p: ScatterParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("gather_nd", [grads[0], ins[1]])), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (3, 3, 2)}, ((4, 2), (2, 4)), integer={"indices": 3}),
                Sample({"shape": (3, 4)}, ((2, 2, 4), (1, 2, 2)), integer={"indices": 3}),
                Sample({"shape": (3, 3)}, ((5,), (2, 5)), integer={"indices": 3})]
