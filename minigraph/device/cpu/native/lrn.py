"""Local response normalisation by the kernels of kernels/cpu/lrn.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .call import NativeCall, NativeOp, Operand, Types, float32, int64, native_for, pointer
from .layout import BLOCKED, Layouts, alike

BLOCKED_SLOWDOWN = 1.4
"""How many times longer blocked tensors take, whose pixels are turned round (measured: 1.3 to 1.5)."""
MOST_CHANNELS = 3072
"""Of more channels the pixels of a tile would not fit into a thread's scratch."""


@native_for("LRN", "_lrn_backward")
class Lrn(NativeOp):
    """All operands in one layout."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        found = alike(*ins, *outs) if ins[0].shape[1] <= MOST_CHANNELS else ()
        return [Layouts((layout,) * len(ins), (layout,) * len(outs), BLOCKED_SLOWDOWN if layout == BLOCKED else 1.0)
                for layout in reversed([*found])]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        images, channels, *spatial = ins[0].shape
        shape = int64(images, channels, prod(spatial), ins[0].layout == BLOCKED, p.nsize // 2)
        constants = map(float32, (p.alpha / p.nsize, p.knorm, p.beta))
        kernel = "lrn_forward" if len(ins) == 1 else "lrn_backward"
        return [NativeCall(kernel, (*map(pointer, (*ins, *outs)), shape, *constants))]
