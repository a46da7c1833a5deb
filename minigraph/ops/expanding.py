"""Ops that repeat a tensor along axes: broadcast_to, broadcast_axis, broadcast_like, tile, repeat."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .reduce import BackwardLike, sum_into, sum_workspace
from .registry import register
from .shape import axis_in


class Broadcasting(Op):
    """Base of ops that broadcast input 0 to a shape; a subclass gives `target`."""

    recompute = "cheap"

    def target(self, p: Any, ins: Sequence[PartialShape], shape: Sequence[int | None]) -> PartialShape:
        """The output's shape, of the rank of `shape`, as far as it is known."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        target = merge_shapes(self.target(p, ins, shape), outs[0])
        for a, b in zip(shape, target or (), strict=False):
            if a is not None and b is not None and a not in (1, b):
                raise ShapeError(f"{self.name}: data {format_shape(tuple(shape))} does not broadcast to "
                                 f"{format_shape(target)}; dimensions must be equal or 1")
        return ins, [target]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0])

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        rest: list[Entry | None] = [None] * (len(ins) - 1)
        if grads[0] is None or not wanted[0]:
            return [None, *rest]
        return [only(b.node("_sum_like", [grads[0], ins[0]])), *rest]


def check_rank(op: str, shape: Sequence[int | None], count: int, what: str) -> None:
    """Raise ShapeError unless `what` has one dimension for each axis of `shape`."""
    if len(shape) != count:
        raise ShapeError(f"{op}: data {format_shape(tuple(shape))} has {len(shape)} axes and {what} has {count}; "
                         f"they must have equally many")


@dataclass(frozen=True)
class BroadcastToParams:
    """Parameters of broadcast_to."""

    shape: tuple[int, ...] = param((), "shape", "shape of the output; 0 keeps a dimension")


@register
class BroadcastTo(Broadcasting):
    """data repeated along axes of length 1, to a shape."""

    name = "broadcast_to"
    Params = BroadcastToParams

    def target(self, p: BroadcastToParams, ins: Sequence[PartialShape],
               shape: Sequence[int | None]) -> PartialShape:
        check_rank(self.name, shape, len(p.shape), f"shape {p.shape}")
        return tuple(new or old for new, old in zip(p.shape, shape, strict=True))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (2, 3, 4)}, ((2, 1, 4),)), Sample({"shape": (0, 5)}, ((3, 1),)),
                Sample({"shape": (2, 3)}, ((2, 3),))]


@dataclass(frozen=True)
class BroadcastAxisParams:
    """Parameters of broadcast_axis."""

    axis: tuple[int, ...] = param((), "shape", "axes of length 1 to repeat along")
    size: tuple[int, ...] = param((), "shape", "the length of each of those axes in the output")


@register
class BroadcastAxis(Broadcasting):
    """data repeated along some axes of length 1."""

    name = "broadcast_axis"
    aliases = ("broadcast_axes",)
    Params = BroadcastAxisParams

    def target(self, p: BroadcastAxisParams, ins: Sequence[PartialShape],
               shape: Sequence[int | None]) -> PartialShape:
        if len(p.axis) != len(p.size):
            raise ShapeError(f"{self.name}: axis {p.axis} and size {p.size} must have equally many values")
        target = list(shape)
        for axis, size in zip(p.axis, p.size, strict=True):
            if target[axis_in(axis, len(target))] not in (None, 1):
                raise ShapeError(f"{self.name}: axis {axis} of data {format_shape(tuple(shape))} is not of length 1")
            target[axis_in(axis, len(target))] = size
        return tuple(target)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": 1, "size": 3}, ((2, 1, 2),)),
                Sample({"axis": (0, -1), "size": (2, 4)}, ((1, 3, 1),))]


@dataclass(frozen=True)
class BroadcastLikeParams:
    """Parameters of broadcast_like."""

    lhs_axes: tuple[int, ...] | None = param(None, "shape", "axes of lhs to repeat along; all when not given")
    rhs_axes: tuple[int, ...] | None = param(None, "shape", "the axis of rhs that gives the length of each")


@register
class BroadcastLike(Broadcasting):
    """lhs repeated along axes of length 1 to the shape of rhs, of which only the shape is read."""

    name = "broadcast_like"
    Params = BroadcastLikeParams

    def inputs(self, p: BroadcastLikeParams) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def unread(self, p: BroadcastLikeParams) -> tuple[int, ...]:
        return (1,)

    def target(self, p: BroadcastLikeParams, ins: Sequence[PartialShape],
               shape: Sequence[int | None]) -> PartialShape:
        like = ins[1]
        if like is None:
            return None
        if p.lhs_axes is None and p.rhs_axes is None:
            if len(like) < len(shape):
                check_rank(self.name, shape, len(like), f"rhs {format_shape(like)}")
            return tuple(like)
        lhs_axes, rhs_axes = p.lhs_axes or (), p.rhs_axes or ()
        if len(lhs_axes) != len(rhs_axes) or not lhs_axes:
            raise ShapeError(f"{self.name}: lhs_axes {p.lhs_axes} and rhs_axes {p.rhs_axes} must name equally "
                             f"many axes")
        target = list(shape)
        for left, right in zip(lhs_axes, rhs_axes, strict=True):
            target[axis_in(left, len(target))] = like[axis_in(right, len(like))]
        return tuple(target)

    def infer_shape(self, p: BroadcastLikeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if ins[0] is not None and ins[1] is not None and p.lhs_axes is None and len(ins[1]) > len(ins[0]):
            check_rank(self.name, ins[0], len(ins[1]), f"rhs {format_shape(ins[1])}")
        return super().infer_shape(p, ins, outs)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 1, 3), (2, 4, 3))), Sample({}, ((1, 1), (3, 2))),
                Sample({"lhs_axes": (0, 2), "rhs_axes": (1, -1)}, ((1, 3, 1), (5, 2, 4)))]


