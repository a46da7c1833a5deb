"""The cell of a long short-term memory by the kernels of kernels/cpu/lstm.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .call import NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .layout import Layouts


class _Cell(NativeOp):
    """Plain operands only; states tell the sizes."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts.plain(len(ins), len(outs))]


@native_for("lstm_cell")
class LstmCell(_Cell):
    """The new output, cell and gates."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall("lstm_cell_forward", (*map(pointer, (*ins, *outs)), int64(*ins[2].shape)))]


@native_for("_lstm_cell_backward")
class LstmCellBackward(_Cell):
    """The gradients of the gates and of the old cell."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        arriving = pointer(ins[1]) if p.with_cell else address(0)
        return [NativeCall("lstm_cell_backward", (pointer(ins[0]), arriving, *map(pointer, (*ins[-3:], *outs)),
                                                  int64(*ins[0].shape)))]
