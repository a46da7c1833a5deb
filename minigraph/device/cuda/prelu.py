"""CUDA forms of prelu and rrelu; kernels/prelu.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, Shape, TensorType, align
from .launch import (
    BLOCK,
    MAX_BLOCKS,
    KernelOp,
    Launch,
    Operand,
    address,
    flat_grid,
    int64,
    kernels_for,
    pointer,
)
from .operands import require_float32, single
from .pointwise import PER_THREAD
from .random import unsigned

PART = 16 * BLOCK
"""Elements whose gradients of one slope a block adds: 16 a thread."""


def _layout(data: Shape, gamma: Shape) -> tuple[int, int]:
    """(inner, channels): element i of data has slope i / inner % channels."""
    return (prod(data), 1) if gamma == (1,) else (prod(data[2:]), gamma[0])


class Prelu(KernelOp):
    """An elementwise op whose last input is gamma."""

    name = "_prelu"
    kernel = "prelu_forward_float32"

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        inner, channels = _layout(out.shape, ins[-1].shape)
        args = (*map(pointer, ins), pointer(out), int64(out.size), int64(inner), int64(channels))
        return (Launch(self.kernel, flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_prelu")
class PreluForward(Prelu):
    """data above 0, gamma * data below."""


@kernels_for("_prelu_backward_data")
class PreluBackwardData(Prelu):
    """grad above 0, gamma * grad below."""

    name, kernel = "_prelu_backward_data", "prelu_backward_data_float32"


@kernels_for("_prelu_backward_gamma")
class PreluBackwardGamma(KernelOp):
    """grad * data summed where data is below 0, for each slope: parts of a channel first, then its parts."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        parts = _parts(prod(ins[1].shape), prod(outs[0].shape))
        return Algorithm("parts", align(4 * prod(outs[0].shape) * parts) if parts > 1 else 0)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_prelu_backward_gamma", [*ins, *outs])
        grad, data, _ = ins
        (out,) = outs
        if out.size == 0:
            return ()
        inner, channels = _layout(data.shape, out.shape)
        parts = _parts(data.size, channels)
        sums = pointer(out) if parts == 1 else address(work)
        args = (pointer(grad), pointer(data), sums, int64(data.size // channels), int64(max(inner, 1)),
                int64(channels), int64(PART), int64(parts))
        first = Launch("prelu_backward_gamma_parts", _blocks(channels * parts), (BLOCK, 1, 1), args)
        if parts == 1:
            return (first,)
        second = (sums, pointer(out), int64(channels), int64(parts))
        return first, Launch("prelu_backward_gamma_combine", _blocks(channels), (BLOCK, 1, 1), second)


def _parts(size: int, channels: int) -> int:
    return max(1, -(-(size // max(channels, 1)) // PART))


def _blocks(count: int) -> tuple[int, int, int]:
    return min(count, MAX_BLOCKS), 1, 1


class Rrelu(KernelOp):
    """An elementwise op with drawn slopes; its last input is the key."""

    name: str
    kernel: str

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        args = (*map(pointer, ins), pointer(out), int64(out.size), unsigned(p.ordinal), single(p.lower_bound),
                single(p.upper_bound - p.lower_bound))
        return (Launch(self.kernel, flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_rrelu")
class RreluForward(Rrelu):
    """data above 0, a drawn slope times data below."""

    name, kernel = "_rrelu", "rrelu_forward_float32"


@kernels_for("_rrelu_backward")
class RreluBackward(Rrelu):
    """grad where the output is positive, the slope drawn again times grad elsewhere."""

    name, kernel = "_rrelu_backward", "rrelu_backward_float32"
