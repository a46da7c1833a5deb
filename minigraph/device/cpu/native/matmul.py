"""Matrix products by the kernels of kernels/cpu/matmul.cpp: dot, batch_dot and their gradients."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....base import Shape
from .call import NativeCall, NativeOp, Operand, Types, address, int64, native_for
from .layout import Layouts


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices in memory, `next` elements apart, with the distances of rows and of columns."""

    address: int
    rows: int
    columns: int
    row: int
    column: int = 1
    batch: int = 1
    next: int = 0

    @classmethod
    def of(cls, operand: Operand, rows: int, columns: int, batch: int = 1) -> Matrix:
        """The operand's elements, row by row."""
        return cls(operand.address, rows, columns, columns, 1, batch, rows * columns)

    @property
    def transposed(self) -> Matrix:
        """The same bytes, columns as rows."""
        return replace(self, rows=self.columns, columns=self.rows, row=self.column, column=self.row)

    def part(self, start: int, stop: int) -> Matrix:
        """The rows from `start` to `stop`; float32."""
        return replace(self, address=self.address + 4 * start * self.row, rows=stop - start)


def product(a: Matrix, b: Matrix, out: Matrix, bias: int = 0, add: bool = False,
            kernel: str = "product") -> NativeCall:
    """The call for out = a b, with the bias at an address, or what out held, added."""
    if out.column != 1:
        return product(b.transposed, a.transposed, out.transposed, bias, add, kernel)
    return NativeCall(kernel, (
        address(a.address), address(b.address), address(bias), address(out.address),
        int64(a.row, a.column, a.next, b.row, b.column, b.next, out.row, out.next),
        int64(a.batch, out.rows, out.columns, a.columns, add)))


class _Plain(NativeOp):
    """An op of plain operands only."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts.plain(len(ins), len(outs))]


def _left(p: Any, operand: Operand) -> Matrix:
    s = operand.shape
    if p.transpose_a:
        return Matrix.of(operand, s[0], prod(s[1:])).transposed
    return Matrix.of(operand, prod(s[:-1]), s[-1])


def _right(p: Any, operand: Operand) -> Matrix:
    s = operand.shape
    if p.transpose_b:
        return Matrix.of(operand, prod(s[:-1]), s[-1]).transposed
    return Matrix.of(operand, s[0], prod(s[1:]))


@native_for("dot")
class Dot(_Plain):
    """lhs rhs."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        a, b = _left(p, ins[0]), _right(p, ins[1])
        return [product(a, b, Matrix.of(outs[0], a.rows, b.columns))]


@native_for("_dot_backward_lhs")
class DotBackwardLhs(_Plain):
    """grad rhsᵀ, as lhs lies."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        b, out = _right(p, ins[1]), _left(p, outs[0])
        return [product(Matrix.of(ins[0], out.rows, b.columns), b.transposed, out)]


@native_for("_dot_backward_rhs")
class DotBackwardRhs(_Plain):
    """lhsᵀ grad, as rhs lies."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        a, out = _left(p, ins[1]), _right(p, outs[0])
        return [product(a.transposed, Matrix.of(ins[0], a.rows, out.columns), out)]


def _batched(operand: Operand) -> Matrix:
    shape: Shape = operand.shape
    return Matrix.of(operand, shape[-2], shape[-1], prod(shape[:-2]))


@native_for("batch_dot")
class BatchDot(_Plain):
    """lhs rhs, matrix by matrix; its gradients are products of the same kind."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        a, b = _batched(ins[0]), _batched(ins[1])
        return [product(a.transposed if p.transpose_a else a, b.transposed if p.transpose_b else b, _batched(outs[0]))]
