"""Ops that pick by number: pick, one_hot, take, Embedding. A number out of range raises."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, MXNetError, PartialShape, Shape, TensorType, dtype_of
from .chunks import chunks
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found, flat
from .registry import register
from .shape import axis_in
from .softmax import layout

PIECE = 512
"""Numbers converted at a time: 4 KiB of int64, and a handful of such temporaries."""


@dataclass(frozen=True)
class IdRange:
    """Ids of input number `operand`, from its element `start` on in the shape `shape`, and what they may be: numbers in
    [least, bound), fractions cut off, and such as are equal to `ignored`.

    `where` names op and ids in errors, and `first` is the row of the whole tensor at which they begin.
    """

    where: str
    operand: int
    shape: Shape
    bound: int
    start: int = 0
    least: int = 0
    ignored: float | None = None
    first: int = 0

    def error(self, value: Any, at: int) -> MXNetError:
        """The error about the id at flat position `at`, which is not in range: that of `numbers`."""
        return out_of_range(self.where, value, at, self.shape, self.bound, self.ignored, self.first, self.least)


def numbers(ids: np.ndarray, bound: int, where: str, ignored: float | None = None, first: int = 0, least: int = 0,
            ) -> Iterator[tuple[int, np.ndarray]]:
    """(position of the first, int64 numbers) piece by piece of a tensor of ids in any dtype.

    Fractions are cut off, as in MXNet. Raises MXNetError, with position and value, for NaN and for what is
    outside [least, bound), except ids equal to `ignored`, which come through as they are.
    `first` is the row of the whole tensor at which `ids` begins.
    """
    row = flat(ids)
    for s in chunks(row.size, PIECE):
        piece = row[s]
        right = (piece >= least) & (piece < bound)
        if ignored is not None:
            right |= piece == ignored
        if not right.all():
            at = s.start + int(np.argmin(right))
            raise out_of_range(where, row[at], at, ids.shape, bound, ignored, first, least)
        yield s.start, piece.astype(np.int64)


def out_of_range(where: str, value: Any, at: int, shape: Sequence[int], bound: int, ignored: float | None = None,
                 first: int = 0, least: int = 0) -> MXNetError:
    """The error about the number at flat position `at` of a tensor of ids, whose first row is number `first`."""
    place = tuple(int(i) for i in np.unravel_index(at, shape))
    place = (place[0] + first, *place[1:])
    return MXNetError(f"{where}: {value} at position {format_shape(place)} is outside [{least}, {bound})"
                      + ("" if ignored is None else f" and is not the ignored {ignored:g}"))


def offsets(start: int, ids: np.ndarray, view: tuple[int, int, int]) -> np.ndarray:
    """Flat positions in (outer, classes, inner) of class ids[k] at place start + k of (outer, inner)."""
    _, classes, inner = view
    place = np.arange(start, start + ids.size)
    if inner == 1:
        return place * classes + ids
    outer, within = np.divmod(place, inner)
    return (outer * classes + ids) * inner + within


class ByIndex(Op):
    """Base of ops of (data, index) whose index has a dtype of its own."""

    recompute = "cheap"
    names: ClassVar[tuple[str, ...]] = ("data", "index")
    ids: ClassVar[tuple[int, ...]] = (1,)

    def inputs(self, p: Any) -> tuple[str, ...]:
        return self.names

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        values = [t for i, t in enumerate(ins) if i not in self.ids]
        dtype = next((t for t in (*values, *outs) if t is not None), None)
        return [t or dtype for t in ins], [t or dtype for t in outs]


@dataclass(frozen=True)
class PickParams:
    """Parameters of pick."""

    axis: int = param(-1, "int", "axis along which one element is picked")
    keepdims: bool = param(False, "bool", "keep the axis with length 1")


def without(shape: PartialShape, p: PickParams, keepdims: bool) -> PartialShape:
    """`shape` with the picked axis dropped, or 1."""
    if shape is None:
        return None
    axis = axis_in(p.axis, len(shape))
    return (*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1:])


@register
class Pick(ByIndex):
    """The element of data that index names along an axis; raises where MXNet clips an index out of range."""

    name = "pick"
    Params = PickParams
    looks_up = (0,)

    def infer_shape(self, p: PickParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, index = ins
        narrow, kept = without(data, p, False), without(data, p, True)
        if index is None or data is None or len(index) != len(data):
            index = merge_shapes(index, narrow)
        else:
            index = merge_shapes(index, kept)
        return [data, index], [merge_shapes(kept if p.keepdims else narrow or None, outs[0])]

    def compute(self, p: PickParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, index = ins
        view = layout(data.shape, p.axis)
        out = flat(outs[0])
        for start, ids in numbers(index, view[1], "pick: index"):
            np.take(flat(data), offsets(start, ids, view), out=out[start:start + ids.size], mode="clip")

    def id_ranges(self, p: PickParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("pick: index", 1, ins[1].shape, layout(ins[0].shape, p.axis)[1])]

    def gradient(self, b: Builder, p: PickParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_pick_backward", [grads[0], ins[1], ins[0]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3,)), integer={"index": 4}),
                Sample({"axis": 1, "keepdims": True}, ((2, 3, 2), (2, 2)), integer={"index": 3})]


@register
class PickBackward(ByIndex):
    """grad at the picked elements, 0 elsewhere; of data only the shape is read."""

    name = "_pick_backward"
    Params = PickParams
    names = ("grad", "index", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: PickParams) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: PickParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data, index), (grad,) = Pick().infer_shape(p, [merge_shapes(ins[2], outs[0]), ins[1]], [ins[0]])
        return [grad, index, data], [data]

    def compute(self, p: PickParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, index, _ = ins
        view = layout(outs[0].shape, p.axis)
        out = flat(outs[0])
        out.fill(0)
        for start, ids in numbers(index, view[1], "pick: index"):
            out[offsets(start, ids, view)] = flat(grad)[start:start + ids.size]

    def id_ranges(self, p: PickParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("pick: index", 1, ins[1].shape, layout(outs[0].shape, p.axis)[1])]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3,), (3,), (3, 4)), integer={"index": 4}, differentiable=False)]


@dataclass(frozen=True)
class OneHotParams:
    """Parameters of one_hot."""

    depth: int = param(REQUIRED, "int", "number of classes")
    on_value: float = param(1.0, "float", "value at the class")
    off_value: float = param(0.0, "float", "value elsewhere")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype of the output")


@register
class OneHot(Op):
    """on_value at the class of each index and off_value elsewhere, along a new last axis; no gradient."""

    name = "one_hot"
    Params = OneHotParams
    recompute = "cheap"

    def inputs(self, p: OneHotParams) -> tuple[str, ...]:
        return ("indices",)

    def infer_shape(self, p: OneHotParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[0], None if outs[0] is None else outs[0][:-1])
        return [shape], [merge_shapes(None if shape is None else (*shape, p.depth), outs[0])]

    def infer_dtype(self, p: OneHotParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return list(ins), [dtype_of(p.dtype)]

    def compute(self, p: OneHotParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out = flat(outs[0])
        out.fill(p.off_value)
        for start, ids in numbers(ins[0], p.depth, "one_hot: index"):
            out[offsets(start, ids, (ins[0].size, p.depth, 1))] = p.on_value

    def id_ranges(self, p: OneHotParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("one_hot: index", 0, ins[0].shape, p.depth)]

    def gradient(self, b: Builder, p: OneHotParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"depth": 4}, ((2, 3),), integer={"indices": 4}, differentiable=False)]


@dataclass(frozen=True)
class TakeParams:
    """Parameters of take."""

    axis: int = param(0, "int", "axis that is indexed")
    mode: str = param("clip", "str", "what to do with an index out of range: take the nearest one in range, count on "
                                     "from the other end, or raise an error", ("clip", "wrap", "raise"))


@register
class Take(ByIndex):
    """Slices of `a` along an axis in the order of `indices`, whose fractions are cut off.

    An index out of range is brought into it before (`clip`, `wrap`), or raises; one that is NaN raises always.
    """

    name = "take"
    Params = TakeParams
    names = ("a", "indices")
    looks_up = (0,)

    def infer_shape(self, p: TakeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        a, indices = ins
        if a is None or indices is None:
            return ins, outs
        axis = axis_in(p.axis, len(a))
        return ins, [merge_shapes((*a[:axis], *indices, *a[axis + 1:]), outs[0])]

    def expand(self, b: Builder, p: TakeParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        a, indices = ins
        count = layout(b.shape(a), p.axis)[1]
        if p.mode != "raise" and count:
            if b.dtype(indices).kind == "f":
                indices = only(b.node("fix", [indices]))
            indices = only(b.node("clip", [indices], a_min=0.0, a_max=count - 1.0) if p.mode == "clip"
                           else b.node("_mod_scalar", [indices], scalar=float(count)))
        return b.node("take", [a, indices], axis=p.axis, mode="raise")

    def compute(self, p: TakeParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        take_into(ins[0], ins[1], p.axis, outs[0], self.name)

    def id_ranges(self, p: TakeParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("take: index", 1, ins[1].shape, layout(ins[0].shape, p.axis)[1])]

    def gradient(self, b: Builder, p: TakeParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_take_backward", [grads[0], ins[1], ins[0]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((4, 3), (2, 3)), integer={"indices": 4}),
                Sample({"axis": 1}, ((2, 4, 3), (5,)), integer={"indices": 4})]


def take_into(a: np.ndarray, indices: np.ndarray, axis: int, out: np.ndarray, where: str) -> None:
    """Write a's slices along an axis, in the order of `indices`, to `out`."""
    view = layout(a.shape, axis)
    source, target = a.reshape(view), out.reshape(view[0], indices.size, view[2])
    for start, ids in numbers(indices, view[1], f"{where}: index"):
        for row in range(view[0]):
            np.take(source[row], ids, axis=0, out=target[row, start:start + ids.size], mode="clip")


