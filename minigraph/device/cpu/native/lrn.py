"""Local response normalisation by the kernels of kernels/cpu/lrn.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .call import NativeCall, NativeOp, Operand, Types, float32, int64, native_for, pointer
from .conv import SCRATCH_FLOATS
from .layout import BLOCKED, LANES, Layouts, alike, blocks

PLAIN_SLOWDOWN = 1.9
"""How many times longer plain tensors take, of which 16 pixels a channel are read at a time (measured: 1.2 to 2.4)."""
MOST_PLACES = SCRATCH_FLOATS // (2 * LANES)
"""Channels of a pixel, and of half a window on either side, of which two arrays for a tile fit a thread's scratch."""


@native_for("LRN", "_lrn_backward")
class Lrn(NativeOp):
    """All operands in one layout."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        channels = ins[0].shape[1]
        found = alike(*ins, *outs) if blocks(channels) * LANES + 2 * _reach(p, channels) <= MOST_PLACES else ()
        return [Layouts((layout,) * len(ins), (layout,) * len(outs), 1.0 if layout == BLOCKED else PLAIN_SLOWDOWN)
                for layout in found]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        images, channels, *spatial = ins[0].shape
        shape = int64(images, channels, prod(spatial), ins[0].layout == BLOCKED, _reach(p, channels))
        constants = map(float32, (p.alpha / p.nsize, p.knorm, p.beta))
        kernel = "lrn_forward" if len(ins) == 1 else "lrn_backward"
        return [NativeCall(kernel, (*map(pointer, (*ins, *outs)), shape, *constants))]


def _reach(p: Any, channels: int) -> int:
    """Channels of a window on either side of its own, as far as there are any."""
    return min(p.nsize // 2, channels)
