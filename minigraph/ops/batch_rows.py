"""Slices of a batch and the whole: rows taken out of a tensor, and put together again.

A slice of a contiguous tensor along its first axis is contiguous, so taking rows copies nothing where they begin at an
aligned byte: it is a view. Putting together goes row range by row range over one growing tensor, so that each slice is
free once it is in its place.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Cost, Entry, PartialShape, Shape, TensorType
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import register

Types = Sequence[TensorType]
Shapes = tuple[list[PartialShape], list[PartialShape]]


@dataclass(frozen=True)
class TakeRowsParams:
    """Parameters of rows taken out of a batch."""

    first: int = param(REQUIRED, "int", "first row")
    rows: int = param(REQUIRED, "int", "number of rows")
    shares: bool = param(False, "bool", "whether the rows stay where they are, as a view")


@register
class TakeRows(Op):
    """Rows [first, first + rows) of data: a view with `shares`, which needs them to begin at an aligned byte."""

    name = "_take_rows"
    Params = TakeRowsParams
    recompute = "cheap"
    as_stored = True

    def view(self, p: TakeRowsParams) -> bool:
        return p.shares

    def view_offset(self, p: TakeRowsParams, source: TensorType) -> int:
        return p.first * (source.nbytes // max(1, source.shape[0]))

    def infer_shape(self, p: TakeRowsParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        data = ins[0]
        if data is None:
            return ins, outs
        if data[0] is not None and not 0 <= p.first <= p.first + p.rows <= data[0]:
            raise ShapeError(f"rows [{p.first}, {p.first + p.rows}) are not all in data {format_shape(data)}")
        return [data], [merge_shapes((p.rows, *data[1:]), outs[0])]

    def compute(self, p: TakeRowsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0][p.first:p.first + p.rows])

    def cost(self, p: TakeRowsParams, ins: Types, outs: Types) -> Cost:
        return Cost(0.0, outs[0].nbytes, outs[0].nbytes)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"first": first, "rows": 2, "shares": shares}, ((20, 4, 2),), differentiable=False)
                for first, shares in ((1, False), (16, True))]


@dataclass(frozen=True)
class FirstRowsParams:
    """Parameters of a batch of which the first slice is there."""

    batch: int = param(REQUIRED, "int", "rows of the whole")


class _Placing(Op):
    """Base of ops that put a slice into a tensor that is growing together."""

    recompute = "never"
    as_stored = True

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(0.0, ins[-1].nbytes, ins[-1].nbytes)


@register
class FirstRows(_Placing):
    """A tensor of `batch` rows that begins with data; what is in the rows behind is not defined."""

    name = "_first_rows"
    Params = FirstRowsParams

    def infer_shape(self, p: FirstRowsParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        if ins[0] is None:
            return ins, outs
        if ins[0][0] is not None and ins[0][0] > p.batch:
            raise ShapeError(f"{format_shape(ins[0])} has more rows than the batch of {p.batch}")
        return ins, [merge_shapes((p.batch, *ins[0][1:]), outs[0])]

    def compute(self, p: FirstRowsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0][:len(ins[0])], ins[0])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"batch": 3}, ((3, 4),), differentiable=False)]


@dataclass(frozen=True)
class PlaceRowsParams:
    """Parameters of a slice's place in the whole."""

    first: int = param(REQUIRED, "int", "first row")


@register
class PlaceRows(_Placing):
    """whole with its rows from `first` on replaced by those of data; in place, only these are written."""

    name = "_place_rows"
    Params = PlaceRowsParams

    def inputs(self, p: PlaceRowsParams) -> tuple[str, ...]:
        return ("whole", "data")

    def infer_shape(self, p: PlaceRowsParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        whole, data = merge_shapes(ins[0], outs[0]), ins[1]
        if whole is not None and data is not None and None not in (whole[0], data[0]):
            merge_shapes(whole[1:], data[1:])
            if not 0 <= p.first <= whole[0] - data[0]:  # type: ignore[operator]
                raise ShapeError(f"{format_shape(data)} from row {p.first} on does not lie within "
                                 f"{format_shape(whole)}")
        return [whole, data], [whole]

    def inplace(self, p: PlaceRowsParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: PlaceRowsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if outs[0].ctypes.data != ins[0].ctypes.data:
            np.copyto(outs[0], ins[0])
        np.copyto(outs[0][p.first:p.first + len(ins[1])], ins[1])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"first": 1}, ((5, 4), (2, 4)), differentiable=False)]


def take_rows(b: Builder, entry: Entry, first: int, rows: int, shares: bool) -> Entry:
    """Add the node that takes rows out of a batch, as a view if it `shares` their bytes."""
    part, = b.node(TakeRows.name, (entry,), first=first, rows=rows, shares=shares)
    return part


def place_rows(b: Builder, whole: Entry | None, part: Entry, first: int, batch: int) -> Entry:
    """Add the node that puts a slice into the whole, which is None before the first slice."""
    if whole is None:
        whole, = b.node(FirstRows.name, (part,), batch=batch)
    else:
        whole, = b.node(PlaceRows.name, (whole, part), first=first)
    return whole


def row_ranges(batch: int, length: int) -> list[tuple[int, int]]:
    """(first row, rows) of the slices of a batch, each `length` long but the last, which may be shorter."""
    return [(first, min(length, batch - first)) for first in range(0, batch, length)]


def shape_of_rows(shape: Shape, rows: int) -> Shape:
    """The shape of a slice of a tensor."""
    return (rows, *shape[1:])
