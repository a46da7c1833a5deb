"""Ops that only move elements, by the kernels of kernels/cpu/copying.cpp: join, cut, permute, repeat, fill."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....base import TRANSPOSED, Shape, stored_shape
from ....ops.op import Op
from ....ops.registry import get_op
from ....ops.shape import Permutation, axis_in
from ....ops.slicing import Slicing, SlicingBackward, along
from ...strides import broadcast_strides, merge_axes, strides
from .call import NativeCall, NativeOp, Operand, Types, address, define, float32, int64, native_for, pointer
from .layout import BLOCKED, LANES, PLAIN, Layouts, blocks

AXES = 6
"""Axes of the kernels, after merging."""
WORD = 4
"""Bytes of an element."""
Operands = Sequence[Operand]
Steps = Sequence[int]


def copy_calls(shape: Sequence[int], data: int, data_steps: Steps, out: int, out_steps: Steps) -> list[NativeCall]:
    """Calls that copy elements of a shape between addresses, with steps in elements; no calls for no elements.

    At most AXES axes may be left when neighbours are merged.
    """
    if prod(shape) == 0:
        return []
    sizes, (source, target) = merge_axes(shape, data_steps, out_steps)
    axes = list(zip(sizes, source, target, strict=True))
    kernel = "copy_strided"
    if axes and axes[-1][2] == 1 and axes[-1][1] not in (0, 1):
        contiguous = [axis for axis in axes if axis[1] == 1]
        if contiguous:
            axes.remove(contiguous[0])
            axes.insert(len(axes) - 1, contiguous[0])
            kernel = "copy_tiles"
    axes = [(1, 0, 0)] * (AXES - len(axes)) + axes
    return [NativeCall(kernel, (address(data), address(out), *(int64(*values) for values in zip(*axes, strict=True))))]


def fits(shape: Sequence[int], data_steps: Steps, out_steps: Steps) -> bool:
    """Whether so few axes are left that the kernels take them."""
    return len(merge_axes(shape, data_steps, out_steps)[0]) <= AXES


def fill_call(out: Operand, value: float) -> NativeCall:
    """The call that fills a tensor; with a value other than zero its padding would not stay zero."""
    return NativeCall("fill", (pointer(out), int64(out.size), float32(value)))


def part(key: Sequence[slice], shape: Shape) -> tuple[Shape, int, Shape]:
    """(shape, first element, steps) of what an index takes of a contiguous tensor."""
    ranges = [range(*s.indices(d)) for s, d in zip(key, shape, strict=False)]
    own = strides(shape)
    first = sum(r.start * step for r, step in zip(ranges, own, strict=False))
    steps = (*(r.step * step for r, step in zip(ranges, own, strict=False)), *own[len(ranges):])
    return (*map(len, ranges), *shape[len(ranges):]), first, steps


def _cut_axes(layout: str, axis: int, begin: int, end: int, length: int) -> slice | None:
    """The slice along an axis as it is stored, or None where it cuts a block."""
    if layout == PLAIN or axis != 1:
        return slice(begin, end)
    if begin % LANES or end % LANES and end != length:
        return None
    return slice(begin // LANES, blocks(end))


def _layouts(shape: Shape, axis: int, cuts: Sequence[tuple[int, int]]) -> list[str]:
    """Layouts in which a tensor may be cut at these places of an axis."""
    whole = len(shape) > 2 and all(_cut_axes(BLOCKED, axis, *cut, shape[axis]) is not None for cut in cuts)
    return [BLOCKED, PLAIN] if whole else [PLAIN]


def _cuts(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """(begin, end) of parts that lie one after the other."""
    ends = [sum(lengths[:i + 1]) for i in range(len(lengths))]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _move_part(whole: Operand, piece: Operand, axis: int, cut: tuple[int, int], into: bool) -> list[NativeCall]:
    """Copy a part of a tensor to or, with `into`, from another tensor."""
    key = _cut_axes(whole.layout, axis, *cut, whole.shape[axis])
    assert key is not None
    shape, first, steps = part(along(axis, key), stored_shape(whole.shape, whole.layout))
    place = whole.address + WORD * first
    if into:
        return copy_calls(shape, piece.address, strides(shape), place, steps)
    return copy_calls(shape, place, steps, piece.address, strides(shape))


@native_for("Concat")
class Concat(NativeOp):
    """Each input to its part of the output; blocked where parts are whole blocks."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axis = axis_in(p.dim, len(outs[0].shape))
        cuts = _cuts([t.shape[axis] for t in ins])
        return [Layouts((layout,) * len(ins), (layout,)) for layout in _layouts(outs[0].shape, axis, cuts)]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        axis = axis_in(p.dim, len(outs[0].shape))
        cuts = _cuts([operand.shape[axis] for operand in ins])
        return [call for operand, cut in zip(ins, cuts, strict=True)
                for call in _move_part(outs[0], operand, axis, cut, True)]


