"""Rows by number, by the kernels of kernels/cpu/indexing.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.softmax import layout
from .call import NativeCall, NativeOp, Operand, Types, int64, native_for, pointer
from .layout import Layouts
from .refusal import Refusal

Operands = Sequence[Operand]


class RowsOp(NativeOp):
    """Base: plain operands."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), len(outs)),)


def _call(kernel: str, rows: Operand, axis: int, numbers: Operand, operands: Operands, where: str) -> NativeCall:
    outer, bound, inner = layout(rows.shape, axis)
    refusal = Refusal(where, numbers.shape, bound)
    args = (*map(pointer, operands), refusal.argument(), int64(outer, bound, inner, numbers.size))
    return NativeCall(kernel, args, refusal)


@native_for("Embedding")
class Embedding(RowsOp):
    """The weight's row of each number."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        numbers, weight = ins
        return [_call("take_forward", weight, 0, numbers, (weight, numbers, outs[0]), "Embedding: index")]


@native_for("take")
class Take(RowsOp):
    """The slice of each number along an axis."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        data, numbers = ins
        return [_call("take_forward", data, p.axis, numbers, (data, numbers, outs[0]), "take: index")]


@native_for("_take_backward")
class TakeBackward(RowsOp):
    """The gradient added to the slice of each number."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        grad, numbers, _ = ins
        return [_call("take_backward", outs[0], p.axis, numbers, (grad, numbers, outs[0]), "take: index")]
