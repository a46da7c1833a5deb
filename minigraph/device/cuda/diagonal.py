"""CUDA forms of diag and its gradient; kernels/diagonal.cu, after zeros of kernels/basic.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.diagonal import DiagParams, matrix_axes
from ..strides import strides
from .basic import fill
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


def _diagonals(p: Any, shape: Sequence[int]) -> tuple[int, list[int]]:
    """(offset of the first element, strides of the diagonals) of a tensor seen along its diagonals."""
    steps, axes = strides(shape), matrix_axes(p, len(shape))
    row, column = steps[axes[0]], steps[axes[1]]
    begin = column * p.k if p.k > 0 else -row * p.k
    return begin, [*(s for i, s in enumerate(steps) if i not in axes), row + column]


def _put(grad: Operand, out: Operand, p: Any) -> Sequence[Launch]:
    """Launches that write diagonals among zeros."""
    begin, steps = _diagonals(p, out.shape)
    args = (pointer(grad), pointer(out), int64(grad.size), int64(begin), dims(grad.shape), dims(steps, 0))
    return (*fill(out, 0), Launch("diagonal_backward_strided", flat_grid(grad.size), (BLOCK, 1, 1), args))


@kernels_for("diag")
class Diag(KernelOp):
    """The diagonals of data, or a matrix with data as one."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("diag", [*ins, *outs])
        (data,), (out,) = ins, outs
        if out.size == 0 or data.size == 0:
            return fill(out, 0)
        if len(data.shape) == 1:
            return _put(data, out, DiagParams(p.k))
        begin, steps = _diagonals(p, data.shape)
        args = (pointer(data), pointer(out), int64(out.size), int64(begin), dims(out.shape), dims(steps, 0))
        return (Launch("diagonal_forward_strided", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_diag_backward")
class DiagBackward(KernelOp):
    """grad on the diagonals, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_diag_backward", [ins[0], *outs])
        return _put(ins[0], outs[0], p) if ins[0].size else fill(outs[0], 0)
