"""Batch normalisation on a GPU: the launches of kernels/norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import TensorType
from ...ops.channels import channel_layout
from .channels import THREADS as CHANNEL_THREADS
from .channels import Channels, span_grid
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, float32, int32, int64, kernels_for, pointer
from .operands import ACTIVATIONS, require_float32

Types = Sequence[TensorType]
Operands = Sequence[Operand]
Arg = tuple[str, Any]
NULL = address(0)


def null_or(operand: Operand, held: bool) -> Arg:
    """A pointer, or null for a gamma that is held at 1."""
    return address(0 if held else operand.address)


def act(act_type: str | None) -> Arg:
    """The number of an activation, or of none."""
    return int32(ACTIVATIONS[act_type])


def addend(p: Any, ins: Operands, place: int) -> Arg:
    """The addend at a place among the inputs, or null."""
    return address(ins[place].address if p.addend else 0)


def per_part(kernel: str, operands: Sequence[Arg], c: Channels) -> list[Launch]:
    """The launch that sums each part; none where there are none."""
    if not c.parts or not c.channels:
        return []
    return [Launch(kernel, (c.blocks, 1, 1), (CHANNEL_THREADS, 1, 1), (*operands, c.argument()))]


def per_channel(kernel: str, operands: Sequence[Arg], channels: int) -> list[Launch]:
    """A launch with a thread a channel."""
    return [Launch(kernel, flat_grid(channels), (BLOCK, 1, 1), tuple(operands))] if channels else []


def per_element(kernel: str, operands: Sequence[Arg], axis: int, data: Operand) -> list[Launch]:
    """An elementwise launch that knows channels."""
    if not data.size:
        return []
    layout = channel_layout(axis, data.shape)
    args = (*operands, int64(data.size), int64(layout[2]), int64(layout[3]))
    return [Launch(kernel, span_grid(data.size), (BLOCK, 1, 1), args)]


@kernels_for("_fill_ones")
class FillOnesKernels(KernelOp):
    """Ones."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_fill_ones", outs)
        return per_channel("fill_ones_inplace", (pointer(outs[0]), int64(outs[0].size)), outs[0].size)


@kernels_for("_batchnorm_update_moving")
class BatchNormUpdateMovingKernels(KernelOp):
    """Moving statistics, where they lie."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_update_moving", (*ins, *outs))
        keep = p.momentum if ins[4].size else 1.0
        args = (*map(pointer, ins[:4]), *map(pointer, outs), float32(keep), float32(1 - keep), int64(outs[0].size))
        return per_channel("batchnorm_update_moving_inplace", args, outs[0].size)
