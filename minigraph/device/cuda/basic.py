"""CUDA forms of copies, constants, casts and the sums that the graph builder adds; kernels/basic.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...base import Algorithm, MXNetError, TensorType, align
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import PER_THREAD, define

WORD_BYTES = 16
"""Bytes that a thread copies or fills at a time."""
COUNT_SPAN = 4096
"""Elements of which one block counts the valid ones."""
CAST_TYPES = ("float32", "float64", "int32", "int64", "int8", "uint8")
"""Types between which Cast converts."""

define("_accumulate", "elemwise_add_forward_float32")
define("_grad_add", "elemwise_add_forward_float32")


def copy(source: Operand, target: Operand) -> Sequence[Launch]:
    """Launches that copy a tensor of any dtype to another of its size; none to itself."""
    nbytes = target.size * target.dtype.itemsize
    if nbytes == 0 or source.address == target.address:
        return ()
    args = (pointer(source), pointer(target), int64(nbytes))
    if source.address % WORD_BYTES or target.address % WORD_BYTES:
        return (Launch("copy_forward_unaligned", flat_grid(nbytes), (BLOCK, 1, 1), args),)
    return (Launch("copy_forward_bytes", flat_grid(nbytes, WORD_BYTES), (BLOCK, 1, 1), args),)


def fill(target: Operand, value: float) -> Sequence[Launch]:
    """Launches that fill a tensor of any dtype with a value, converted to it as NumPy does."""
    size = target.dtype.itemsize
    if target.size == 0:
        return ()
    pattern = np.full(1, value).astype(target.dtype).tobytes()
    word = int.from_bytes(pattern * (8 // size), "little")
    args = (pointer(target), int64(target.size * size), ("Q", word))
    return (Launch("fill_forward_bytes", flat_grid(target.size * size, WORD_BYTES), (BLOCK, 1, 1), args),)


@kernels_for("_copy", "BlockGrad", "MakeLoss")
class Copy(KernelOp):
    """data in bytes of its own."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return copy(ins[0], outs[0])


@kernels_for("_assign")
class Assign(KernelOp):
    """value written over old."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return copy(ins[1], outs[0])


@kernels_for("zeros_like", "_zeros")
class Zeros(KernelOp):
    """Zeros."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return fill(outs[0], 0)


@kernels_for("ones_like", "_ones")
class Ones(KernelOp):
    """Ones."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return fill(outs[0], 1)


@kernels_for("_full")
class Full(KernelOp):
    """One value."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return fill(outs[0], p.value)


@kernels_for("Cast")
class Cast(KernelOp):
    """data in another dtype."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        source, target = ins[0].dtype, outs[0].dtype
        if source == target:
            return copy(ins[0], outs[0])
        for dtype in (source, target):
            if dtype.name not in CAST_TYPES:
                raise MXNetError(f"Cast from {source} to {target}: the CUDA kernels convert between "
                                 f"{', '.join(CAST_TYPES)}; run this network on mx.cpu()")
        if outs[0].size == 0:
            return ()
        args = (pointer(ins[0]), pointer(outs[0]), int64(outs[0].size))
        kernel = f"cast_forward_{source}_{target}"
        return (Launch(kernel, flat_grid(outs[0].size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_make_loss_backward")
class MakeLossBackward(KernelOp):
    """grad_scale / n everywhere; blocks count the valid elements of spans, then each adds all counts."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        spans = -(-prod(ins[0].shape) // COUNT_SPAN)
        return Algorithm("spans", align(8 * spans) if p.normalization == "valid" else 0)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_make_loss_backward", [*ins, *outs])
        size = outs[0].size
        if size == 0 or p.normalization != "valid":
            divisor = max(outs[0].shape[0], 1) if p.normalization == "batch" else 1
            return fill(outs[0], p.grad_scale / divisor)
        spans = -(-size // COUNT_SPAN)
        counted = (pointer(ins[0]), address(work), int64(size), int64(COUNT_SPAN), single(p.valid_thresh))
        filled = (address(work), pointer(outs[0]), int64(size), int64(spans), ("d", p.grad_scale))
        return (Launch("count_valid_forward_spans", flat_grid(spans * BLOCK), (BLOCK, 1, 1), counted),
                Launch("make_loss_backward_valid", flat_grid(size, 16), (BLOCK, 1, 1), filled))
