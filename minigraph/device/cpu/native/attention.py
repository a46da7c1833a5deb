"""Attention and its gradient by the kernels of kernels/cpu/attention.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.attention import Sizes
from .call import NativeCall, NativeOp, Operand, Types, float32, int64, native_for, pointer
from .layout import Layouts

MOST_KEYS = 12288
"""For more keys a tile of a few rows would not fit into a thread's scratch."""


class _Attention(NativeOp):
    """What both share. A mask, and lengths, which must be looked at before they are used, are left to NumPy."""

    kernel: str
    first: int
    """Position of `queries` among the inputs."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        fits = 0 < ins[self.first + 1].shape[1] <= MOST_KEYS
        return [Layouts.plain(len(ins), len(outs))] if fits and not p.use_mask and not p.use_length else []

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        query, key, value = ins[self.first:self.first + 3]
        s = Sizes.of(p, query.shape, value.shape)
        scale = p.scale if p.scale is not None else s.depth ** -0.5
        sizes = int64(s.batch, s.heads, s.queries, key.shape[1], s.depth, s.width, p.causal)
        return [NativeCall(self.kernel, (*map(pointer, (*ins, *outs)), sizes, float32(scale)))]


@native_for("scaled_dot_product_attention")
class Attention(_Attention):
    """The output and the logarithms."""

    kernel, first = "scaled_dot_product_attention_forward", 0


@native_for("_scaled_dot_product_attention_backward")
class AttentionBackward(_Attention):
    """The gradients of queries, keys and values."""

    kernel, first = "scaled_dot_product_attention_backward", 1
