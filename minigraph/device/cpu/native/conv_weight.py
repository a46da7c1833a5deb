"""The gradients of a convolution by weight and bias, by the kernels of kernels/cpu/conv_weight.cpp."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from ....base import Algorithm, align
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .conv import DirectConvolution, Geometry, chunk_images, first_layer, geometry, suits_winograd
from .layout import BLOCKED, LANES, PLAIN, Layouts, alike, blocks
from .winograd import WinogradWeight, is_winograd

MANY_BLOCKS = 32
"""Pairs of blocks from which the weight gradient is cut by these alone, and not by chunks of images too."""


@native_for("_convolution_backward_weight", "_convolution_backward_weight_resume")
class ConvolutionBackwardWeight(DirectConvolution):
    """The weight gradient: sums over chunks of images, in ascending order, from a running sum on where there is one."""

    def geometry(self, p: Any, ins: Any, outs: Any) -> Geometry | None:
        return geometry(p, ins[1].shape, ins[0].shape)

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        g = self.geometry(p, ins, outs)
        if g is None or not g.images:
            return ()
        weights = (PLAIN,) * (len(ins) - 2)
        blocked = Layouts((BLOCKED, BLOCKED, *weights), (PLAIN,))
        return [Layouts((BLOCKED, PLAIN, *weights), (PLAIN,)), blocked] if first_layer(p, ins[1].shape) else [blocked]

    def chunk_rows(self, g: Geometry) -> int:
        return g.chunk

    def workspace_floats(self, p: Any, g: Geometry) -> Sequence[int]:
        chunks = -(-g.images // g.chunk)
        few = chunks > 1 and g.groups * g.out_blocks * g.in_blocks < MANY_BLOCKS
        return (chunks * g.packed(g.outs, g.ins) if few else 0,)

    def winograd(self, g: Geometry) -> WinogradWeight | None:
        form = WinogradWeight(g.images, g.chunk, g.in_blocks, g.out_blocks, g.spatial[1:], g.out[1:], g.pad[1:])
        return form if suits_winograd(g) and form.pays else None

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        g = self.geometry(p, ins, outs)
        assert g is not None
        grad, data, _, *running = ins
        before = running[0].address if running else 0
        if is_winograd(algorithm):
            winograd = self.winograd(g)
            assert winograd is not None
            return [winograd.call(data, grad, outs[0], work, algorithm, before)]
        partial = work if any(self.workspace_floats(p, g)) else 0
        outs_counted = data.shape[1] if g.lanewise else g.outs
        numbers: list[int] = [g.images, g.chunk, g.groups, data.layout == PLAIN, g.lanes(g.ins), g.in_blocks,
                              *g.spatial, g.out_blocks, *g.out, *g.stride, *_tap_numbers(g), outs_counted, g.ins,
                              *g.weight_steps(), g.small]
        return [NativeCall("convolution_weight", (pointer(data), pointer(grad), pointer(outs[0]), address(before),
                                                  address(partial), int64(*numbers)))]


def _tap_numbers(g: Geometry) -> Iterator[int]:
    for kernel, dilate, pad in zip(g.kernel, g.dilate, g.pad, strict=True):
        yield from (-pad, dilate, kernel)


@native_for("_convolution_backward_bias", "_convolution_backward_bias_resume")
class ConvolutionBackwardBias(NativeOp):
    """The sum of out_grad over all axes but the channels', from a running sum on where there is one."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, *(PLAIN,) * (len(ins) - 1)), (PLAIN,)) for layout in alike(ins[0])]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        images, channels, *_ = ins[0].shape
        chunk = chunk_images(ins[0].shape[2:])
        nbytes = align(4 * -(-images // chunk) * blocks(channels) * LANES)
        return (Algorithm(f"{PREFIX}direct", nbytes, "native", chunk_rows=chunk),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        images, channels, *spatial = ins[0].shape
        running = address(ins[1].address if len(ins) > 1 else 0)
        return [NativeCall("convolution_bias", (pointer(ins[0]), running, pointer(outs[0]), address(work), int64(
            images, chunk_images(spatial), channels, prod(spatial), ins[0].layout == BLOCKED)))]
