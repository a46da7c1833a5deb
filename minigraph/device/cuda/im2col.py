"""CUDA forms of im2col and col2im; kernels/windows.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.im2col import WindowParams, window_counts, window_sizes
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, kernels_for, pointer
from .operands import require_float32


def _windows(p: WindowParams, images: Operand) -> tuple[str, Any]:
    """The kernel argument `WindowGrid`."""
    spatial = images.shape[2:]
    stride, dilate, pad = window_sizes(p)
    fill = 3 - len(spatial)

    def three(values: Sequence[Any], rest: int) -> tuple[int, ...]:
        return (rest,) * fill + tuple(values)
    return "20q", (*images.shape[:2], *three(spatial, 1), *three(window_counts(p, spatial), 1), *three(p.kernel, 1),
                   *three(stride, 1), *three(dilate, 1), *three(pad, 0))


@kernels_for("im2col")
class Im2col(KernelOp):
    """A thread for each number of the columns."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("im2col", [*ins, *outs])
        args = (pointer(ins[0]), pointer(outs[0]), _windows(p, ins[0]))
        return (Launch("im2col_float32", flat_grid(outs[0].size), (BLOCK, 1, 1), args),) if outs[0].size else ()


@kernels_for("col2im")
class Col2im(KernelOp):
    """A thread for each pixel."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("col2im", [*ins, *outs])
        args = (pointer(ins[0]), pointer(outs[0]), _windows(p, outs[0]))
        return (Launch("col2im_float32", flat_grid(outs[0].size), (BLOCK, 1, 1), args),) if outs[0].size else ()
