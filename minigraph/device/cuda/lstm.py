"""CUDA forms of the cell of a long short-term memory; kernels/lstm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


@kernels_for("lstm_cell")
class LstmCellKernels(KernelOp):
    """One launch for all elements."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("lstm_cell", (*ins, *outs))
        rows, size = ins[2].shape
        if not rows * size:
            return ()
        args = (*map(pointer, (*ins, *outs)), int64(rows), int64(size))
        return (Launch("lstm_cell_forward_float32", flat_grid(rows * size), (BLOCK, 1, 1), args),)


@kernels_for("_lstm_cell_backward")
class LstmCellBackwardKernels(KernelOp):
    """One launch for all elements."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("_lstm_cell_backward", (*ins, *outs))
        rows, size = ins[0].shape
        if not rows * size:
            return ()
        arriving = pointer(ins[1]) if p.with_cell else address(0)
        args = (pointer(ins[0]), arriving, *map(pointer, (*ins[-3:], *outs)), int64(rows), int64(size))
        return (Launch("lstm_cell_backward_float32", flat_grid(rows * size), (BLOCK, 1, 1), args),)
