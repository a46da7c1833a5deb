"""Layer normalisation on a GPU: the launches of kernels/layer_norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, Shape, TensorType, align
from ...ops.channels import channel_layout
from .channels import THREADS as CHANNEL_THREADS
from .channels import partition, span_grid
from .launch import (
    BLOCK,
    MAX_BLOCKS,
    KernelOp,
    Launch,
    Operand,
    address,
    flat_grid,
    float32,
    kernels_for,
    pointer,
)
from .operands import require_float32

Operands = Sequence[Operand]
Types = Sequence[TensorType]
INTERLEAVED = 32
"""Rows that interleave from which neighbouring threads take neighbouring rows: a warp then reads whole lines."""
ROW_BLOCKS = 16 * MAX_BLOCKS
"""Blocks of a launch with a block a row; more rows than that share them."""
Arg = tuple[str, Any]


def _rows(axis: int, shape: Shape) -> Arg:
    """The kernel argument `Rows`."""
    batch, before, features, after = channel_layout(axis, shape)
    return "3q", (batch * before * after, features, after)


def _per_row(kernel: str, operands: Sequence[Arg], axis: int, shape: Shape) -> Launch:
    """A launch with a block a row, or a thread a row where many rows interleave."""
    form, (rows, features, after) = _rows(axis, shape)
    args = (*operands, (form, (rows, features, after)))
    if after >= INTERLEAVED:
        return Launch(f"{kernel}_columns", flat_grid(rows), (BLOCK, 1, 1), args)
    threads = next(t for t in (32, 64, 128, 256, 512) if t == 512 or 8 * t >= features)
    return Launch(f"{kernel}_rows", (min(rows, ROW_BLOCKS), 1, 1), (threads, 1, 1), args)


@kernels_for("LayerNorm")
class LayerNormKernels(KernelOp):
    """One launch."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("LayerNorm", (*ins, *outs))
        if not outs[0].size:
            return []
        operands = (*map(pointer, (*ins, *outs)), float32(p.eps))
        return [_per_row("layernorm_forward_inplace", operands, p.axis, ins[0].shape)]


@kernels_for("_layernorm_backward")
class LayerNormBackwardKernels(KernelOp):
    """Sums of the rows, gradients of gamma and beta by parts of the rows, and last the data gradient."""

    @staticmethod
    def _sums_bytes(rows: int) -> int:
        return align(3 * 4 * rows)

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        sums_bytes = self._sums_bytes(prod(ins[3].shape))
        return Algorithm("kernel", sums_bytes + partition(p.axis, ins[1].shape).partial_bytes(2))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_layernorm_backward", (*ins, *outs))
        grad, data, gamma, mean, std = map(pointer, ins)
        shape, c = ins[1].shape, partition(p.axis, ins[1].shape)
        if not c.channels:
            return []
        sums, parts = address(work), address(work + self._sums_bytes(ins[3].size))
        params = Launch("layernorm_backward_params", flat_grid(c.channels), (BLOCK, 1, 1),
                        (parts, pointer(outs[1]), pointer(outs[2]), c.argument()))
        if not outs[0].size:
            return [params]
        partials = Launch("layernorm_backward_partials", (c.blocks, 1, 1), (CHANNEL_THREADS, 1, 1),
                          (grad, data, mean, std, sums, parts, c.argument()))
        data_grad = Launch("layernorm_backward_data_inplace", span_grid(outs[0].size), (BLOCK, 1, 1),
                           (grad, data, gamma, mean, std, sums, pointer(outs[0]), _rows(p.axis, shape)))
        row_sums = (grad, data, gamma, mean, std, sums)
        return [_per_row("layernorm_backward_sums", row_sums, p.axis, shape), partials, params, data_grad]
