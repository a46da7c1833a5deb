"""CUDA forms of views, reversals, stacks, and channels traded for places; kernels/shape.cu and slicing.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from ...ops.registry import get_op
from ...ops.shape import axis_in
from ...ops.shape_more import BlockTrade
from ..strides import merge_axes, strides
from .basic import copy
from .expanding import gather
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32
from .slicing import move


@kernels_for("squeeze", "reshape_like")
class View(KernelOp):
    """The same bytes under another shape: a copy only if the plan gave the output bytes of its own."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return copy(ins[0], outs[0])


@kernels_for("reverse")
class Reverse(KernelOp):
    """data read backwards along axes."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32("reverse", [data, out])
        if out.size == 0:
            return ()
        axes = {axis_in(axis, len(data.shape)) for axis in p.axis}
        steps = [-s if i in axes else s for i, s in enumerate(strides(data.shape))]
        begin = -sum((d - 1) * s for d, s in zip(data.shape, steps, strict=True) if s < 0)
        sizes, (x_steps,) = merge_axes(out.shape, steps)
        args = (pointer(data), pointer(out), int64(out.size), int64(begin), dims(sizes), dims(x_steps, 0))
        return (Launch("slicing_forward_strided", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("stack")
class Stack(KernelOp):
    """The inputs one after the other along a new axis: one launch for each."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("stack", [*ins, *outs])
        (out,) = outs
        axis = axis_in(p.axis, len(out.shape))
        beside = (*out.shape[:axis], 1, *out.shape[axis + 1:])
        parts = [Operand(operand.address, beside, operand.dtype) for operand in ins]
        return [launch for i, part in enumerate(parts) for launch in move(part, out, axis, 0, i, 1)]


class Trade(KernelOp):
    """Base: data's axes parted, and taken in another order."""

    def __init__(self, name: str) -> None:
        self.name = name

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32(self.name, [data, out])
        op = cast(BlockTrade, get_op(self.name))
        parted = op.parted(p, data.shape)[0]
        steps = strides(parted)
        assert prod(parted) == out.size
        return gather(data, out, [parted[i] for i in op.order], [steps[i] for i in op.order])


@kernels_for("depth_to_space")
class DepthToSpace(Trade):
    """Groups of channels as blocks of places."""

    def __init__(self) -> None:
        super().__init__("depth_to_space")


@kernels_for("space_to_depth")
class SpaceToDepth(Trade):
    """Blocks of places as groups of channels."""

    def __init__(self) -> None:
        super().__init__("space_to_depth")
