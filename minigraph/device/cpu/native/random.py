"""Dropout by the kernel of kernels/cpu/random.cpp, with the bits of ops/philox.py."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....base import Algorithm
from ....ops.random import block_rows, keep_threshold
from .call import NativeCall, NativeOp, Operand, Types, float32, int64, native_for, pointer
from .layout import Layouts


@native_for("_dropout", "_dropout_backward")
class Dropout(NativeOp):
    """Each element with a draw of its own times its factor; draws that are shared along axes are left to NumPy."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return () if p.axes else (Layouts.plain(2, 1),)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        return [replace(each, chunk_rows=block_rows(ins[0].shape)) for each in super().algorithms(p, ins, outs)]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, control = ins
        args = (pointer(data), pointer(control), pointer(outs[0]),
                int64(data.size, p.ordinal, p.first // 4, keep_threshold(p.p)), float32(1 / (1 - p.p)), ("4x", ()))
        return [NativeCall("dropout", args)]
