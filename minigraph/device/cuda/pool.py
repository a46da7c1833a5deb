"""Pooling and its gradient on a GPU: the launches of kernels/pool.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import MXNetError, Shape
from ...ops.window import per_axis
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, float32, int32, int64, kernels_for, pointer
from .operands import require_float32

Operands = Sequence[Operand]
IMAGE_BLOCKS = 2**20
"""Blocks of a launch with a block an image; more images than that share them."""
INT_LIMIT = 2**31


def _three(values: Shape, fill: int = 1) -> Shape:
    """Spatial values, padded in front to three axes."""
    return (fill,) * (3 - len(values)) + tuple(values)


def windows_of(name: str, p: Any, data: Shape, out: Shape) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The kernel argument `Pool`, in two pieces: sizes and steps of the windows, and whether averages count padding."""
    stride, pad = per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.pad, p.kernel, 0, "pad")
    reaches = (x + 2 * k for x, k in zip(data[2:], p.kernel, strict=True))
    if max(prod(data[2:]), prod(out[2:]), *reaches) >= INT_LIMIT:
        raise MXNetError(f"operator {name}: images of {data[2:]} with kernel {p.kernel}; its CUDA kernels take fewer "
                         f"than 2^31 pixels a channel; split the image")
    values = (*_three(data[2:]), *_three(out[2:]), *_three(p.kernel), *_three(stride), *_three(pad, 0))
    return (f"{len(values)}i", values), int32(p.count_include_pad is not False)


def each_element(kernel: str, operands: Operands, windows: Sequence[tuple[str, Any]], elements: int) -> list[Launch]:
    """A launch with a thread an element."""
    args = (*map(pointer, operands), *windows, int64(elements))
    return [Launch(kernel, flat_grid(elements), (BLOCK, 1, 1), args)]


def _whole(kernel: str, operands: Operands, data: Shape, p: Any) -> list[Launch]:
    """A launch with a block an image."""
    images, pixels = prod(data[:2]), prod(data[2:])
    divisor = () if p.pool_type == "max" else (float32(pixels if p.pool_type == "avg" else 1),)
    threads = next(t for t in (32, 64, 128, 256) if t == 256 or 8 * t >= pixels)
    args = (*map(pointer, operands), int64(images), int64(pixels), *divisor)
    return [Launch(kernel, (min(images, IMAGE_BLOCKS), 1, 1), (threads, 1, 1), args)]


@kernels_for("Pooling")
class PoolingKernels(KernelOp):
    """A thread an output, or a block an image where the window is the image."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("Pooling", (*ins, *outs))
        data, out = ins[0], outs[0]
        if not out.size:
            return []
        if p.global_pool:
            kind = "max" if p.pool_type == "max" else "sum"
            return _whole(f"pooling_forward_{kind}_global", (data, out), data.shape, p)
        windows = windows_of("Pooling", p, data.shape, out.shape)
        return each_element(f"pooling_forward_{p.pool_type}", (data, out), windows, out.size)


@kernels_for("_pooling_backward")
class PoolingBackwardKernels(KernelOp):
    """A thread an input, or a block an image where the window is the image."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_pooling_backward", (*ins, *outs))
        grad, data = ins[:2]
        out = outs[0]
        if not out.size:
            return []
        read = ins if p.pool_type == "max" else (grad,)
        if p.global_pool:
            kind = "max" if p.pool_type == "max" else "sum"
            return _whole(f"pooling_backward_{kind}_global", (*read, out), data.shape, p)
        windows = windows_of("_pooling_backward", p, data.shape, grad.shape)
        return each_element(f"pooling_backward_{p.pool_type}", (*read, out), windows, out.size)
