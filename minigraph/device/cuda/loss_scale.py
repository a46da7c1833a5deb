"""CUDA forms of the loss scale and of the check of gradients; kernels/loss_scale.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType, align
from .launch import BLOCK, MAX_BLOCKS, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32
from .pointwise import PER_THREAD

PART = 64 * BLOCK
"""Elements that one block looks through: 64 a thread."""


@kernels_for("_scale_gradient")
class ScaleGradient(KernelOp):
    """One launch over all elements."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("_scale_gradient", [*ins, *outs])
        size = outs[0].size
        if size == 0:
            return ()
        args = (*map(pointer, (*ins, *outs)), int64(size), int32(p.inverse))
        return (Launch("scale_gradient_forward_float32", flat_grid(size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_find_nonfinite")
class FindNonfinite(KernelOp):
    """A part a block, then all parts in one block."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", align(4 * _parts(ins[0].size)))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("_find_nonfinite", [*ins, *outs])
        size = ins[0].size
        parts = _parts(size)
        found = pointer(ins[1]) if p.goes_on else address(0)
        combine = Launch("find_nonfinite_forward_combine", (1, 1, 1), (BLOCK, 1, 1),
                         (address(work), found, pointer(outs[0]), int64(parts)))
        if parts == 0:
            return (combine,)
        args = (pointer(ins[0]), address(work), int64(size), int64(PART))
        return Launch("find_nonfinite_forward_parts", (min(parts, MAX_BLOCKS), 1, 1), (BLOCK, 1, 1), args), combine


def _parts(size: int) -> int:
    return -(-size // PART)


@kernels_for("_check_finite")
class CheckFinite(KernelOp):
    """One thread: the state, whatever it was before, from what was found."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("_check_finite", [*ins, *outs])
        args = (pointer(outs[0]), pointer(ins[1]), pointer(ins[2]), int32(p.scaled))
        return (Launch("check_finite_forward_float32", (1, 1, 1), (1, 1, 1), args),)
