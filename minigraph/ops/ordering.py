"""topk, sort, argsort: elements in order along an axis, equal ones in the order they came, NaN last.

Rows are sorted in scratch as complex numbers, value beside index, which NumPy compares in that order.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, MXNetError, PartialShape, Shape, TensorType
from .chunks import CHUNK_BYTES, chunks
from .elemwise import only
from .indexing import PIECE, IdRange, numbers
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, is_complete, merge_shapes
from .params import param
from .pointwise import Found, flat
from .registry import register
from .softmax import layout

INDEX = np.dtype(np.int32)
"""The dtype of hidden indices, which the gradient reads."""
FLOAT32 = np.dtype(np.float32)
PAIR = np.dtype(np.complex128)


@dataclass(frozen=True)
class TopkParams:
    """Parameters of topk."""

    axis: int | None = param(-1, "int", "axis along which to order; None for data made flat",
                             optional=True)
    k: int = param(1, "int", "how many elements; all of them when below 1")
    ret_typ: str = param("indices", "str", "what to return", ("indices", "value", "both", "mask"))
    is_ascend: bool = param(False, "bool", "the least elements, instead of the largest")
    dtype: np.dtype = param(FLOAT32, "dtype", "dtype of the indices")


def _view(axis: int | None, shape: Shape) -> tuple[int, int, int]:
    return (1, prod(shape), 1) if axis is None else layout(shape, axis)


def _count(p: TopkParams, length: int) -> int:
    if p.k > length:
        raise ShapeError(f"topk: k={p.k} of {length} elements; k must not be larger")
    return p.k if p.k > 0 else length


def _out_shape(p: TopkParams, shape: Shape) -> Shape:
    if p.axis is None:
        return (_count(p, prod(shape)),)
    axis = p.axis % len(shape)
    return (*shape[:axis], _count(p, shape[axis]), *shape[axis + 1:])


def _scratch(view: tuple[int, int, int]) -> Shape:
    """Rows of pairs that are sorted at a time. Rows are independent, so this changes no bit."""
    outer, classes, inner = view
    return max(1, min(outer, CHUNK_BYTES // max(1, classes * inner * PAIR.itemsize))), inner, classes


@register
class Topk(Op):
    """The k largest elements along an axis, the largest first: their indices, values, both, or a mask of them."""

    name = "topk"
    Params = TopkParams
    recompute = "cheap"

    def outputs(self, p: TopkParams) -> tuple[str, ...]:
        return ("output", "indices") if p.ret_typ in ("value", "both") else ("output",)

    def visible_outputs(self, p: TopkParams) -> int:
        return 2 if p.ret_typ == "both" else 1

    def infer_shape(self, p: TopkParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if p.ret_typ == "mask":
            shape = merge_shapes(shape, outs[0])
            if is_complete(shape):
                _out_shape(p, shape)  # type: ignore[arg-type]  # refuses more than there are
            return [shape], [shape]
        if not is_complete(shape):
            return ins, outs
        if p.axis is not None and not -len(shape) <= p.axis < len(shape):  # type: ignore[arg-type]
            raise ShapeError(f"axis {p.axis} is outside data {format_shape(shape)}")
        out = _out_shape(p, shape)  # type: ignore[arg-type]
        return ins, [merge_shapes(out, given) for given in outs]

    def infer_dtype(self, p: TopkParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        if p.ret_typ == "indices":
            return list(ins), [p.dtype]
        dtype = ins[0] or outs[0]
        return [dtype], [dtype, p.dtype if p.ret_typ == "both" else INDEX][:len(outs)]

    def algorithms(self, p: TopkParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("pairs", Workspace.bytes_for((_scratch(_view(p.axis, ins[0].shape)), PAIR))),)

    def compute(self, p: TopkParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = _view(p.axis, ins[0].shape)
        data, k = ins[0].reshape(view), _count(p, view[1])
        pairs = work.array(_scratch(view), PAIR)
        if p.ret_typ == "mask":
            outs[0].fill(0)
        for s in chunks(view[0], len(pairs)):
            rows = pairs[:s.stop - s.start]
            _sort(data[s], rows, p.is_ascend)
            found = rows[:, :, :k].transpose(0, 2, 1)
            if p.ret_typ == "mask":
                self._mark(outs[0].reshape(view)[s], found.imag, view)
                continue
            if p.ret_typ != "indices":
                if not p.is_ascend:
                    np.negative(rows.real, out=rows.real)
                np.copyto(outs[0].reshape(view[0], k, view[2])[s], found.real, casting="unsafe")
            np.copyto(outs[-1].reshape(view[0], k, view[2])[s], found.imag, casting="unsafe")

    @staticmethod
    def _mark(mask: np.ndarray, ids: np.ndarray, view: tuple[int, int, int]) -> None:
        for outer in range(len(mask)):
            for j in range(ids.shape[1]):
                for t in chunks(view[2], PIECE):
                    place = ids[outer, j, t].astype(np.int64) * view[2] + np.arange(t.start, t.stop)
                    flat(mask[outer])[place] = 1

    def gradient(self, b: Builder, p: TopkParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0] or p.ret_typ not in ("value", "both"):
            return [None]
        if p.ret_typ == "both" and p.dtype.kind == "f" and np.finfo(p.dtype).nmant < 23:
            raise MXNetError(f"topk: indices of dtype {p.dtype} do not hold every index; give dtype='int32'")
        return [only(b.node("_topk_backward", [grads[0], outs[1], ins[0]], axis=p.axis))]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"k": 2}, (3, 4)), ({"k": 2, "axis": 0, "ret_typ": "value"}, (4, 3)),
            ({"axis": 1, "k": 3, "ret_typ": "both", "is_ascend": True}, (2, 5, 3)),
            ({"k": 2, "axis": 1, "ret_typ": "mask"}, (2, 4, 3)), ({"axis": None, "k": 4, "ret_typ": "value"}, (3, 4)),
            ({"k": 0, "ret_typ": "value", "is_ascend": True}, (2, 5))]
        return [Sample(params, (shape,), differentiable=params.get("ret_typ") == "value") for params, shape in cases]


def _sort(data: np.ndarray, pairs: np.ndarray, ascending: bool) -> None:
    """Write (±value, index) of data (rows, classes, inner) to pairs (rows, inner, classes), in order."""
    np.copyto(pairs.real, data.transpose(0, 2, 1), casting="unsafe")
    if not ascending:
        np.negative(pairs.real, out=pairs.real)
    for s in chunks(pairs.shape[2], PIECE):
        pairs.imag[:, :, s] = np.arange(s.start, s.stop, dtype=np.float64)
    pairs.sort(axis=2)


@dataclass(frozen=True)
class TopkBackwardParams:
    """Parameters of the gradient of topk."""

    axis: int | None = param(-1, "int", "axis along which elements were ordered; None for data made flat",
                             optional=True)


@register
class TopkBackward(Op):
    """grad at the place of each element that was taken, 0 elsewhere; data is read for its shape."""

    name = "_topk_backward"
    Params = TopkBackwardParams
    recompute = "cheap"

    def inputs(self, p: TopkBackwardParams) -> tuple[str, ...]:
        return ("grad", "indices", "data")

    def unread(self, p: TopkBackwardParams) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: TopkBackwardParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, taken = merge_shapes(ins[2], outs[0]), merge_shapes(ins[0], ins[1])
        return [taken, taken, data], [data]

    def infer_dtype(self, p: TopkBackwardParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[0] or ins[2] or outs[0]
        return [dtype, ins[1], dtype], [dtype]

    def compute(self, p: TopkBackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, indices, _ = ins
        view = _view(p.axis, outs[0].shape)
        count = grad.size // max(1, view[0] * view[2])
        out = flat(outs[0])
        out.fill(0)
        for start, ids in numbers(indices, view[1], "topk: index"):
            outer, within = np.divmod(np.arange(start, start + ids.size), max(1, count * view[2]))
            places = (outer * view[1] + ids) * view[2] + within % view[2]
            out[places] = flat(grad)[start:start + ids.size]

    def id_ranges(self, p: TopkBackwardParams, ins: Sequence[TensorType],
                  outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("topk: index", 1, ins[1].shape, _view(p.axis, outs[0].shape)[1])]


@dataclass(frozen=True)
class SortParams:
    """Parameters of sort."""

    axis: int | None = param(-1, "int", "axis along which to order; None for data made flat",
                             optional=True)
    is_ascend: bool = param(True, "bool", "the least element first")


@dataclass(frozen=True)
class ArgsortParams(SortParams):
    """Parameters of argsort."""

    dtype: np.dtype = param(FLOAT32, "dtype", "dtype of the indices")


class _Sorting(Op):
    """Base: topk of all elements."""

    recompute = "cheap"

    def topk(self, p: Any) -> TopkParams:
        """The topk that the op is."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found, shapes = Topk().infer_shape(self.topk(p), ins, outs)
        return found, shapes

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return Topk().infer_dtype(self.topk(p), ins, outs)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("topk", ins, **vars(self.topk(p)))

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,), differentiable=self.name == "sort") for params, shape in (
            ({}, (3, 4)), ({"axis": 0, "is_ascend": False}, (4, 3)), ({"axis": None}, (2, 3)))]


@register
class Sort(_Sorting):
    """data in order along an axis; the hidden output holds the indices."""

    name = "sort"
    Params = SortParams

    def outputs(self, p: SortParams) -> tuple[str, ...]:
        return ("output", "indices")

    def visible_outputs(self, p: SortParams) -> int:
        return 1

    def topk(self, p: SortParams) -> TopkParams:
        return TopkParams(p.axis, 0, "value", p.is_ascend)


@register
class Argsort(_Sorting):
    """The indices that put data in order along an axis; no gradient."""

    name = "argsort"
    Params = ArgsortParams

    def topk(self, p: ArgsortParams) -> TopkParams:
        return TopkParams(p.axis, 0, "indices", p.is_ascend, p.dtype)
