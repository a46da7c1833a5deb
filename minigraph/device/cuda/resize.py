"""The CUDA form of the weights of a resized axis; kernels/resize.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32

KINDS = ("average", "centres", "corners")
"""In the order of ResizeKind in kernels/resize.cu."""


@kernels_for("_resize_weights")
class ResizeWeights(KernelOp):
    """A thread for each weight."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_resize_weights", outs)
        args = (pointer(outs[0]), int64(p.length), int64(p.count), int32(KINDS.index(p.kind)))
        return (Launch("resize_weights_float32", flat_grid(outs[0].size), (BLOCK, 1, 1), args),)
