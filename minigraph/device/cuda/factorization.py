"""CUDA forms of triangles, triangular equations, Cholesky factors and elimination; kernels/factorization.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, TensorType
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32, single


def _launch(kernel: str, args: Sequence[tuple[str, Any]], threads: int) -> Sequence[Launch]:
    return (Launch(kernel, flat_grid(threads), (BLOCK, 1, 1), tuple(args)),) if threads else ()


def _count(operand: Operand) -> int:
    return prod(operand.shape[:-2])


@kernels_for("_triangle")
class Triangle(KernelOp):
    """A thread for each number."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_triangle", [*ins, *outs])
        args = (pointer(ins[0]), pointer(outs[0]), int64(outs[0].size), int64(outs[0].shape[-1]), int32(p.lower),
                single(p.diagonal))
        return _launch("triangle_float32", args, outs[0].size)


@kernels_for("_solve_triangular")
class SolveTriangular(KernelOp):
    """A thread for each column of the right-hand side."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_solve_triangular", [*ins, *outs])
        count, (size, columns) = _count(outs[0]), outs[0].shape[-2:]
        args = (*map(pointer, (*ins, outs[0])), int64(count), int64(size), int64(columns), int32(p.lower),
                int32(p.transpose))
        return _launch("solve_triangular_float32", args, count * columns)


@kernels_for("_linalg_potrf")
class Cholesky(KernelOp):
    """A thread for each matrix."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_linalg_potrf", [*ins, *outs])
        count = _count(outs[0])
        args = (pointer(ins[0]), pointer(outs[0]), int64(count), int64(outs[0].shape[-1]))
        return _launch("cholesky_float32", args, count)


@kernels_for("_eliminate")
class Eliminate(KernelOp):
    """A thread for each matrix, with a copy of it."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("rows", ins[0].nbytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_eliminate", [*ins, *outs])
        count = _count(ins[0])
        args = (*map(pointer, (ins[0], *outs)), address(work), int64(count), int64(ins[0].shape[-1]))
        return _launch("eliminate_float32", args, count)
