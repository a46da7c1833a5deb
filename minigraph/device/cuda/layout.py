"""CUDA forms of the conversions between layouts; kernels/layout.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


def _launch(kernel: str, data: Operand, out: Operand, channels: int, pixels: int) -> Sequence[Launch]:
    require_float32(kernel, (data, out))
    if not out.size:
        return ()
    args = (pointer(data), pointer(out), int64(out.size), int64(channels), int64(pixels))
    return (Launch(kernel, flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_to_blocked")
class ToBlocked(KernelOp):
    """A thread an element of the blocks."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        shape = ins[0].shape
        return _launch("layout_to_blocked", ins[0], outs[0], shape[1], prod(shape[2:]))


@kernels_for("_to_plain")
class ToPlain(KernelOp):
    """A thread an element of the plain tensor."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        shape = outs[0].shape
        return _launch("layout_to_plain", ins[0], outs[0], shape[1], prod(shape[2:]))
