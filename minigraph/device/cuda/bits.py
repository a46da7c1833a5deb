"""CUDA forms of comparisons that make bits, and of gradients by bits; kernels/bits.cu."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import MXNetError
from ...ops.bits import UINT8
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import PER_THREAD, Arguments

Operands = Sequence[Operand]


def require_bytes(name: str, operand: Operand) -> None:
    """MXNetError unless an operand of operator `name` is uint8."""
    if operand.dtype != UINT8:
        raise MXNetError(f"operator {name}: its CUDA kernels take bits as uint8, got {operand.dtype} of shape "
                         f"{operand.shape}")


def define(name: str, numbers: Callable[[Any], Arguments] = lambda p: (), by_bits: bool = False) -> None:
    """Make the op `name` a launch of the kernel of that name over the elements of its first input, with scalars behind
    their number; its bits are the second input, or the output."""
    @kernels_for(name)
    class Defined(KernelOp):
        def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
            first, *others = (*ins, *outs)
            require_float32(name, [first, *others[1:]])
            require_bytes(name, others[0])
            if not first.size:
                return ()
            args = (*map(pointer, (first, *others)), int64(first.size), *numbers(p))
            grid = flat_grid(first.size, PER_THREAD if by_bits else 1)
            return (Launch(name.lstrip("_"), grid, (BLOCK, 1, 1), args),)


define("_positive_bits")
define("_within_bits", lambda p: (single(p.a_min), single(p.a_max)))
define("_relu_backward_bits", by_bits=True)
define("_slope_bits", lambda p: (single(p.slope),), by_bits=True)
