"""CUDA forms of dot and batch_dot, and of the gradients of dot; kernels/matmul.cu."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ...base import Algorithm, Shape, TensorType
from .gemm import Gemm, segment_length
from .launch import KernelOp, Launch, Operand, kernels_for, pointer
from .operands import require_float32

Steps = tuple[int, int]
"""Distances in elements of neighbours along an axis of a matrix, (along its rows or columns, along the depth)."""


@dataclass(frozen=True)
class Product:
    """C (rows, columns) = A (rows, depth) B (depth, columns), `problems` of each, packed one after the other.

    `a` and `b` are the operands' steps, with the axis that stays first; `c` those of C, (a row, a column).
    """

    rows: int
    columns: int
    depth: int
    a: Steps
    b: Steps
    c: Steps
    problems: int = 1

    @property
    def gemm(self) -> Gemm:
        """How it is spread over blocks."""
        return Gemm(self.rows, self.columns, self.depth, segment_length(self.depth),
                    self.rows * self.columns * self.problems, self.problems)

    def launches(self, a: Operand, b: Operand, out: Operand, work: int) -> Sequence[Launch]:
        """The launches of kernels/matmul.cu."""
        kernel = "matmul_forward_" + "_".join("depth" if inner == 1 else "outer" for _, inner in (self.a, self.b))
        steps = "10q", (*self.a, self.rows * self.depth, *self.b, self.depth * self.columns, *self.c,
                        self.rows * self.columns, self.depth)
        return self.gemm.launches(kernel, "matmul_combine", (pointer(a), pointer(b)), out.address, work, (steps,))


def left_steps(p: Any, rows: int, depth: int) -> Steps:
    """Steps (a row, along the depth) of a left operand."""
    return (1, rows) if p.transpose_a else (depth, 1)


def right_steps(p: Any, depth: int, columns: int) -> Steps:
    """Steps (a column, along the depth) of a right operand."""
    return (depth, 1) if p.transpose_b else (1, columns)


def _sizes(p: Any, lhs: Shape, rhs: Shape) -> tuple[int, int, int]:
    """(rows, depth, columns) of dot."""
    rows, depth = (prod(lhs[1:]), lhs[0]) if p.transpose_a else (prod(lhs[:-1]), lhs[-1])
    return rows, depth, prod(rhs[:-1]) if p.transpose_b else prod(rhs[1:])


class MatrixProduct(KernelOp):
    """Base: one product, of the first two inputs."""

    name: ClassVar[str]

    def product(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Product:
        """The product's sizes and steps, from tensors that have a shape."""
        raise NotImplementedError(self.name)

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("tiles", self.product(p, ins, outs).gemm.workspace_bytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        return self.product(p, ins, outs).launches(ins[0], ins[1], outs[0], work)


@kernels_for("dot")
class Dot(MatrixProduct):
    """rows x depth times depth x columns."""

    name = "dot"

    def product(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Product:
        rows, depth, columns = _sizes(p, ins[0].shape, ins[1].shape)
        return Product(rows, columns, depth, left_steps(p, rows, depth), right_steps(p, depth, columns), (columns, 1))


@kernels_for("_dot_backward_lhs")
class DotBackwardLhs(MatrixProduct):
    """grad (rows x columns) times rhs turned (columns x depth), written as lhs lies."""

    name = "_dot_backward_lhs"

    def product(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Product:
        rows, depth, columns = _sizes(p, outs[0].shape, ins[1].shape)
        along_column, along_depth = right_steps(p, depth, columns)
        return Product(rows, depth, columns, (columns, 1), (along_depth, along_column), left_steps(p, rows, depth))


@kernels_for("_dot_backward_rhs")
class DotBackwardRhs(MatrixProduct):
    """lhs turned (depth x rows) times grad (rows x columns), written as rhs lies."""

    name = "_dot_backward_rhs"

    def product(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Product:
        rows, depth, columns = _sizes(p, ins[1].shape, outs[0].shape)
        along_row, along_depth = left_steps(p, rows, depth)
        along_column, along_rows = right_steps(p, depth, columns)
        return Product(depth, columns, rows, (along_depth, along_row), (1, columns), (along_rows, along_column))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        return self.product(p, ins, outs).launches(ins[1], ins[0], outs[0], work)


@kernels_for("batch_dot")
class BatchDot(MatrixProduct):
    """A product for each matrix of the batch."""

    name = "batch_dot"

    def product(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Product:
        *batch, rows, columns = outs[0].shape
        depth = ins[0].shape[-2 if p.transpose_a else -1]
        return Product(rows, columns, depth, left_steps(p, rows, depth), right_steps(p, depth, columns), (columns, 1),
                       prod(batch))