@native_for("SliceChannel")
class SliceChannel(NativeOp):
    """Each output from its part of the input; blocked where parts are whole blocks and the axis is kept."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axis, cuts = self._cuts(p, ins[0].shape)
        found = [PLAIN] if p.squeeze_axis else _layouts(ins[0].shape, axis, cuts)
        return [Layouts((layout,), (layout,) * len(outs)) for layout in found]

    def _cuts(self, p: Any, shape: Shape) -> tuple[int, list[tuple[int, int]]]:
        axis = axis_in(p.axis, len(shape))
        return axis, _cuts([shape[axis] // p.num_outputs] * p.num_outputs)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        axis, cuts = self._cuts(p, ins[0].shape)
        return [call for out, cut in zip(outs, cuts, strict=True)
                for call in _move_part(ins[0], out, axis, cut, False)]


def _bounds(p: Any, shape: Shape) -> tuple[int, tuple[int, int]]:
    """The axis of a slice_axis, and (begin, end) on it."""
    axis = axis_in(p.axis, len(shape))
    begin, end, _ = slice(p.begin or None, p.end).indices(shape[axis])
    return axis, (begin, end)


@native_for("slice_axis")
class SliceAxis(NativeOp):
    """A part along one axis; blocked where it is whole blocks."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axis, cut = _bounds(p, ins[0].shape)
        return [Layouts((layout,), (layout,)) for layout in _layouts(ins[0].shape, axis, [cut])]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        axis, cut = _bounds(p, ins[0].shape)
        return _move_part(ins[0], outs[0], axis, cut, False)


@native_for("_slice_axis_backward")
class SliceAxisBackward(NativeOp):
    """Zeros, and the gradient in its place."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axis, cut = _bounds(p, outs[0].shape)
        return [Layouts((layout,) * 2, (layout,)) for layout in _layouts(outs[0].shape, axis, [cut])]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        axis, cut = _bounds(p, outs[0].shape)
        return [fill_call(outs[0], 0.0), *_move_part(outs[0], ins[0], axis, cut, True)]


class PlainOp(NativeOp):
    """Base: plain operands, where `fits` says that the kernels take them."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), len(outs)),) if self.fits(p, ins, outs) else ()

    def fits(self, p: Any, ins: Types, outs: Types) -> bool:
        """Whether the kernels take these operands."""
        return True


@native_for("slice")
class Slice(PlainOp):
    """A part with steps."""

    def fits(self, p: Any, ins: Types, outs: Types) -> bool:
        shape, _, steps = part(_key("slice", p, len(ins[0].shape)), ins[0].shape)
        return fits(shape, steps, strides(shape))

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        shape, first, steps = part(_key("slice", p, len(ins[0].shape)), ins[0].shape)
        return copy_calls(shape, ins[0].address + WORD * first, steps, outs[0].address, strides(shape))


def _key(name: str, p: Any, rank: int) -> tuple[slice, ...]:
    op = get_op(name)
    if isinstance(op, SlicingBackward):
        return op.forward().key(p, rank)
    assert isinstance(op, Slicing)
    return op.key(p, rank)


@native_for("_slice_backward")
class SliceBackward(PlainOp):
    """Zeros, and the gradient in its place."""

    def fits(self, p: Any, ins: Types, outs: Types) -> bool:
        shape, _, steps = part(_key("_slice_backward", p, len(outs[0].shape)), outs[0].shape)
        return fits(shape, strides(shape), steps)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        shape, first, steps = part(_key("_slice_backward", p, len(outs[0].shape)), outs[0].shape)
        return [fill_call(outs[0], 0.0),
                *copy_calls(shape, ins[0].address, strides(shape), outs[0].address + WORD * first, steps)]


class Permuted(PlainOp):
    """The elements in the order of the output."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _steps(self, p: Any, shape: Shape) -> Shape:
        op: Op = get_op(self.name)
        assert isinstance(op, Permutation)
        own = strides(shape)
        return tuple(own[i] for i in op.order(p, len(shape)))

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        if outs[0].layout == TRANSPOSED:        # a conversion: of the same tensor
            return (Layouts((PLAIN,), (TRANSPOSED,)),)
        return super().layouts(p, ins, outs)

    def fits(self, p: Any, ins: Types, outs: Types) -> bool:
        return fits(outs[0].shape, self._steps(p, ins[0].shape), strides(outs[0].shape))

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        shape = stored_shape(outs[0].shape, outs[0].layout)
        return copy_calls(shape, ins[0].address, self._steps(p, ins[0].shape), outs[0].address, strides(shape))


for _name in ("transpose", "SwapAxis"):
    define(_name, Permuted(_name))


class Repeated(PlainOp):
    """The input along the axes of the output on which it has length 1 or lacks an axis."""

    def fits(self, p: Any, ins: Types, outs: Types) -> bool:
        return fits(outs[0].shape, broadcast_strides(ins[0].shape, outs[0].shape), strides(outs[0].shape))

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        shape = outs[0].shape
        steps = broadcast_strides(ins[0].shape, shape)
        return copy_calls(shape, ins[0].address, steps, outs[0].address, strides(shape))


for _name in ("broadcast_to", "broadcast_axis", "broadcast_like"):
    define(_name, Repeated())


class Filled(NativeOp):
    """One value everywhere; blocked for zeros alone, so that padding stays zero."""

    def __init__(self, value: float) -> None:
        self.value = value

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        found = [BLOCKED, PLAIN] if len(outs[0].shape) > 2 and self.value == 0 else [PLAIN]
        return [Layouts((layout,) * len(ins), (layout,)) for layout in found]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        return [fill_call(outs[0], self.value)]


for _name, _value in {"zeros_like": 0.0, "ones_like": 1.0, "_zeros": 0.0, "_ones": 1.0, "_fill_ones": 1.0}.items():
    define(_name, Filled(_value))
