"""Positions in a tensor: ravel_multi_index and unravel_index, between coordinates and numbers, and batch_take."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import get_op, register

Dtypes = list[np.dtype | None]


@dataclass(frozen=True)
class PositionParams:
    """Parameters of the operators between coordinates and numbers."""

    shape: tuple[int, ...] = param(REQUIRED, "shape", "shape of the tensor of the positions; its first may be -1")


def _strides(p: PositionParams) -> list[int]:
    """How far a step along each axis goes in the flat tensor."""
    if any(n < 1 for n in p.shape[1:]) or not p.shape or p.shape[0] < 1 and p.shape[0] != -1:
        raise ShapeError(f"shape {p.shape} must have dimensions of 1 or more; the first may be -1, for any")
    return [prod(p.shape[k + 1:]) for k in range(len(p.shape))]


def _whole_numbers(b: Builder, data: Entry) -> Entry:
    """data without a gradient, in a type in which whole numbers are divided as they should be."""
    data = only(b.node("BlockGrad", [data]))
    return data if b.dtype(data).kind == "f" else only(b.node("Cast", [data], dtype=np.dtype(np.float64)))


@register
class RavelMultiIndex(Op):
    """The numbers of positions in a flat tensor, from their coordinates along axis 0: data (axes, *rest) gives rest."""

    name = "ravel_multi_index"
    aliases = ("_ravel_multi_index",)
    Params = PositionParams

    def infer_shape(self, p: PositionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        axes = len(_strides(p))
        data = ins[0] if outs[0] is None else merge_shapes(ins[0], (axes, *outs[0]))
        if data is None:
            return ins, outs
        if len(data) < 2 or data[0] not in (None, axes):
            raise ShapeError(f"data {format_shape(data)} must be ({axes}, *rest): a row for each axis of shape "
                             f"{p.shape}")
        data = (axes, *data[1:])
        return [data], [data[1:]]

    def expand(self, b: Builder, p: PositionParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data = _whole_numbers(b, ins[0])
        total: Entry | None = None
        for k, stride in enumerate(_strides(p)):
            row = only(b.node("slice_axis", [data], axis=0, begin=k, end=k + 1))
            part = only(b.node("_mul_scalar", [row], scalar=float(stride)))
            total = part if total is None else only(b.node("elemwise_add", [total, part]))
        assert total is not None
        number = only(b.node("Reshape", [total], shape=b.shape(ins[0])[1:]))
        return b.node("Cast", [number], dtype=b.dtype(ins[0]))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (5, 5)}, ((2, 4),), integer={"data": 5}, differentiable=False),
                Sample({"shape": (-1, 4, 6)}, ((3, 2, 3),), integer={"data": 4}, differentiable=False)]


@register
class UnravelIndex(Op):
    """The coordinates along a new axis 0 of the positions of a flat tensor: data of a shape s gives (axes, *s)."""

    name = "unravel_index"
    aliases = ("_unravel_index",)
    Params = PositionParams

    def infer_shape(self, p: PositionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        axes = len(_strides(p))
        data = ins[0] if outs[0] is None else merge_shapes(ins[0], outs[0][1:])
        return [data], [None if data is None else merge_shapes((axes, *data), outs[0])]

    def expand(self, b: Builder, p: PositionParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data = _whole_numbers(b, ins[0])
        rows = []
        for k, stride in enumerate(_strides(p)):
            row = data
            if stride > 1:
                row = only(b.node("floor", b.node("_div_scalar", [row], scalar=float(stride))))
            if k:
                row = only(b.node("_mod_scalar", [row], scalar=float(p.shape[k])))
            rows.append(only(b.node("expand_dims", [row], axis=0)))
        joined = b.node("Concat", rows, num_args=len(rows), dim=0)
        return b.node("Cast", joined, dtype=b.dtype(ins[0]))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (5, 5)}, ((4,),), integer={"data": 25}, differentiable=False),
                Sample({"shape": (-1, 4, 6)}, ((2, 3),), integer={"data": 72}, differentiable=False)]


@register
class BatchTake(Op):
    """The element of each row of a matrix at the position that `indices` has for the row."""

    name = "batch_take"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("a", "indices")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        rows = merge_shapes(ins[1], outs[0])
        matrix = merge_shapes(ins[0], (None if rows is None else rows[0], None))
        if rows is not None and len(rows) != 1:
            raise ShapeError(f"indices {format_shape(rows)} must be a vector, a position for each row of a "
                             f"{format_shape(matrix)}")
        assert matrix is not None
        return [matrix, (matrix[0],)], [(matrix[0],)]

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        pick = get_op("pick")
        return pick.infer_dtype(pick.Params(axis=1), ins, outs)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("pick", ins, axis=1)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3,)), integer={"indices": 4})]
