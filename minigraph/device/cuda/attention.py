"""Scaled dot product attention on a GPU: the launches of kernels/attention.cu.

A length out of range, for which the CPU raises, hides all keys below 0 and none above their number, nor if it is NaN;
with poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, MXNetError, TensorType
from ...ops.attention import AttentionParams, Sizes
from ..strides import strides
from .gemm import THREADS, TILE
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, kernels_for, pointer
from .operands import require_float32
from .rows import ids_arguments

Operands = Sequence[Operand]
Types = Sequence[TensorType]
Arg = tuple[str, Any]
MAX_TILE_BLOCKS = 1 << 20
"""Blocks of a launch with a block for each 64 rows of a head; more tiles than that share them."""
FEATURES = (64, 128, 256)
"""Most features of a head, of queries and of values, that the kernels of each variant take."""


def _sizes(s: Sizes) -> Arg:
    """The kernel argument `Sizes`."""
    return f"{len(s)}q", tuple(s)


def _rule(name: str, p: AttentionParams, s: Sizes, extra: Operands) -> Arg:
    """The kernel argument `Rule`."""
    mask, steps, length = 0, [0, 0, 0], (0, 0)
    if p.use_mask:
        require_float32(name, extra[:1])
        mask = extra[0].address
        steps = [0 if n == 1 else step for n, step in zip(extra[0].shape, strides(extra[0].shape)[:3], strict=False)]
    if p.use_length:
        (_, place), (_, kind) = ids_arguments(name, extra[-1])
        length = (place, kind)
    scale = s.depth ** -0.5 if p.scale is None else p.scale
    return "P3qP2if4x", (mask, *steps, *length, int(p.causal), float(scale))


def _variant(name: str, s: Sizes) -> int:
    for features in FEATURES:
        if max(s.depth, s.width) <= features:
            return features
    raise MXNetError(f"operator {name}: its CUDA kernels take heads of up to {FEATURES[-1]} features, got {s.depth} of "
                     f"queries and {s.width} of values; use more heads, or run this network on mx.cpu()")


def _per_tile(kernel: str, s: Sizes, length: int, args: Sequence[Arg]) -> Launch:
    """A launch with a block for each tile of `length` rows of every head."""
    tiles = s.batch * s.heads * -(-length // TILE)
    return Launch(kernel, (min(tiles, MAX_TILE_BLOCKS), 1, 1), (THREADS, 1, 1), tuple(args))


@kernels_for("scaled_dot_product_attention")
class AttentionKernels(KernelOp):
    """One launch."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        name = "scaled_dot_product_attention"
        require_float32(name, (*ins[:3], *outs))
        s = Sizes.of(p, ins[0].shape, ins[2].shape)
        if not outs[1].size:
            return []
        args = (*map(pointer, (*ins[:3], *outs)), _rule(name, p, s, ins[3:]), _sizes(s))
        return [_per_tile(f"attention_forward_{_variant(name, s)}", s, s.queries, args)]


@kernels_for("_scaled_dot_product_attention_backward")
class AttentionBackwardKernels(KernelOp):
    """A number a row, the gradients of keys and values, and last that of queries, which may lie on an input."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 4 * prod(ins[5].shape))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        name = "_scaled_dot_product_attention_backward"
        require_float32(name, (*ins[:6], *outs))
        s = Sizes.of(p, ins[1].shape, ins[3].shape)
        features, rule, sizes = _variant(name, s), _rule(name, p, s, ins[6:]), _sizes(s)
        grad, query, key, value, out, lse = ins[:6]
        saved = ("6P", (*(t.address for t in (grad, query, key, value, lse)), work))
        launches = []
        if lse.size:
            launches.append(Launch("attention_backward_delta", flat_grid(32 * lse.size), (BLOCK, 1, 1),
                                   (pointer(grad), pointer(out), address(work), sizes)))
        if s.batch * s.keys:
            launches.append(_per_tile(f"attention_backward_keys_{features}", s, s.keys,
                                      (saved, pointer(outs[1]), pointer(outs[2]), rule, sizes)))
        if lse.size:
            launches.append(_per_tile(f"attention_backward_queries_inplace_{features}", s, s.queries,
                                      (saved, pointer(outs[0]), rule, sizes)))
        return launches
