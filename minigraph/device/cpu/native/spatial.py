"""Nearest neighbours by the kernels of kernels/cpu/upsample.cpp, and margins by those of copying.cpp."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....base import Shape, stored_shape
from ....ops.pad import PadParams, copied_blocks, within
from ...strides import merge_axes, strides
from .call import NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .copying import AXES, WORD, Steps, copy_calls, fill_call, part
from .layout import BLOCKED, LANES, PLAIN, Layouts, blocks

Operands = Sequence[Operand]


class Upsampling(NativeOp):
    """Base: plane by plane, both tensors in one layout."""

    kernel: str

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout,), (layout,)) for layout in (BLOCKED, PLAIN)]

    def call(self, p: Any, small: Operand, ins: Operands, outs: Operands) -> list[NativeCall]:
        """The call for a small tensor and its enlargement."""
        images, channels, height, width = small.shape
        planes, lanes = (blocks(channels), LANES) if small.layout == BLOCKED else (channels, 1)
        sizes = int64(images * planes, height, width, lanes, p.scale)
        return [NativeCall(self.kernel, (pointer(ins[0]), pointer(outs[0]), sizes))]


@native_for("_upsample")
class Upsample(Upsampling):
    """Each pixel repeated."""

    kernel = "upsample_forward"

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        return self.call(p, ins[0], ins, outs)


@native_for("_upsample_backward")
class UpsampleBackward(Upsampling):
    """The sums over copies."""

    kernel = "upsample_backward"

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        return self.call(p, outs[0], ins, outs)


def _stored(p: PadParams, shape: Shape, layout: str) -> tuple[PadParams, Shape]:
    """The margins of a tensor as it lies in a layout, and its shape there."""
    widths = (*p.pad_width, 0, 0) if layout == BLOCKED else p.pad_width
    return replace(p, pad_width=widths), stored_shape(shape, layout)


def _copied(p: PadParams, small: Shape, large: Shape) -> Iterator[tuple[Shape, int, Steps, int, Steps]]:
    """(shape, first element and steps in the small tensor, those in the large one) of each block of copies.

    Along an axis whose edge is repeated the step in the small tensor is 0.
    """
    for place, source, repeated in copied_blocks(p, small):
        shape, first, steps = part(place, large)
        _, origin, own = part(source, small)
        yield shape, origin, tuple(0 if i in repeated else step for i, step in enumerate(own)), first, steps


class PadOp(NativeOp):
    """Base: blocked where there are no margins of channels."""

    def layouts(self, p: PadParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout,) * len(ins), (layout,)) for layout in (BLOCKED, PLAIN)
                if self._takes(p, outs[0].shape, layout)]

    def _takes(self, p: PadParams, shape: Shape, layout: str) -> bool:
        fits = len(shape) + (layout == BLOCKED) <= AXES
        return fits and (layout == PLAIN or len(shape) > 2 and not any(p.pad_width[2:4]))


@native_for("Pad")
class Pad(PadOp):
    """A constant and the data in its place, or the data and its margins block by block."""

    def _takes(self, p: PadParams, shape: Shape, layout: str) -> bool:
        zero_stays = layout == PLAIN or p.mode != "constant" or p.constant_value == 0 or shape[1] % LANES == 0
        return zero_stays and super()._takes(p, shape, layout)

    def calls(self, p: PadParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        (data,), (out,) = ins, outs
        p, small = _stored(p, data.shape, data.layout)
        large = stored_shape(out.shape, out.layout)
        if p.mode == "constant":
            shape, first, steps = part(within(p, small), large)
            return [fill_call(out, p.constant_value),
                    *copy_calls(shape, data.address, strides(small), out.address + WORD * first, steps)]
        return [call for shape, origin, own, first, steps in _copied(p, small, large)
                for call in copy_calls(shape, data.address + WORD * origin, own, out.address + WORD * first, steps)]


@native_for("_pad_backward")
class PadBackward(PadOp):
    """The gradient of the data's place, and what margins other than those of images and channels add to it."""

    def _takes(self, p: PadParams, shape: Shape, layout: str) -> bool:
        alone = p.mode == "constant" or len(shape) > 2 and not any(p.pad_width[:4])
        return alone and super()._takes(p, shape, layout)

    def calls(self, p: PadParams, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        grad, (out,) = ins[0], outs
        p, small = _stored(p, out.shape, out.layout)
        large = stored_shape(grad.shape, grad.layout)
        shape, first, steps = part(within(p, small), large)
        inside = copy_calls(shape, grad.address + WORD * first, steps, out.address, strides(small))
        if p.mode == "constant" or not out.size:
            return inside
        margins = list(_copied(p, small, large))[1:]
        return [*inside, *(_add_call(shape, grad.address + WORD * begin, steps, out.address + WORD * origin, own)
                           for shape, origin, own, begin, steps in margins)]


def _add_call(shape: Shape, data: int, data_steps: Steps, out: int, out_steps: Steps) -> NativeCall:
    """The call that adds blocks of planes, which are the first two axes, to places that they share among themselves."""
    sizes, steps = merge_axes(shape[2:], data_steps[2:], out_steps[2:])
    planes = (shape[0] * shape[1], data_steps[1], out_steps[1])
    inner = list(zip(sizes, *steps, strict=True))
    axes = [planes, *[(1, 0, 0)] * (AXES - 1 - len(inner)), *inner]
    return NativeCall("add_strided", (address(data), address(out), *(int64(*v) for v in zip(*axes, strict=True))))
