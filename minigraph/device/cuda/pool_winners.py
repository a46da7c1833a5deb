"""Windowed maxima by their winners on a GPU: the launches of kernels/pool.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .bits import require_bytes
from .launch import KernelOp, Launch, Operand, kernels_for
from .operands import require_float32
from .pool import each_element, windows_of

Operands = Sequence[Operand]


@kernels_for("_pooling_winners")
class PoolingWinnersKernels(KernelOp):
    """A thread an output."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_pooling_winners", ins)
        (data, _), (winners,) = ins, outs
        require_bytes("_pooling_winners", winners)
        if not winners.size:
            return []
        windows = windows_of("_pooling_winners", p, data.shape, winners.shape)
        return each_element("pooling_winners", (*ins, winners), windows, winners.size)


@kernels_for("_pooling_with_winners")
class PoolingWithWinnersKernels(KernelOp):
    """A thread an output."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        (data,), (out, winners) = ins, outs
        require_float32("_pooling_with_winners", (data, out))
        require_bytes("_pooling_with_winners", winners)
        if not out.size:
            return []
        windows = windows_of("_pooling_with_winners", p, data.shape, out.shape)
        return each_element("pooling_forward_max_winners", (data, out, winners), windows, out.size)


@kernels_for("_pooling_by_winners")
class PoolingByWinnersKernels(KernelOp):
    """A thread an input."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        (grad, winners), (out,) = ins, outs
        require_float32("_pooling_by_winners", (grad, out))
        require_bytes("_pooling_by_winners", winners)
        if not out.size:
            return []
        windows = windows_of("_pooling_by_winners", p, out.shape, grad.shape)
        return each_element("pooling_by_winners", (grad, winners, out), windows, out.size)
