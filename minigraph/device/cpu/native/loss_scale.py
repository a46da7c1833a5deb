"""The loss scale by the kernels of kernels/cpu/loss_scale.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .layout import PLAIN, Layouts, alike

PART = 1 << 14
"""Elements of a tensor that one number of the workspace is for."""


@native_for("_scale_gradient")
class ScaleGradient(NativeOp):
    """All stored elements, in any layout: padding stays zero."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, PLAIN), (layout,)) for layout in alike(ins[0], outs[0])]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall("scale_gradient", (*map(pointer, (*ins, *outs)), int64(outs[0].size, p.inverse)))]


@native_for("_find_nonfinite")
class FindNonfinite(NativeOp):
    """Blocks, and then what was found in any of them."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), 1),)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        return (Algorithm(f"{PREFIX}direct", 4 * -(-ins[0].size // PART), "native"),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        found = pointer(ins[1]) if p.goes_on else address(0)
        args = pointer(ins[0]), found, pointer(outs[0]), address(work), int64(ins[0].size)
        return [NativeCall("find_nonfinite", args)]


@native_for("_check_finite")
class CheckFinite(NativeOp):
    """One number, whatever the state was before."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), 1),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall("check_finite", (pointer(ins[1]), pointer(ins[2]), pointer(outs[0]), int64(p.scaled)))]
