"""Convolution and its gradients on a GPU: the launches of kernels/conv.cu."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...base import Algorithm, MXNetError, Shape, TensorType
from ...ops.chunks import MAX_CHUNK
from ...ops.window import per_axis
from .basic import copy
from .channels import THREADS as CHANNEL_THREADS
from .channels import Channels, partition_layout
from .gemm import Gemm, combine, segment_length
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import ACTIVATIONS, require_float32

Operands = Sequence[Operand]
Types = Sequence[TensorType]
COMBINE = "convolution_combine"
THIN = 8
"""Channels and filters a group up to which a matrix product would leave most of a tile empty."""
SEGMENT_PIXELS = 4096
"""Output pixels that a segment of the weight gradient sums, about."""
INT_LIMIT = 2**31


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution, its spatial axes padded in front to three; channels and filters are those of a group."""

    batch: int
    groups: int
    channels: int
    filters: int
    spatial: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape

    @property
    def thin(self) -> bool:
        """Whether groups are so small that each output has a thread of its own."""
        return self.groups > 1 and max(self.channels, self.filters) <= THIN

    @property
    def images(self) -> int:
        """Images of a segment of the weight gradient: a power of two that the size of an image fixes."""
        return min(MAX_CHUNK, 1 << (max(1, SEGMENT_PIXELS // max(1, prod(self.out))).bit_length() - 1))

    @property
    def depth(self) -> int:
        """Weight elements of a filter."""
        return self.channels * prod(self.kernel)

    def argument(self) -> tuple[str, Any]:
        """The kernel argument `Conv`."""
        values = (self.groups, self.channels, self.filters, *self.spatial, *self.out, *self.kernel, *self.stride,
                  *self.dilate, *self.pad)
        return f"{len(values)}i", values

    def check(self, name: str) -> None:
        """MXNetError where one image's channel, or a filter, has more elements than the kernels' 32-bit indices."""
        axes = zip(self.spatial, self.pad, self.dilate, self.kernel, self.stride, strict=True)
        sizes = (prod(self.spatial), prod(self.out), self.depth, self.filters * prod(self.kernel), prod(self.stride),
                 *(x + 2 * p + d * max(k, s) for x, p, d, k, s in axes))
        if max(sizes) >= INT_LIMIT:
            raise MXNetError(f"operator {name}: images of {self.spatial} with kernel {self.kernel}; its CUDA "
                             f"kernels take fewer than 2^31 elements a channel and a filter; split the image")


def geometry(p: Any, data: Shape, out: Shape) -> Geometry:
    """The sizes of a convolution of data (N, C, *spatial) to out (N, F, *out)."""
    def three(values: Shape, fill: int = 1) -> Shape:
        return (fill,) * (3 - len(values)) + tuple(values)
    kernel = p.kernel
    return Geometry(data[0], p.num_group, data[1] // p.num_group, p.num_filter // p.num_group, three(data[2:]),
                    three(out[2:]), three(kernel), three(per_axis(p.stride, kernel, 1, "stride")),
                    three(per_axis(p.dilate, kernel, 1, "dilate")), three(per_axis(p.pad, kernel, 0, "pad"), 0))


@kernels_for("Convolution", "_convolution_activated")
class ConvolutionKernels(KernelOp):
    """Filters x depth times depth x (image, pixel), a group; perhaps with an activation."""

    @staticmethod
    def _gemm(g: Geometry) -> Gemm:
        columns = g.batch * prod(g.out)
        return Gemm(g.filters, columns, g.depth, segment_length(g.depth), g.groups * g.filters * columns, g.groups)

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        g = geometry(p, ins[0].shape, outs[0].shape)
        return Algorithm("direct") if g.thin else Algorithm("implicit", self._gemm(g).workspace_bytes)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("Convolution", (*ins, *outs))
        g = geometry(p, ins[0].shape, outs[0].shape)
        g.check("Convolution")
        operands = (pointer(ins[0]), pointer(ins[1]))
        bias, act = 0 if p.no_bias else ins[2].address, ACTIVATIONS[getattr(p, "act_type", None)]
        if g.thin:
            return _direct("convolution_forward_direct", (*operands, address(bias), pointer(outs[0])), g, outs[0].size,
                           int32(act))
        return self._gemm(g).launches("convolution_forward", COMBINE, operands, outs[0].address, work, (g.argument(),),
                                      bias, (prod(g.out), p.num_filter), act)


@kernels_for("_convolution_backward_data")
class ConvolutionBackwardDataKernels(KernelOp):
    """Channels x (filter, tap) times (filter, tap) x (image, pixel), a group and phase of the stride."""

    @staticmethod
    def _gemm(g: Geometry) -> Gemm:
        columns = g.batch * prod(-(-x // s) for x, s in zip(g.spatial, g.stride, strict=True))
        depth = g.filters * prod(g.kernel)
        elements = g.batch * g.groups * g.channels * prod(g.spatial)
        return Gemm(g.channels, columns, depth, segment_length(depth), elements, g.groups * prod(g.stride))

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        g = geometry(p, outs[0].shape, ins[0].shape)
        gemm = self._gemm(g)
        nbytes = gemm.addend_workspace_bytes if p.addend else gemm.workspace_bytes
        return Algorithm("direct") if g.thin else Algorithm("implicit", nbytes)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_convolution_backward_data", (*ins, *outs))
        g = geometry(p, outs[0].shape, ins[0].shape)
        g.check("_convolution_backward_data")
        operands, addend = (pointer(ins[0]), pointer(ins[1])), ins[3].address if p.addend else 0
        if g.thin:
            return _direct("convolution_backward_data_direct", (*operands, address(addend), pointer(outs[0])), g,
                           outs[0].size)
        return self._gemm(g).launches_added("convolution_backward_data", COMBINE, operands, outs[0].address, work,
                                            (g.argument(), int64(g.batch)), addend)


@kernels_for("_convolution_backward_weight", "_convolution_backward_weight_resume")
class ConvolutionBackwardWeightKernels(KernelOp):
    """Filters x (image, pixel) times (image, pixel) x (channel, tap), a group; some whole images a segment. A running
    sum, where there is one, is what it begins with."""

    @staticmethod
    def _gemm(g: Geometry) -> Gemm:
        pixels = prod(g.out)
        elements = g.groups * g.filters * g.depth
        return Gemm(g.filters, g.depth, g.batch * pixels, max(1, g.images * pixels), elements, g.groups)

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        g = geometry(p, ins[1].shape, ins[0].shape)
        if not g.thin:
            return Algorithm("implicit", self._gemm(g).workspace_bytes, chunk_rows=g.images)
        segments = _segments(g)
        resume = len(ins) > 3
        return Algorithm("direct", outs[0].nbytes * segments if segments > 1 or resume else 0, chunk_rows=g.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_convolution_backward_weight", (*ins, *outs))
        g = geometry(p, ins[1].shape, ins[0].shape)
        g.check("_convolution_backward_weight")
        operands, resume = (pointer(ins[0]), pointer(ins[1])), len(ins) > 3
        begin = copy(ins[3], outs[0]) if resume else ()
        if g.thin:
            return [*begin, *self._direct(g, operands, outs[0], work, resume)]
        return [*begin, *self._gemm(g).launches("convolution_backward_weight", COMBINE, operands, outs[0].address, work,
                                                (g.argument(), int64(g.batch)), resume=resume)]

    @staticmethod
    def _direct(g: Geometry, operands: Sequence[tuple[str, Any]], out: Operand, work: int,
                resume: bool) -> Sequence[Launch]:
        if not out.size:
            return []
        segments = _segments(g)
        apart = segments > 1 or resume
        parts = address(work if apart else out.address)
        args = (*operands, parts, g.argument(), int64(g.batch), int64(g.images), int64(segments))
        blocks = min(out.size * segments, INT_LIMIT - 1)
        threads = min(CHANNEL_THREADS, -(-prod(g.out) // 32) * 32)
        product = Launch("convolution_backward_weight_direct", (blocks, 1, 1), (threads, 1, 1), args)
        return [product, combine(COMBINE, work, segments, out.size, out.address, resume)] if apart else [product]


@kernels_for("_convolution_backward_bias", "_convolution_backward_bias_resume")
class ConvolutionBackwardBiasKernels(KernelOp):
    """The sum of the output gradient over all axes but the channels', on from a running sum where there is one."""

    @staticmethod
    def _channels(grad: Shape) -> Channels:
        return partition_layout(grad[0], 1, grad[1], prod(grad[2:]))

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = self._channels(ins[0].shape)
        return Algorithm("kernel", c.partial_bytes(1), chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_convolution_backward_bias", (*ins, *outs))
        c = self._channels(ins[0].shape)
        begin = copy(ins[1], outs[0]) if len(ins) > 1 else ()
        total = Launch("convolution_backward_bias", flat_grid(c.channels), (BLOCK, 1, 1),
                       (address(work), pointer(outs[0]), c.argument(), int32(len(ins) > 1)))
        if not c.parts:
            return [*begin, total]
        return [*begin, Launch("convolution_backward_bias_partials", (c.blocks, 1, 1), (CHANNEL_THREADS, 1, 1),
                       (pointer(ins[0]), address(work), c.argument())), total]


def _segments(g: Geometry) -> int:
    """Segments of the weight gradient; one empty one without images, which writes zeros."""
    return max(1, -(-g.batch // g.images))


def _direct(kernel: str, operands: Sequence[tuple[str, Any]], g: Geometry, elements: int,
            *more: tuple[str, Any]) -> Sequence[Launch]:
    """A launch with a thread an output."""
    if not elements:
        return []
    return [Launch(kernel, flat_grid(elements), (BLOCK, 1, 1), (*operands, g.argument(), int64(elements), *more))]
