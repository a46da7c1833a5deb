"""Attention and its gradient by the kernels of kernels/cpu/attention.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.attention import Sizes
from ...strides import broadcast_strides
from .call import NativeCall, NativeOp, Operand, Types, address, float32, int64, native_for, pointer
from .layout import Layouts
from .refusal import Refusal

NULL = address(0)
MOST_KEYS = 12288
"""For more keys a tile of a few rows would not fit into a thread's scratch."""


class _Attention(NativeOp):
    """What both share."""

    kernel: str
    first: int
    """Position of `queries` among the inputs."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        fits = 0 < ins[self.first + 1].shape[1] <= MOST_KEYS
        return [Layouts.plain(len(ins), len(outs))] if fits else []

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        query, key, value = ins[self.first:self.first + 3]
        s = Sizes.of(p, query.shape, value.shape)
        scale = p.scale if p.scale is not None else s.depth ** -0.5
        count = len(ins) - p.use_mask - p.use_length
        hidden, refusal = self._hidden(p, s, ins[count:])
        sizes = int64(s.batch, s.heads, s.queries, key.shape[1], s.depth, s.width, p.causal)
        args = (*map(pointer, (*ins[:count], *outs)), *hidden, sizes, float32(scale))
        return [NativeCall(self.kernel, args, refusal)]

    def _hidden(self, p: Any, s: Sizes, extra: Sequence[Operand]) -> tuple[tuple[Any, ...], Refusal | None]:
        """The kernels' struct Hidden, and what a length may be refused for."""
        refusal = Refusal("scaled_dot_product_attention: length", extra[-1].shape, s.keys + 1) if p.use_length else None
        steps = broadcast_strides(extra[0].shape, (s.batch, s.heads, s.queries, s.keys))[:3] if p.use_mask else (0,) * 3
        return (pointer(extra[0]) if p.use_mask else NULL, pointer(extra[-1]) if p.use_length else NULL,
                refusal.argument() if refusal is not None else NULL, int64(*steps)), refusal


@native_for("scaled_dot_product_attention")
class Attention(_Attention):
    """The output and the logarithms."""

    kernel, first = "scaled_dot_product_attention_forward", 0


@native_for("_scaled_dot_product_attention_backward")
class AttentionBackward(_Attention):
    """The gradients of queries, keys and values."""

    kernel, first = "scaled_dot_product_attention_backward", 1
