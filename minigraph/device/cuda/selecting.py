"""CUDA forms of where, argmax and argmin, gather_nd, scatter_nd and gradients; kernels/selecting.cu and indexing.cu.

Where gather_nd raises on the CPU for an index out of range, it gathers 0 here and gives no gradient; scatter_nd leaves
the row out; with poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from ...base import Algorithm, MXNetError, TensorType, align
from ...ops.op import format_shape
from ...ops.softmax import layout
from .indexing import SCAN_CLASSES, SCAN_COLUMNS
from .launch import (
    BLOCK,
    KernelOp,
    Launch,
    Operand,
    address,
    dims,
    flat_grid,
    float32,
    int32,
    int64,
    kernels_for,
    pointer,
)
from .operands import require_float32
from .rows import ID_KINDS, ids_arguments, row_group, row_launch

INT64_KIND = ID_KINDS.index(np.dtype(np.int64))


@kernels_for("where")
class Where(KernelOp):
    """x where condition is not 0, else y."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        condition, x, y = ins
        require_float32("where", [x, y, *outs])
        size = outs[0].size
        if size == 0:
            return ()
        args = (*ids_arguments("where", condition), pointer(x), pointer(y), pointer(outs[0]), int64(size),
                int64(size // condition.size))
        return (Launch("where_forward_float32", flat_grid(size), (BLOCK, 1, 1), args),)


@kernels_for("_where_backward")
class WhereBackward(KernelOp):
    """grad where the condition is as `hold` says, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, condition = ins
        require_float32("_where_backward", [grad, *outs])
        size = outs[0].size
        if size == 0:
            return ()
        args = (pointer(grad), *ids_arguments("_where_backward", condition), pointer(outs[0]), int64(size),
                int64(size // condition.size), int32(p.hold))
        return (Launch("where_backward_float32", flat_grid(size), (BLOCK, 1, 1), args),)


class ArgExtremum(KernelOp):
    """Base: the index of the first extremum along an axis."""

    name: ClassVar[str]
    sign: ClassVar[float] = 1.0

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32(self.name, [data, out])
        if out.size == 0:
            return ()
        if data.size == 0:
            raise MXNetError(f"{self.name} over no elements: the input has shape {format_shape(data.shape)}")
        outer, classes, inner = (1, data.size, 1) if p.axis is None else layout(data.shape, p.axis)
        rows = outer * inner
        args = (pointer(data), pointer(out), int64(rows), int64(classes), int64(inner), float32(self.sign))
        return (row_launch("arg_extremum_forward", rows, row_group(classes, inner), classes, args),)


@kernels_for("argmax")
class Argmax(ArgExtremum):
    """The index of the first largest element."""

    name = "argmax"


@kernels_for("argmax_channel")
class ArgmaxChannel(ArgExtremum):
    """The index of the first largest element along axis 1."""

    name = "argmax_channel"


@kernels_for("argmin")
class Argmin(ArgExtremum):
    """The index of the first smallest element."""

    name, sign = "argmin", -1.0


def _places(indices: Any) -> int:
    return prod(indices.shape[1:])


def _numbers(name: str, indices: Operand, data: Sequence[int], work: int) -> Launch:
    """The launch that writes the row number of each place to the workspace."""
    axes, places = indices.shape[0], _places(indices)
    args = (*ids_arguments(name, indices), address(work), int64(places), int32(axes), dims(data[:axes]))
    return Launch("gather_numbers_forward", flat_grid(places), (BLOCK, 1, 1), args)


class Gather(KernelOp):
    """Base: row numbers in the workspace first."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("numbers", align(8 * _places(ins[1])))


@kernels_for("gather_nd")
class GatherNd(Gather):
    """The rows of data that indices name."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, indices = ins
        require_float32("gather_nd", [data, *outs])
        if outs[0].size == 0:
            return ()
        axes, places = indices.shape[0], _places(indices)
        rows, width = prod(data.shape[:axes]), prod(data.shape[axes:])
        args = (pointer(data), address(work), int32(INT64_KIND), pointer(outs[0]),
                *map(int64, (1, places, rows, width)))
        return (_numbers("gather_nd", indices, data.shape, work),
                row_launch("take_forward", places, row_group(width), width, args))


@kernels_for("_gather_nd_backward")
class GatherNdBackward(Gather):
    """grad added to the rows of each index, in ascending order of position."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _add_rows("_gather_nd_backward", ins[0], ins[1], outs[0], work)


@kernels_for("scatter_nd")
class ScatterNd(Gather):
    """data's rows added where indices say, in ascending order of position."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _add_rows("scatter_nd", ins[0], ins[1], outs[0], work)


def _add_rows(name: str, grad: Operand, indices: Operand, out: Operand, work: int) -> Sequence[Launch]:
    require_float32(name, [grad, out])
    if out.size == 0:
        return ()
    axes, places = indices.shape[0], _places(indices)
    rows, width = prod(out.shape[:axes]), prod(out.shape[axes:])
    args = (pointer(grad), address(work), int32(INT64_KIND), pointer(out), *map(int64, (1, places, rows, width)))
    blocks = -(-rows // SCAN_CLASSES) * -(-width // SCAN_COLUMNS)
    scan = Launch("take_backward_scan", flat_grid(blocks * BLOCK), (SCAN_COLUMNS, 1, 1), args)
    return (_numbers(name, indices, out.shape, work), scan) if places else (scan,)
