"""squeeze, reshape_like, reverse, stack, slice_like, Crop, and channels traded for places."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape, Shape
from .elemwise import CountParams, only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, is_complete, merge_shapes, numbered
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register
from .shape import View, axis_in, check_size


@dataclass(frozen=True)
class SqueezeParams:
    """Parameters of squeeze."""

    axis: tuple[int, ...] | None = param(None, "shape", "axes of length 1 to drop; all of those when not given")


@register
class Squeeze(View):
    """data without axes of length 1; where no axis would be left, shape (1,)."""

    name = "squeeze"
    Params = SqueezeParams

    def infer_shape(self, p: SqueezeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or p.axis is None and not is_complete(shape):
            return ins, outs
        dropped = {axis_in(axis, len(shape)) for axis in p.axis or ()}
        for axis in sorted(dropped):
            if shape[axis] not in (None, 1):
                raise ShapeError(f"squeeze: axis {axis} of {format_shape(shape)} has length {shape[axis]}, not 1")
        if p.axis is None:
            dropped = {axis for axis, d in enumerate(shape) if d == 1}
        left = tuple(d for axis, d in enumerate(shape) if axis not in dropped) or (1,)
        return [shape], [merge_shapes(left, outs[0])]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 1, 3, 1),)), Sample({"axis": 1}, ((2, 1, 1),)),
                Sample({"axis": (0, -1)}, ((1, 3, 1),)), Sample({}, ((1, 1),))]


@dataclass(frozen=True)
class ReshapeLikeParams:
    """Parameters of reshape_like: which axes of lhs take the shape of which axes of rhs."""

    lhs_begin: int | None = param(None, "int", "first axis of lhs; 0 when not given")
    lhs_end: int | None = param(None, "int", "axis of lhs after the last; all when not given")
    rhs_begin: int | None = param(None, "int", "first axis of rhs; 0 when not given")
    rhs_end: int | None = param(None, "int", "axis of rhs after the last; all when not given")


@register
class PublicReshapeLike(View):
    """lhs in the shape of rhs, of which only the shape is read; or some axes of lhs in that of some of rhs."""

    name = "reshape_like"
    Params = ReshapeLikeParams

    def inputs(self, p: ReshapeLikeParams) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def unread(self, p: ReshapeLikeParams) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: ReshapeLikeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        lhs, rhs = ins
        whole = (p.lhs_begin, p.lhs_end, p.rhs_begin, p.rhs_end) == (None,) * 4
        if rhs is None or (lhs is None and not whole):
            return ins, outs
        out = rhs
        if lhs is not None and not whole:
            kept = range(len(lhs))[slice(p.lhs_begin, p.lhs_end)]
            start, stop = (kept.start, kept.stop) if len(kept) else (p.lhs_begin or 0,) * 2
            out = (*lhs[:start], *rhs[slice(p.rhs_begin, p.rhs_end)], *lhs[stop:])
        merged = merge_shapes(out, outs[0])
        check_size(lhs, merged)
        return ins, [merged]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [*super().gradient(b, p, ins, outs, grads, wanted), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 6), (3, 4))),
                Sample({"lhs_begin": 1, "lhs_end": 2, "rhs_begin": 0, "rhs_end": -1}, ((2, 6, 5), (2, 3, 7)))]


@dataclass(frozen=True)
class ReverseParams:
    """Parameters of reverse."""

    axis: tuple[int, ...] = param(REQUIRED, "shape", "axes to reverse")


@register
class Reverse(Op):
    """data with the order of elements reversed along axes."""

    name = "reverse"
    aliases = ("flip",)
    Params = ReverseParams
    recompute = "cheap"

    def infer_shape(self, p: ReverseParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(*ins, *outs)
        for axis in p.axis if shape is not None else ():
            axis_in(axis, len(shape or ()))
        return [shape], [shape]

    def compute(self, p: ReverseParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        axes = {axis_in(axis, ins[0].ndim) for axis in p.axis}
        key = tuple(slice(None, None, -1 if i in axes else None) for i in range(ins[0].ndim))
        np.copyto(outs[0], ins[0][key])

    def gradient(self, b: Builder, p: ReverseParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("reverse", [grads[0]], axis=p.axis))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": axis}, ((2, 3, 4),)) for axis in (0, -1, (0, 2))]


@dataclass(frozen=True)
class StackParams(CountParams):
    """Parameters of stack."""

    axis: int = param(0, "int", "position of the new axis in the output")


@register
class Stack(Op):
    """Tensors of one shape one after the other along a new axis."""

    name = "stack"
    Params = StackParams
    recompute = "cheap"

    def inputs(self, p: StackParams) -> tuple[str, ...]:
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def infer_shape(self, p: StackParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape, out = merge_shapes(*ins), outs[0]
        if out is not None:
            axis = axis_in(p.axis, len(out))
            shape = merge_shapes(shape, (*out[:axis], *out[axis + 1:]))
        if shape is None:
            return ins, outs
        axis = axis_in(p.axis, len(shape) + 1)
        return [shape] * p.num_args, [merge_shapes((*shape[:axis], p.num_args, *shape[axis:]), out)]

    def compute(self, p: StackParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        parts = np.moveaxis(outs[0], axis_in(p.axis, outs[0].ndim), 0)
        for i, array in enumerate(ins):
            np.copyto(parts[i], array)

    def gradient(self, b: Builder, p: StackParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not any(wanted):
            return [None] * len(ins)
        return list(b.node("SliceChannel", [grads[0]], num_outputs=p.num_args, axis=p.axis, squeeze_axis=True))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": n, "axis": axis}, ((2, 3),) * n) for n, axis in ((2, 0), (3, 1), (1, -1))]


@dataclass(frozen=True)
class SliceLikeParams:
    """Parameters of slice_like."""

    axes: tuple[int, ...] = param((), "shape", "axes to cut; all of them when not given")


class Cut(Op):
    """Base of ops that expand to a `slice`; a subclass gives the range along each axis."""

    recompute = "cheap"

    def ranges(self, p: Any, shapes: Sequence[Shape]) -> list[tuple[int, int]]:
        """(begin, end) along each axis of input 0, from complete shapes of all inputs."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not all(map(is_complete, ins)):
            return ins, outs
        ranges = self.ranges(p, ins)  # type: ignore[arg-type]
        return ins, [merge_shapes(tuple(end - begin for begin, end in ranges), outs[0])]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        begin, end = zip(*self.ranges(p, [b.shape(e) for e in ins]), strict=True)
        return b.node("slice", [ins[0]], begin=str(begin), end=str(end))

    def check(self, shape: Shape, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ranges; ShapeError unless each lies within data."""
        for axis, (length, (begin, end)) in enumerate(zip(shape, ranges, strict=True)):
            if not 0 <= begin <= end <= length:
                raise ShapeError(f"{self.name}: [{begin}, {end}) on axis {axis} is outside data "
                                 f"{format_shape(shape)}")
        return ranges


@register
class SliceLike(Cut):
    """The beginning of data along axes, as long as shape_like is there."""

    name = "slice_like"
    Params = SliceLikeParams

    def inputs(self, p: SliceLikeParams) -> tuple[str, ...]:
        return ("data", "shape_like")

    def unread(self, p: SliceLikeParams) -> tuple[int, ...]:
        return (1,)

    def ranges(self, p: SliceLikeParams, shapes: Sequence[Shape]) -> list[tuple[int, int]]:
        data, like = shapes
        if not p.axes and len(data) != len(like):
            raise ShapeError(f"slice_like: data {format_shape(data)} and shape_like {format_shape(like)} differ in "
                             f"rank; name the axes to cut")
        axes = {axis_in(axis, len(data)) for axis in p.axes}
        ends = list(data)
        for axis in axes or range(len(data)):
            if axis >= len(like):
                raise ShapeError(f"slice_like: shape_like {format_shape(like)} has no axis {axis}")
            ends[axis] = like[axis]
        return self.check(data, [(0, end) for end in ends])

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (2, 3))), Sample({"axes": (0, -1)}, ((3, 4, 5), (2, 9, 3))),
                Sample({"axes": (1,)}, ((3, 4), (1, 2, 7)))]


@dataclass(frozen=True)
class CropParams:
    """Parameters of Crop."""

    num_args: int = param(REQUIRED, "int", "2 to crop to the height and width of a second input, or 1")
    offset: tuple[int, ...] = param((0, 0), "shape", "first row and column of the crop")
    h_w: tuple[int, ...] = param((0, 0), "shape", "height and width of the crop, for one input")
    center_crop: bool = param(False, "bool", "crop about the centre")


@register
class Crop(Cut):
    """A window of the two last axes of data (N, C, H, W), as high and wide as h_w or as a second input."""

    name = "Crop"
    Params = CropParams

    def inputs(self, p: CropParams) -> tuple[str, ...]:
        if p.num_args not in (1, 2):
            raise ShapeError(f"Crop: num_args {p.num_args}; it takes data, or data and the tensor to crop like")
        return ("data", "crop_like")[:p.num_args]

    def count_param(self) -> str | None:
        return "num_args"

    def unread(self, p: CropParams) -> tuple[int, ...]:
        return (1,)[:p.num_args - 1]

    def ranges(self, p: CropParams, shapes: Sequence[Shape]) -> list[tuple[int, int]]:
        data = shapes[0]
        if any(len(shape) != 4 for shape in shapes):
            raise ShapeError(f"Crop: shapes {', '.join(map(format_shape, shapes))}; each must be (N, C, H, W)")
        size = shapes[1][2:] if p.num_args == 2 else p.h_w
        if len(size) != 2 or len(p.offset) != 2:
            raise ShapeError(f"Crop: h_w {size} and offset {p.offset} must have two values each, for height and width")
        begin = tuple((d - s) // 2 for d, s in zip(data[2:], size, strict=True)) if p.center_crop else p.offset
        window = [(at, at + length) for at, length in zip(begin, size, strict=True)]
        return self.check(data, [(0, data[0]), (0, data[1]), *window])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": 1, "h_w": (2, 3), "offset": (1, 0)}, ((2, 3, 4, 5),)),
                Sample({"num_args": 2, "center_crop": True}, ((1, 2, 5, 6), (1, 4, 3, 2))),
                Sample({"num_args": 2, "offset": (0, 2)}, ((1, 2, 4, 5), (2, 1, 4, 3)))]


@dataclass(frozen=True)
class BlockParams:
    """Parameters of depth_to_space and space_to_depth."""

    block_size: int = param(REQUIRED, "int", "height and width of a block of places")


class BlockTrade(Op):
    """Base: data (N, C, H, W) with places traded for channels; a subclass gives shapes and order."""

    Params = BlockParams
    recompute = "cheap"
    inverse: str
    order: tuple[int, ...]

    def parted(self, p: BlockParams, shape: Shape) -> tuple[Shape, Shape]:
        """(data's shape parted into six axes, the output's shape)."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: BlockParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or not is_complete(shape):
            return ins, outs
        if len(shape) != 4 or p.block_size < 1:
            raise ShapeError(f"{self.name}: data {format_shape(shape)} and block_size {p.block_size}; data must be "
                             f"(N, C, H, W) and the block at least 1")
        return ins, [merge_shapes(self.parted(p, shape)[1], outs[0])]  # type: ignore[arg-type]

    def refuse(self, p: BlockParams, shape: Shape) -> None:
        """Raise because a block does not divide what it must."""
        raise ShapeError(f"{self.name}: blocks of {p.block_size} x {p.block_size} do not divide data "
                         f"{format_shape(shape)}")

    def compute(self, p: BlockParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        moved = ins[0].reshape(self.parted(p, ins[0].shape)[0]).transpose(self.order)
        np.copyto(outs[0].reshape(moved.shape), moved)

    def gradient(self, b: Builder, p: BlockParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node(self.inverse, [grads[0]], block_size=p.block_size))]


@register
class DepthToSpace(BlockTrade):
    """(N, C b b, H, W) as (N, C, H b, W b): each group of b b channels becomes a block of places."""

    name, inverse = "depth_to_space", "space_to_depth"
    order = (0, 3, 4, 1, 5, 2)

    def parted(self, p: BlockParams, shape: Shape) -> tuple[Shape, Shape]:
        (n, c, h, w), b = shape, p.block_size
        if c % (b * b):
            self.refuse(p, shape)
        return (n, b, b, c // (b * b), h, w), (n, c // (b * b), h * b, w * b)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"block_size": 2}, ((2, 8, 2, 3),)), Sample({"block_size": 1}, ((1, 3, 2, 2),))]


@register
class SpaceToDepth(BlockTrade):
    """(N, C, H b, W b) as (N, C b b, H, W): each block of places becomes a group of channels."""

    name, inverse = "space_to_depth", "depth_to_space"
    order = (0, 3, 5, 1, 2, 4)

    def parted(self, p: BlockParams, shape: Shape) -> tuple[Shape, Shape]:
        (n, c, h, w), b = shape, p.block_size
        if h % b or w % b:
            self.refuse(p, shape)
        return (n, c, h // b, b, w // b, b), (n, c * b * b, h // b, w // b)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"block_size": 2}, ((2, 3, 4, 6),)), Sample({"block_size": 3}, ((1, 1, 3, 6),))]
