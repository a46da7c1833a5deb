"""Layer normalisation over the last axis by the kernels of kernels/cpu/layer_norm.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm, Shape
from ....ops.channels import channel_layout
from ....ops.chunks import chunk_rows
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, float64, int64, native_for, pointer
from .layout import Layouts

GROUP = 64
"""Rows of a segment, over which the vectors' gradients are summed at first."""
Operands = Sequence[Operand]


class LastAxis(NativeOp):
    """Base: plain operands, normalised along the last axis."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        shape = ins[0].shape
        if p.axis % len(shape) != len(shape) - 1 or not shape[-1]:
            return ()
        return (Layouts.plain(len(ins), len(outs)),)


def _cuts(p: Any, shape: Shape) -> tuple[int, int, int, int]:
    """(rows, width, rows of a chunk of the batch, rows of a segment)."""
    batch, before, width, _ = channel_layout(p.axis, shape)
    chunk = max(1, chunk_rows(before * width * 4) * before)
    return batch * before, width, chunk, min(GROUP, chunk)


@native_for("LayerNorm")
class LayerNorm(LastAxis):
    """Row by row."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        rows, width, *_ = _cuts(p, ins[0].shape)
        args = (*map(pointer, ins), *map(pointer, outs), int64(rows, width), float64(p.eps))
        return [NativeCall("layer_norm_forward", args)]


@native_for("_layernorm_backward")
class LayerNormBackward(LastAxis):
    """Row by row, with the terms of the vectors' gradients by segments of rows, which are summed after it."""

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        rows, width, chunk, group = _cuts(p, ins[1].shape)
        segments = -(-rows // chunk) * -(-chunk // group)
        return (Algorithm(f"{PREFIX}direct", 8 * segments * width, "native"),)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        cuts = int64(*_cuts(p, ins[1].shape))
        terms = (*map(pointer, ins), pointer(outs[0]), address(work), cuts)
        sums = (address(work), pointer(outs[1]), pointer(outs[2]), cuts)
        return [NativeCall("layer_norm_backward", terms), NativeCall("layer_norm_sums", sums)]
