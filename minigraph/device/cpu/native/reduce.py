"""Sums over axes, and arithmetic with broadcasting, by the kernels of kernels/cpu/reduce.cpp and broadcast.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....base import Shape
from ....ops.broadcast import summed_axes
from ....ops.chunks import MAX_CHUNK, chunk_rows
from ....ops.reduce import kept_shape, reduced_axes
from ...strides import broadcast_strides, merge_axes, strides
from .call import NativeCall, NativeOp, Operand, Types, define, float32, float64, int64, native_for, pointer
from .copying import AXES, copy_calls
from .layout import Layouts

Operands = Sequence[Operand]
View = tuple[int, int, int]


def view_of(shape: Shape, axes: Sequence[int]) -> View | None:
    """(outer, length, inner) with all of `axes` in the middle, or None where others lie among them."""
    long = [axis for axis in axes if shape[axis] != 1]
    if not long:
        return prod(shape), 1, 1
    first, last = long[0], long[-1]
    if any(axis not in axes and shape[axis] != 1 for axis in range(first, last)):
        return None
    return prod(shape[:first]), prod(shape[first:last + 1]), prod(shape[last + 1:])


def sum_call(data: Operand, axes: Sequence[int], out: Operand, divisor: float = 1.0) -> NativeCall:
    """The call that sums over axes that lie side by side."""
    view = view_of(data.shape, axes)
    assert view is not None
    piece = MAX_CHUNK
    if axes and axes[0] == 0:
        within = prod(data.shape[1:])
        piece = chunk_rows(within * 4) * (within // max(view[2], 1))
    args = (pointer(data), pointer(out), int64(*view, max(piece, 1)), float64(divisor))
    return NativeCall("axis_sum_rows" if view[2] == 1 else "axis_sum_columns", args)


class Summing(NativeOp):
    """Base: plain operands, and the axes that are summed."""

    def axes(self, p: Any, shapes: Sequence[Shape]) -> Shape:
        """The axes of the first input."""
        raise NotImplementedError

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axes = self.axes(p, [t.shape for t in ins])
        return () if view_of(ins[0].shape, axes) is None else (Layouts.plain(len(ins), len(outs)),)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        return [sum_call(ins[0], self.axes(p, [operand.shape for operand in ins]), outs[0])]


@native_for("_sum_like")
class SumLike(Summing):
    """The sum over axes along which a tensor was repeated."""

    def axes(self, p: Any, shapes: Sequence[Shape]) -> Shape:
        return summed_axes(*shapes)


@native_for("sum")
class Sum(Summing):
    """The sum over axes."""

    def axes(self, p: Any, shapes: Sequence[Shape]) -> Shape:
        return reduced_axes(p, len(shapes[0]))


@native_for("mean")
class Mean(Sum):
    """The mean over axes."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        count = ins[0].size // max(outs[0].size, 1)
        return [sum_call(ins[0], self.axes(p, [ins[0].shape]), outs[0], float(count))]


@native_for("_sum_backward")
class SumBackward(NativeOp):
    """The gradient, repeated."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        steps = self._steps(p, outs[0].shape)
        fits = len(merge_axes(outs[0].shape, steps, strides(outs[0].shape))[0]) <= AXES
        return (Layouts.plain(2, 1),) if fits else ()

    def _steps(self, p: Any, shape: Shape) -> Shape:
        return broadcast_strides(kept_shape(shape, reduced_axes(p, len(shape))), shape)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        shape = outs[0].shape
        return copy_calls(shape, ins[0].address, self._steps(p, shape), outs[0].address, strides(shape))


@native_for("_mean_backward")
class MeanBackward(SumBackward):
    """The gradient, repeated, over the number of its copies."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        (out,), count = outs, outs[0].size // max(ins[0].size, 1)
        share = (pointer(out), pointer(out), int64(out.size), float32(count), float32(0.0))
        return [*super().calls(p, ins, outs, work, algorithm), NativeCall("div_scalar_forward", share)]


class Broadcast(NativeOp):
    """Arithmetic of two plain operands, each of which may be repeated."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        axes = self._axes([t.shape for t in ins], outs[0].shape)
        return (Layouts.plain(2, 1),) if len(axes) <= AXES else ()

    def _axes(self, shapes: Sequence[Shape], out: Shape) -> list[tuple[int, ...]]:
        """(size, step of each operand) of the fewest axes, the last one with steps of 0 or 1."""
        sizes, steps = merge_axes(out, *(broadcast_strides(shape, out) for shape in shapes))
        return list(zip(sizes, *steps, strict=True))

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        if not outs[0].size:
            return []
        axes = self._axes([operand.shape for operand in ins], outs[0].shape)
        axes = [(1, 0, 0)] * (AXES - len(axes)) + axes
        args = (*map(pointer, ins), pointer(outs[0]), *(int64(*values) for values in zip(*axes, strict=True)))
        return [NativeCall(self.kernel, args)]


for _name in ("add", "sub", "mul", "div", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal",
              "lesser", "lesser_equal", "logical_and", "logical_or", "logical_xor"):
    define(f"broadcast_{_name}", Broadcast(f"broadcast_{_name}"))
