"""CUDA forms of Correlation and its gradient; kernels/windows.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int32, kernels_for, pointer
from .operands import require_float32


def _correlate(p: Any, data: Operand, out: Operand) -> tuple[str, Any]:
    """The kernel argument `Correlate`."""
    return "12q2i", (*data.shape, *out.shape[2:], p.kernel_size, p.max_displacement, p.stride1, p.stride2, p.pad_size,
                     p.steps, int(p.is_multiply), 0)


@kernels_for("Correlation")
class Correlation(KernelOp):
    """A thread for each number of the output."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("Correlation", [*ins, *outs])
        if not outs[0].size:
            return ()
        args = (*map(pointer, (*ins, outs[0])), _correlate(p, ins[0], outs[0]))
        return (Launch("correlation_forward_float32", flat_grid(outs[0].size), (BLOCK, 1, 1), args),)


@kernels_for("_correlation_backward")
class CorrelationBackward(KernelOp):
    """A thread for each number of each map."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_correlation_backward", [*ins, *outs])
        grad, first, second = ins
        if not first.size:
            return ()
        sizes = _correlate(p, first, grad)
        return [Launch("correlation_backward_float32", flat_grid(first.size), (BLOCK, 1, 1),
                       (*map(pointer, (grad, own, other, out)), int32(k), sizes))
                for k, (own, other, out) in enumerate(((first, second, outs[0]), (second, first, outs[1])))]