@register
class TakeBackward(ByIndex):
    """grad added to the slice of each index, in ascending order of position; `a` is read for its shape.

    Half precision is summed in float32 and rounded once: a sum in float16 stands still once it is some 2048 times what
    is added to it.
    """

    name = "_take_backward"
    Params = TakeParams
    names = ("grad", "indices", "a")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("a_grad",)

    def unread(self, p: TakeParams) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: TakeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (a, indices), (grad,) = Take().infer_shape(p, [merge_shapes(ins[2], outs[0]), ins[1]], [ins[0]])
        return [grad, indices, a], [a]

    def compute(self, p: TakeParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, indices, _ = ins
        view = layout(outs[0].shape, p.axis)
        out, rows = outs[0].reshape(view), grad.reshape(view[0], indices.size, view[2])
        total = work.array(view, np.dtype(np.float32)) if out.dtype == np.float16 else out
        total.fill(0)
        for start, ids in numbers(indices, view[1], "take: index"):
            for position, number in enumerate(ids.tolist(), start):
                target = total[:, number]
                np.add(target, rows[:, position], out=target)
        if total is not out:
            np.copyto(out, total, casting="same_kind")

    def algorithms(self, p: TakeParams, ins: Sequence[TensorType], outs: Sequence[TensorType],
                   ) -> tuple[Algorithm, ...]:
        half = outs[0].dtype == np.float16
        return (Algorithm(workspace_bytes=Workspace.bytes_for((outs[0].shape, np.float32)) if half else 0),)

    def id_ranges(self, p: TakeParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("take: index", 1, ins[1].shape, layout(outs[0].shape, p.axis)[1])]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((5, 3), (5,), (4, 3)), integer={"indices": 4}, differentiable=False)]