class Repeated(Op):
    """Base of tile and repeat: output and data are seen with an axis of copies beside each axis.

    A subclass gives `split_shape`: the output's axes parted so, and which of the parts are copies.
    """

    recompute = "cheap"

    def split_shape(self, p: Any, shape: Sequence[int]) -> tuple[Shape, Shape, Shape]:
        """(output shape, that shape parted into axes of data and of copies, which of those are copies)."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or None in shape:
            return ins, outs
        return ins, [merge_shapes(self.split_shape(p, shape)[0], outs[0])]  # type: ignore[arg-type]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        _, parted, copies = self.split_shape(p, ins[0].shape)
        source = tuple(1 if i in copies else d for i, d in enumerate(parted))
        np.copyto(outs[0].reshape(parted), ins[0].reshape(source))

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node(f"_{self.name}_backward", [grads[0], ins[0]], **vars(p)))]


class RepeatedBackward(BackwardLike):
    """Base: the sum of grad over all copies of an element."""

    forward: ClassVar[type[Repeated]]

    def _parted(self, p: Any, shape: Shape) -> tuple[Shape, Shape]:
        _, parted, copies = self.forward().split_shape(p, shape)
        return parted, tuple(i for i in copies if parted[i] != 1)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        parted, copies = self._parted(p, outs[0].shape)
        return (Algorithm("chunks", sum_workspace(TensorType(parted, ins[0].dtype), copies)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        parted, copies = self._parted(p, outs[0].shape)
        sum_into(ins[0].reshape(parted), copies, outs[0], work)

    def samples(self) -> Sequence[Sample]:
        return ()


@dataclass(frozen=True)
class TileParams:
    """Parameters of tile."""

    reps: tuple[int, ...] = param(REQUIRED, "shape", "copies along each axis, aligned at the last one")


@register
class Tile(Repeated):
    """data one beside the other, as often as `reps` says along each axis."""

    name = "tile"
    Params = TileParams

    def split_shape(self, p: TileParams, shape: Sequence[int]) -> tuple[Shape, Shape, Shape]:
        if min(p.reps, default=1) < 0:
            raise ShapeError(f"tile: reps {p.reps} must be at least 0 along each axis")
        rank = max(len(shape), len(p.reps))
        dims = (1,) * (rank - len(shape)) + tuple(shape)
        reps = (1,) * (rank - len(p.reps)) + p.reps
        parted = tuple(length for pair in zip(reps, dims, strict=True) for length in pair)
        return (tuple(r * d for r, d in zip(reps, dims, strict=True)), parted,
                tuple(range(0, 2 * rank, 2)))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"reps": reps}, (shape,)) for reps, shape in (
            ((2, 3), (2, 3)), ((2,), (3, 2)), ((2, 1, 3), (3, 2)), ((1, 1), (2, 2)))]


@register
class TileBackward(RepeatedBackward):
    """The sum of grad over all copies of an element."""

    name = "_tile_backward"
    Params = TileParams
    forward = Tile


@dataclass(frozen=True)
class RepeatParams:
    """Parameters of repeat."""

    repeats: int = param(REQUIRED, "int", "copies of each element")
    axis: int | None = param(None, "int", "axis of the copies; data is made flat first when not given")


@register
class Repeat(Repeated):
    """Each element several times in a row along an axis."""

    name = "repeat"
    Params = RepeatParams

    def split_shape(self, p: RepeatParams, shape: Sequence[int]) -> tuple[Shape, Shape, Shape]:
        if p.repeats < 0:
            raise ShapeError(f"repeat: repeats {p.repeats} must be at least 0")
        dims = (int(np.prod(shape)),) if p.axis is None else tuple(shape)
        axis = axis_in(p.axis or 0, len(dims))
        out = (*dims[:axis], dims[axis] * p.repeats, *dims[axis + 1:])
        return out, (*dims[:axis + 1], p.repeats, *dims[axis + 1:]), (axis + 1,)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"repeats": 2}, ((2, 3),)), Sample({"repeats": 3, "axis": 0}, ((2, 3),)),
                Sample({"repeats": 2, "axis": -2}, ((2, 3, 2),))]


@register
class RepeatBackward(RepeatedBackward):
    """The sum of grad over all copies of an element."""

    name = "_repeat_backward"
    Params = RepeatParams
    forward = Repeat
