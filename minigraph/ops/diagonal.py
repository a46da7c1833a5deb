"""diag: diagonals out of matrices, and matrices from a diagonal."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register
from .shape import axis_in


@dataclass(frozen=True)
class DiagParams:
    """Parameters of diag."""

    k: int = param(0, "int", "which diagonal: 0 the main one, above it from 1 on, below it to -1")
    axis1: int = param(0, "int", "axis of the rows, for data of two axes or more")
    axis2: int = param(1, "int", "axis of the columns")


def diagonal_length(rows: int, columns: int, k: int) -> int:
    """Elements of a matrix's k-th diagonal, none if the matrix is empty; ShapeError if it lies outside."""
    length = min(rows + min(k, 0), columns - max(k, 0))
    if length < min(1, rows, columns):
        raise ShapeError(f"diag: k={k} is outside a matrix of {rows} x {columns}")
    return length


def matrix_axes(p: DiagParams, rank: int) -> tuple[int, int]:
    """The axes of rows and columns; ShapeError if they are one."""
    axes = axis_in(p.axis1, rank), axis_in(p.axis2, rank)
    if axes[0] == axes[1]:
        raise ShapeError(f"diag: axis1={p.axis1} and axis2={p.axis2} are the same axis")
    return axes


def diagonal_of(array: np.ndarray, p: DiagParams) -> np.ndarray:
    """A view of the diagonals of a tensor of two axes or more, along a last axis, for writing too."""
    view = np.diagonal(array, p.k, *matrix_axes(p, array.ndim))
    view.flags.writeable = array.flags.writeable
    return view


@register
class Diag(Op):
    """The k-th diagonals of data, along a last axis in the place of two; of data with one axis, a matrix with it."""

    name = "diag"
    Params = DiagParams
    recompute = "cheap"

    def infer_shape(self, p: DiagParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        if len(shape) == 1:
            size = None if shape[0] is None else shape[0] + abs(p.k)
            return ins, [merge_shapes((size, size), outs[0])]
        axes = matrix_axes(p, len(shape))
        rows, columns = shape[axes[0]], shape[axes[1]]
        length = None if rows is None or columns is None else diagonal_length(rows, columns, p.k)
        return ins, [merge_shapes((*(d for i, d in enumerate(shape) if i not in axes), length), outs[0])]

    def compute(self, p: DiagParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if ins[0].ndim == 1:
            outs[0].fill(0)
            diagonal_of(outs[0], DiagParams(p.k))[...] = ins[0]
        else:
            np.copyto(outs[0], diagonal_of(ins[0], p))

    def gradient(self, b: Builder, p: DiagParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        if b.shape(ins[0]) == (0,):
            return [None]
        if len(b.shape(ins[0])) == 1:
            return [only(b.node("diag", [grads[0]], k=p.k))]
        return [only(b.node("_diag_backward", [grads[0], ins[0]], **vars(p)))]

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,)) for params, shape in (
            ({}, (4,)), ({"k": -2}, (3,)), ({}, (3, 3)), ({"k": 1}, (3, 4)), ({"k": -1}, (4, 2)),
            ({"axis1": 2, "axis2": 0}, (3, 2, 4)), ({"k": 1, "axis1": -1, "axis2": -2}, (2, 4, 3)))]


@register
class DiagBackward(Op):
    """grad on the diagonals of a tensor of zeros with the shape of data, of which only the shape is read."""

    name = "_diag_backward"
    Params = DiagParams
    recompute = "cheap"

    def inputs(self, p: DiagParams) -> tuple[str, ...]:
        return ("grad", "data")

    def unread(self, p: DiagParams) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: DiagParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[1], outs[0])
        if data is not None and len(data) < 2:
            raise ShapeError(f"_diag_backward: data {format_shape(data)} must have two axes or more")
        (data,), (grad,) = Diag().infer_shape(p, [data], [ins[0]])
        return [grad, data], [data]

    def compute(self, p: DiagParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        np.copyto(diagonal_of(outs[0], p), ins[0])
