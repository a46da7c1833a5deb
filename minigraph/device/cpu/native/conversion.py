"""Conversions between layouts by the kernels of kernels/cpu/layout.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....base import Shape
from .call import NativeCall, NativeOp, Operand, Types, int64, native_for, pointer
from .layout import BLOCKED, PLAIN, Layouts


class Conversion(NativeOp):
    """Base: in plans of a tensor in two layouts, `planned`; alone, of two tensors as they lie in memory, both plain."""

    kernel: str
    planned: Layouts

    def plain(self, ins: Sequence[Operand], outs: Sequence[Operand]) -> Shape:
        """The shape of the side in row-major order."""
        raise NotImplementedError

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (self.planned if ins[0].shape == outs[0].shape else Layouts.plain(1, 1),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        images, channels, *spatial = self.plain(ins, outs)
        args = (pointer(ins[0]), pointer(outs[0]), int64(images, channels, prod(spatial)))
        return [NativeCall(self.kernel, args)]


@native_for("_to_blocked")
class ToBlocked(Conversion):
    """Row-major order to blocks."""

    kernel = "layout_to_blocked"
    planned = Layouts((PLAIN,), (BLOCKED,))

    def plain(self, ins: Sequence[Operand], outs: Sequence[Operand]) -> Shape:
        return ins[0].shape


@native_for("_to_plain")
class ToPlain(Conversion):
    """Blocks to row-major order."""

    kernel = "layout_to_plain"
    planned = Layouts((BLOCKED,), (PLAIN,))

    def plain(self, ins: Sequence[Operand], outs: Sequence[Operand]) -> Shape:
        return outs[0].shape
