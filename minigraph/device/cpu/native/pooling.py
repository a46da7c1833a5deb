"""Pooling by the kernels of kernels/cpu/pooling.cpp, plain and blocked."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ....base import Shape
from ....ops.pool import PoolingParams
from ....ops.pool_winners import ByWinnersParams
from ....ops.window import per_axis
from .call import NativeCall, NativeOp, Operand, Types, int64, is_float32, native_for, pointer
from .layout import BLOCKED, LANES, PLAIN, Layouts, blocks

PLAIN_SLOWDOWN = 6.0
"""How many times longer windows take one channel at a time (measured: 5 to 15)."""
AXES = 3
"""Spatial axes of the kernels."""
KINDS = {"max": 0, "avg": 1, "sum": 2}
Operands = Sequence[Operand]


def _planes(data: Operand) -> int:
    return data.shape[0] * (blocks(data.shape[1]) if data.layout == BLOCKED else data.shape[1])


def _windows(p: PoolingParams, data: Operand, out: Operand) -> tuple[str, Any]:
    """The kernels' struct Windows."""
    stride, pad = per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.pad, p.kernel, 0, "pad")
    axes = [_last(shape, fill) for shape, fill in ((data.shape[2:], 1), (out.shape[2:], 1), (p.kernel, 1), (stride, 1),
                                                   (pad, 0))]
    return int64(_planes(data), data.layout == BLOCKED, KINDS[p.pool_type], p.count_include_pad is not False,
                 *(length for axis in axes for length in axis))


def _last(values: Shape, fill: int) -> Shape:
    """The values of the last axes, others filled up."""
    return (fill,) * (AXES - len(values)) + tuple(values)


def _last_block(data: Operand) -> tuple[str, Any]:
    """Blocks of channels, and lanes of the last one that are no padding."""
    count, channels = blocks(data.shape[1]), data.shape[1]
    return int64(count, channels - LANES * (count - 1)) if data.layout == BLOCKED else int64(1, 1)


def _whole(p: PoolingParams, data: Operand) -> tuple[str, Any]:
    return int64(_planes(data), prod(data.shape[2:]), data.layout == BLOCKED, KINDS[p.pool_type])


class PoolingOp(NativeOp):
    """Base: all operands in one layout."""

    def layouts(self, p: PoolingParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        if not ins[0].size:
            return ()
        return [Layouts((layout,) * len(ins), (layout,) * len(outs), slowdown)
                for layout, slowdown in ((BLOCKED, 1.0), (PLAIN, PLAIN_SLOWDOWN))]


@native_for("Pooling")
class Pooling(PoolingOp):
    """Windows, or whole images."""

    def calls(self, p: PoolingParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        (data,), (out,) = ins, outs
        shape = _whole(p, data) if p.global_pool else _windows(p, data, out)
        name = "pooling_whole_forward" if p.global_pool else "pooling_forward"
        return [NativeCall(name, (pointer(data), pointer(out), shape))]


@native_for("_pooling_backward")
class PoolingBackward(PoolingOp):
    """The output's gradient to where each output came from."""

    def calls(self, p: PoolingParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        (grad, data, *pooled), (data_grad,) = ins, outs
        if p.global_pool:
            whole = (pointer(grad), pointer(data), pointer(data_grad), _whole(p, data_grad))
            return [NativeCall("pooling_whole_backward", whole)]
        args = (pointer(grad), pointer(data), pointer(pooled[0] if pooled else data), pointer(data_grad),
                _windows(p, data_grad, grad))
        return [NativeCall("pooling_backward", args)]


@native_for("_pooling_winners")
class PoolingWinners(PoolingOp):
    """The places of maxima in their windows."""

    def takes(self, p: PoolingParams, ins: Types, outs: Types) -> bool:
        return is_float32(*ins) and outs[0].dtype == np.uint8

    def calls(self, p: PoolingParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        args = (*map(pointer, (*ins, *outs)), _last_block(ins[0]), _windows(p, ins[0], ins[1]))
        return [NativeCall("pooling_winners", args)]


@native_for("_pooling_with_winners")
class PoolingWithWinners(PoolingOp):
    """The maxima and these places in one pass over the data."""

    def takes(self, p: PoolingParams, ins: Types, outs: Types) -> bool:
        return is_float32(*ins, outs[0]) and outs[1].dtype == np.uint8

    def calls(self, p: PoolingParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        args = (*map(pointer, (*ins, *outs)), _last_block(ins[0]), _windows(p, ins[0], outs[0]))
        return [NativeCall("pooling_forward_winners", args)]


@native_for("_pooling_by_winners")
class PoolingByWinners(PoolingOp):
    """The output's gradient to these places."""

    def takes(self, p: ByWinnersParams, ins: Types, outs: Types) -> bool:
        return is_float32(ins[0], outs[0]) and ins[1].dtype == np.uint8

    def calls(self, p: ByWinnersParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        args = (*map(pointer, (*ins, *outs)), _windows(p, outs[0], ins[0]))
        return [NativeCall("pooling_by_winners", args)]
