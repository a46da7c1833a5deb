"""CUDA forms of dropout and of random samples; kernels/random.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType
from ...ops.random import block_rows, keep_threshold
from ..strides import merge_axes, strides
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import PER_THREAD


def unsigned(value: int) -> tuple[str, int]:
    """A kernel argument: an unsigned 32-bit number."""
    return "I", int(value) & 0xFFFFFFFF


@kernels_for("_dropout", "_dropout_backward")
class Dropout(KernelOp):
    """data, or its gradient, times factors of 0 or 1 / (1 - p) drawn from the key."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("kernel", chunk_rows=block_rows(ins[0].shape))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_dropout", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        args = (*map(pointer, ins), pointer(out), int64(out.size), unsigned(p.ordinal),
                unsigned(keep_threshold(p.p)), single(1 / (1 - p.p)))
        if not p.axes:
            args = (*args, int64(p.first // 4))
            return (Launch("dropout_forward_float32", flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), args),)
        shared = {axis % len(out.shape) for axis in p.axes}
        drawn = strides([1 if i in shared else d for i, d in enumerate(out.shape)])
        shape, (steps,) = merge_axes(out.shape, [0 if i in shared else s for i, s in enumerate(drawn)])
        args = (*args, dims(shape), dims(steps, 0))
        return (Launch("dropout_forward_shared", flat_grid(out.size), (BLOCK, 1, 1), args),)


def _draw(name: str, kernel: str, p: Any, key: Operand, out: Operand, first: float, second: float,
          ) -> Sequence[Launch]:
    require_float32(name, [key, out])
    if out.size == 0:
        return ()
    args = (pointer(key), pointer(out), int64(out.size), unsigned(p.ordinal), single(first), single(second))
    return (Launch(kernel, flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_uniform_keyed")
class Uniform(KernelOp):
    """Uniform samples in [low, high)."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _draw("_uniform_keyed", "uniform_forward_float32", p, ins[0], outs[0], p.low, p.high - p.low)


@kernels_for("_normal_keyed")
class Normal(KernelOp):
    """Normal samples of a mean and standard deviation."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return _draw("_normal_keyed", "normal_forward_float32", p, ins[0], outs[0], p.loc, p.scale)