@dataclass(frozen=True)
class EmbeddingParams:
    """Parameters of Embedding."""

    input_dim: int = param(REQUIRED, "int", "rows of the weight: how many ids there are")
    output_dim: int = param(REQUIRED, "int", "columns of the weight")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype of the weight")
    sparse_grad: bool = param(False, "bool", "accepted and not used: gradients are dense")


@register
class Embedding(ByIndex):
    """The weight's row of each id. An id may be float or integer; one out of range raises."""

    name = "Embedding"
    Params = EmbeddingParams
    names = ("data", "weight")
    ids = (0,)
    looks_up = (1,)

    def infer_shape(self, p: EmbeddingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if outs[0] is not None and len(outs[0]) == 0:
            raise ShapeError("Embedding has an output with at least one axis")
        data = merge_shapes(ins[0], None if outs[0] is None else outs[0][:-1])
        out = merge_shapes(None if data is None else (*data, p.output_dim), outs[0])
        return [data, merge_shapes(ins[1], (p.input_dim, p.output_dim))], [out]

    def infer_dtype(self, p: EmbeddingParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[1] or outs[0] or dtype_of(p.dtype)
        return [ins[0] or dtype, dtype], [dtype]

    def compute(self, p: EmbeddingParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        take_into(ins[1], ins[0], 0, outs[0], self.name)

    def id_ranges(self, p: EmbeddingParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("Embedding: index", 0, ins[0].shape, ins[1].shape[0])]

    def gradient(self, b: Builder, p: EmbeddingParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[1]:
            return [None, None]
        return [None, only(b.node("_take_backward", [grads[0], ins[0], ins[1]]))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"input_dim": 4, "output_dim": 3}, ((2, 5), (4, 3)), integer={"data": 4})]
