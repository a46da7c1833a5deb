"""The CUDA form of cumsum; kernels/cumsum.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.softmax import layout
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


@kernels_for("_np_cumsum")
class Cumsum(KernelOp):
    """A thread for each row."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_np_cumsum", [*ins, *outs])
        data, (out,) = ins[0], outs
        if not out.size:
            return ()
        outer, length, inner = (1, data.size, 1) if p.axis is None else layout(data.shape, p.axis)
        args = (pointer(data), pointer(out), int64(outer * inner), int64(length), int64(inner))
        return (Launch("cumsum_float32", flat_grid(outer * inner), (BLOCK, 1, 1), args),)
