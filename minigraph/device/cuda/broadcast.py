"""CUDA forms of arithmetic with broadcasting and of the sum back to a smaller shape; kernels/broadcast.cu."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ...base import Algorithm, Shape, TensorType, align
from ..strides import broadcast_strides, merge_axes, strides
from .launch import (
    BLOCK,
    MAX_BLOCKS,
    KernelOp,
    Launch,
    Operand,
    address,
    dims,
    flat_grid,
    int64,
    kernels_for,
    pointer,
)
from .operands import require_float32
from .pointwise import PER_THREAD


class Broadcast(KernelOp):
    """out = f(lhs, rhs); operands of one shape take the kernel of an elementwise op, elemwise_<op> by default."""

    op: ClassVar[str]
    elementwise: ClassVar[str] = ""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(f"broadcast_{self.op}", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        shape, steps = merge_axes(out.shape, *(broadcast_strides(i.shape, out.shape) for i in ins))
        args = (*map(pointer, ins), pointer(out), int64(out.size))
        if steps[0] == steps[1]:
            elementwise = self.elementwise or f"elemwise_{self.op}"
            kernel, grid = f"{elementwise}_forward_float32", flat_grid(out.size, PER_THREAD)
        else:
            kernel, grid = f"broadcast_{self.op}_forward_strided", flat_grid(out.size)
            args = (*args, dims(shape), *(dims(s, 0) for s in steps))
        return (Launch(kernel, grid, (BLOCK, 1, 1), args),)


@kernels_for("broadcast_add")
class BroadcastAdd(Broadcast):
    """lhs + rhs."""

    op = "add"


@kernels_for("broadcast_sub")
class BroadcastSubtract(Broadcast):
    """lhs - rhs."""

    op = "sub"


@kernels_for("broadcast_mul")
class BroadcastMultiply(Broadcast):
    """lhs * rhs."""

    op = "mul"


@kernels_for("broadcast_div")
class BroadcastDivide(Broadcast):
    """lhs / rhs."""

    op = "div"


THREAD_PART = 256
"""Elements that one thread adds in order: its rounding error is that of a sum this long."""
BLOCK_PART = 16 * BLOCK
"""Elements of a block's part: 16 a thread, enough to hide the tree at the end."""
SHORT = 32
"""Sums up to this length are one thread's, whatever the strides."""
WARP_PART = 1024
"""Sums up to this length are one warp's."""


@dataclass(frozen=True)
class SumPlan:
    """How a tensor is summed: which units add (threads, warps or blocks), and parts of which length."""

    units: str
    outputs: int
    length: int
    part_length: int
    kept: tuple[Shape, Shape]
    summed: tuple[Shape, Shape]

    @property
    def parts(self) -> int:
        """Parts of each sum."""
        return max(1, -(-self.length // self.part_length))

    @property
    def workspace_bytes(self) -> int:
        """Bytes for the sums of parts; none when there is one part."""
        return align(4 * self.outputs * self.parts) if self.parts > 1 else 0

    def launches(self, source: int, target: int, work: int) -> list[Launch]:
        """From the tensor at one address to the sums at another; both addresses hold float32."""
        if self.parts == 1:
            return [self._launch(source, target)]
        shape, steps = (self.outputs,), (self.parts,)
        summed = (self.parts,), (1,)
        second = SumPlan("blocks", self.outputs, self.parts, self.parts, (shape, steps), summed)
        return [self._launch(source, work), second._launch(work, target)]

    def _launch(self, source: int, target: int) -> Launch:
        *outer, inner = self.summed[0] or (1,)
        *outer_steps, inner_step = self.summed[1] or (0,)
        args = (address(source), address(target), int64(self.outputs), int64(self.length),
                int64(self.part_length), int64(self.parts), dims(self.kept[0]), dims(self.kept[1], 0),
                dims(outer), dims(outer_steps, 0), int64(max(inner, 1)), int64(inner_step))
        count = self.outputs * self.parts
        units_a_block = {"threads": BLOCK, "warps": BLOCK // 32, "blocks": 1}[self.units]
        grid = max(1, min(-(-count // units_a_block), MAX_BLOCKS)), 1, 1
        return Launch(f"sum_like_forward_{self.units}", grid, (BLOCK, 1, 1), args)


def plan_sum(shape: Sequence[int], axes: Sequence[int]) -> SumPlan:
    """The plan to sum a contiguous tensor over axes; it depends on the shape alone."""
    kept_shape = [1 if i in axes else d for i, d in enumerate(shape)]
    marks = [0 if i in axes else s for i, s in enumerate(strides(kept_shape))]
    merged, (steps, kept_steps) = merge_axes(shape, strides(shape), marks)
    kept = [i for i, k in enumerate(kept_steps) if k]
    summed = [i for i, k in enumerate(kept_steps) if not k]
    length = prod(merged[i] for i in summed)
    last_is_kept = bool(merged) and len(merged) - 1 in kept
    units = "threads" if last_is_kept or length <= SHORT else "warps" if length <= WARP_PART else "blocks"
    part_length = {"threads": THREAD_PART, "warps": WARP_PART, "blocks": BLOCK_PART}[units]

    def pick(places: list[int]) -> tuple[Shape, Shape]:
        return tuple(merged[i] for i in places), tuple(steps[i] for i in places)

    return SumPlan(units, prod(merged[i] for i in kept), length, part_length, pick(kept), pick(summed))


@kernels_for("_sum_like")
class SumLike(KernelOp):
    """The sum of grad over the axes along which a tensor of the output's shape is repeated to it."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", _plan(ins[0].shape, outs[0].shape).workspace_bytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_sum_like", [*ins, *outs])
        if outs[0].size == 0:
            return ()
        return _plan(ins[0].shape, outs[0].shape).launches(ins[0].address, outs[0].address, work)


def _plan(shape: Shape, target: Shape) -> SumPlan:
    lead = len(shape) - len(target)
    axes = [i for i, d in enumerate(shape) if i < lead or (target[i - lead] == 1 and d != 1)]
    return plan_sum(shape, axes)
