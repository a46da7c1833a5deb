"""CUDA forms of pick, one_hot, take and Embedding, and their gradients; kernels/indexing.cu.

Where the NumPy definition raises for an id out of range, these kernels pick 0, mark no class, take a row of 0
and give no gradient; with poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.softmax import layout
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import ids_arguments, row_group, row_launch

SCAN_CLASSES, SCAN_COLUMNS = 16, 256
"""Classes and columns of a block of take_backward_scan: kClasses, kColumns."""


@kernels_for("pick")
class Pick(KernelOp):
    """The element of data that index names along an axis."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, index = ins
        require_float32("pick", [data, *outs])
        outer, classes, inner = layout(data.shape, p.axis)
        if outs[0].size == 0:
            return ()
        args = (pointer(data), *ids_arguments("pick", index), pointer(outs[0]), int64(outer * inner),
                int64(classes), int64(inner))
        return (Launch("pick_forward_gather", flat_grid(outer * inner), (BLOCK, 1, 1), args),)


@kernels_for("_pick_backward")
class PickBackward(KernelOp):
    """grad at the picked elements, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, index, _ = ins
        require_float32("_pick_backward", [grad, *outs])
        outer, classes, inner = layout(outs[0].shape, p.axis)
        rows = outer * inner
        if outs[0].size == 0:
            return ()
        args = (pointer(grad), *ids_arguments("_pick_backward", index), pointer(outs[0]), int64(rows),
                int64(classes), int64(inner))
        return (row_launch("pick_backward", rows, row_group(classes, inner), classes, args),)


@kernels_for("one_hot")
class OneHot(KernelOp):
    """on_value at the class of each index and off_value elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("one_hot", outs)
        if outs[0].size == 0:
            return ()
        args = (*ids_arguments("one_hot", ins[0]), pointer(outs[0]), int64(ins[0].size), int64(p.depth),
                single(p.on_value), single(p.off_value))
        return (row_launch("one_hot_forward", ins[0].size, row_group(p.depth), p.depth, args),)


def _take(name: str, a: Operand, ids: Operand, axis: int, out: Operand) -> Sequence[Launch]:
    require_float32(name, [a, out])
    if out.size == 0:
        return ()
    outer, classes, inner = layout(a.shape, axis)
    args = (pointer(a), *ids_arguments(name, ids), pointer(out),
            *map(int64, (outer, ids.size, classes, inner)))
    return (row_launch("take_forward", outer * ids.size, row_group(inner), inner, args),)


@kernels_for("take")
class Take(KernelOp):
    """Slices of `a` along an axis in the order of `indices`."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _take("take", ins[0], ins[1], p.axis, outs[0])


@kernels_for("Embedding")
class Embedding(KernelOp):
    """The weight's row of each id."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _take("Embedding", ins[1], ins[0], 0, outs[0])


@kernels_for("_take_backward")
class TakeBackward(KernelOp):
    """grad added to the slice of each index, in ascending order of position."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, ids, _ = ins
        require_float32("_take_backward", [grad, *outs])
        if outs[0].size == 0:
            return ()
        outer, classes, inner = layout(outs[0].shape, p.axis)
        args = (pointer(grad), *ids_arguments("_take_backward", ids), pointer(outs[0]),
                *map(int64, (outer, ids.size, classes, inner)))
        blocks = outer * -(-classes // SCAN_CLASSES) * -(-inner // SCAN_COLUMNS)
        return (Launch("take_backward_scan", flat_grid(blocks * BLOCK), (SCAN_COLUMNS, 1, 1), args),)
