"""CUDA forms of Concat, SliceChannel, slice_axis and slice; kernels/slicing.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Shape
from ...ops.shape import axis_in
from ...ops.slicing import Slice, SliceAxis
from ..strides import merge_axes, strides
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


def _fours(*counts: int) -> tuple[str, tuple[int, ...]]:
    """(ending of the kernel, counts): all in float4 where every count is a multiple of four."""
    if any(count % 4 for count in counts):
        return "span", counts
    return "span_float4", tuple(count // 4 for count in counts)


def move(source: Operand, target: Operand, axis: int, begin: int, target_begin: int,
          count: int) -> Sequence[Launch]:
    """Copy `count` places along an axis, from `begin` on in the source to `target_begin` in the target."""
    inner = prod(source.shape[axis + 1:])
    rows = prod(source.shape[:axis])
    if rows * count * inner == 0:
        return ()
    ending, counts = _fours(count * inner, prod(source.shape[axis:]), begin * inner,
                            prod(target.shape[axis:]), target_begin * inner)
    args = (pointer(source), pointer(target), int64(rows), *map(int64, counts))
    return (Launch(f"slicing_forward_{ending}", flat_grid(rows * counts[0]), (BLOCK, 1, 1), args),)


@kernels_for("Concat", "_rnn_param_concat")
class Concat(KernelOp):
    """The inputs one after the other along an axis: one launch for each."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("Concat", [*ins, *outs])
        axis = axis_in(p.dim, len(outs[0].shape))
        launches: list[Launch] = []
        start = 0
        for operand in ins:
            launches += move(operand, outs[0], axis, 0, start, operand.shape[axis])
            start += operand.shape[axis]
        return launches


@kernels_for("SliceChannel")
class SliceChannel(KernelOp):
    """data in equal parts along an axis: one launch for each."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("SliceChannel", [*ins, *outs])
        shape = ins[0].shape
        axis = axis_in(p.axis, len(shape))
        length = shape[axis] // p.num_outputs
        part = (*shape[:axis], length, *shape[axis + 1:])
        parts = [Operand(out.address, part, out.dtype) for out in outs]
        return [launch for i, out in enumerate(parts)
                for launch in move(ins[0], out, axis, i * length, 0, length)]


@kernels_for("slice_axis")
class SliceAxisForward(KernelOp):
    """The part of data from begin to end along one axis."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("slice_axis", [*ins, *outs])
        axis = axis_in(p.axis, len(ins[0].shape))
        begin = _axis_range(p, ins[0].shape, axis).start
        return move(ins[0], outs[0], axis, begin, 0, outs[0].shape[axis])


@kernels_for("_slice_axis_backward")
class SliceAxisBackward(KernelOp):
    """grad in its place along one axis, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_slice_axis_backward", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        axis = axis_in(p.axis, len(out.shape))
        rows, inner = prod(out.shape[:axis]), prod(out.shape[axis + 1:])
        begin = _axis_range(p, out.shape, axis).start
        ending, counts = _fours(ins[0].shape[axis] * inner, out.shape[axis] * inner, begin * inner)
        args = (pointer(ins[0]), pointer(out), int64(rows), *map(int64, counts))
        return (Launch(f"slicing_backward_{ending}", flat_grid(rows * counts[1]), (BLOCK, 1, 1), args),)


def _axis_range(p: Any, shape: Shape, axis: int) -> range:
    return range(*SliceAxis().key(p, len(shape))[axis].indices(shape[axis]))


def _ranges(p: Any, shape: Shape) -> list[range]:
    """The places that a slice takes along each axis."""
    key = Slice().key(p, len(shape))
    full = (slice(None),) * (len(shape) - len(key))
    return [range(*s.indices(size)) for s, size in zip((*key, *full), shape, strict=True)]


@kernels_for("slice")
class SliceForward(KernelOp):
    """The part of data from begin to end, with steps, along the first axes."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("slice", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        ranges, steps = _ranges(p, ins[0].shape), strides(ins[0].shape)
        begin = sum(r.start * step for r, step in zip(ranges, steps, strict=True))
        strided = [r.step * step for r, step in zip(ranges, steps, strict=True)]
        sizes, (x_steps,) = merge_axes(out.shape, strided)
        args = (pointer(ins[0]), pointer(out), int64(out.size), int64(begin), dims(sizes), dims(x_steps, 0))
        return (Launch("slicing_forward_strided", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_slice_backward")
class SliceBackward(KernelOp):
    """grad in its place, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_slice_backward", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        ranges = _ranges(p, out.shape)
        args = (pointer(ins[0]), pointer(out), int64(out.size), dims(out.shape),
                dims([r.start for r in ranges], 0), dims([r.step for r in ranges]),
                dims([len(r) for r in ranges]))
        return (Launch("slicing_backward_strided", flat_grid(out.size), (BLOCK, 1, 1), args),)
