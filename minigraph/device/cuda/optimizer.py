"""CUDA forms of the weight updates and of the clip of the global norm; kernels/optimizer.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from ...base import Algorithm, TensorType, align
from .launch import (
    BLOCK,
    MAX_BLOCKS,
    KernelOp,
    Launch,
    Operand,
    address,
    flat_grid,
    int32,
    int64,
    kernels_for,
    pointer,
)
from .operands import require_float32, single
from .pointwise import PER_THREAD

PART = 64 * BLOCK
"""Elements of which one block adds the squares: 64 a thread."""
NUMBERS = 64
"""Addresses that one launch of global_norm_scale_forward_add takes: struct Numbers in the kernel file."""


class Update(KernelOp):
    """Weight, gradient and states, then the control buffer and, with `has_scale` and `has_unscale`, factors of the
    gradient."""

    op: ClassVar[str]
    states: ClassVar[int] = 0

    def scalars(self, p: Any) -> Sequence[tuple[str, Any]]:
        """Kernel arguments behind the parameter's index."""
        return ()

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(f"_{self.op}", [*ins, *outs])
        tensors, control = ins[:2 + self.states], ins[2 + self.states]
        size = outs[0].size
        if size == 0:
            return ()
        scale = pointer(ins[3 + self.states]) if p.has_scale else address(0)
        unscale = pointer(ins[-1]) if p.has_unscale else address(0)
        args = (*map(pointer, tensors), pointer(control), scale, unscale, int64(size), int64(p.index),
                *self.scalars(p))
        return (Launch(f"{self.op}_forward_float32", flat_grid(size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_sgd_update")
class SgdUpdate(Update):
    """SGD."""

    op = "sgd_update"


class MomentumUpdate(Update):
    """Base of the updates with momentum."""

    states = 1

    def scalars(self, p: Any) -> Sequence[tuple[str, Any]]:
        return (single(p.momentum),)


@kernels_for("_sgd_mom_update")
class SgdMomUpdate(MomentumUpdate):
    """SGD with momentum."""

    op = "sgd_mom_update"


@kernels_for("_nag_update")
class NagUpdate(MomentumUpdate):
    """Nesterov's method."""

    op = "nag_update"


@kernels_for("_adam_update")
class AdamUpdate(Update):
    """Adam."""

    op = "adam_update"
    states = 2

    def scalars(self, p: Any) -> Sequence[tuple[str, Any]]:
        return tuple(map(single, (p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.epsilon)))


@kernels_for("_sum_squares")
class SumSquares(KernelOp):
    """The sum of squares: a part a block, then all parts in one block."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", align(4 * _parts(prod(ins[0].shape))))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_sum_squares", [*ins, *outs])
        size = ins[0].size
        parts = _parts(size)
        combine = Launch("sum_squares_forward_combine", (1, 1, 1), (BLOCK, 1, 1),
                         (address(work), pointer(outs[0]), int64(parts)))
        if parts == 0:
            return (combine,)
        control = pointer(ins[1]) if p.scaled else address(0)
        args = (pointer(ins[0]), control, address(work), int64(size), int64(PART))
        grid = min(parts, MAX_BLOCKS), 1, 1
        return Launch("sum_squares_forward_parts", grid, (BLOCK, 1, 1), args), combine


def _parts(size: int) -> int:
    return -(-size // PART)


@kernels_for("_global_norm_scale")
class GlobalNormScale(KernelOp):
    """The sums of squares, added in ascending order in float64, and the scale made from their total."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("numbers", align(8))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_global_norm_scale", [*ins, *outs])
        *sums, control = ins
        launches = []
        for start in range(0, max(len(sums), 1), NUMBERS):
            group = [s.address for s in sums[start:start + NUMBERS]]
            padded = (*group, *[0] * (NUMBERS - len(group)))
            args = ((f"{NUMBERS}P", padded), int32(len(group)), int32(start == 0), address(work))
            launches.append(Launch("global_norm_scale_forward_add", (1, 1, 1), (1, 1, 1), args))
        last = (address(work), pointer(control), pointer(outs[0]))
        return [*launches, Launch("global_norm_scale_forward_float32", (1, 1, 1), (1, 1, 1), last)]
