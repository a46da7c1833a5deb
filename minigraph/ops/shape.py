"""Ops that change a tensor's shape: views of the same bytes, and reorderings of axes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, is_complete, merge_shapes
from .params import REQUIRED, param, parse_params
from .pointwise import Found
from .registry import register


def axis_in(axis: int, rank: int) -> int:
    """An axis counted from the front; ShapeError when a tensor of that rank does not have it."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside a tensor with {rank} axes")
    return axis % rank


class View(Op):
    """Base of ops whose output is the input's bytes under another shape."""

    recompute = "cheap"

    def view(self, p: Any) -> bool:
        return True

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        """Rows stay rows where the first axis does; what is read for its shape only is cut alike, or not at all."""
        if not ins[0].shape or ins[0].shape[:1] != outs[0].shape[:1]:
            return None
        return Sliced.every(ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0].reshape(-1), ins[0].reshape(-1))

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_reshape_like", [grads[0], ins[0]]))]


@register
class ReshapeLike(View):
    """data in the shape of `like`, of which only the shape is read: the gradient of a view is a view."""

    name = "_reshape_like"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "like")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[1], outs[0])
        check_size(ins[0], shape)
        return [ins[0], shape], [shape]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [*super().gradient(b, p, ins, outs, grads, wanted), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 6), (3, 4)))]


def check_size(shape: PartialShape, new: PartialShape) -> None:
    """Raise unless two shapes, where both are known, hold equally many elements."""
    if shape is not None and new is not None and is_complete(shape) and is_complete(new):
        if prod(shape) != prod(new):  # type: ignore[arg-type]
            raise ShapeError(f"a tensor of shape {format_shape(shape)} cannot be reshaped to "
                             f"{format_shape(new)}: {prod(shape)} against {prod(new)} elements")  # type: ignore[arg-type]


@register
class Flatten(View):
    """(n, a, b, …) as (n, a * b * …)."""

    name = "Flatten"
    aliases = ("flatten",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, [merge_shapes((None, None), outs[0])]
        rest = None if None in shape[1:] else prod(d for d in shape[1:] if d is not None)
        (rows, columns) = merge_shapes((shape[0], rest), outs[0]) or (None, None)
        return [(rows, *shape[1:])], [(rows, columns)]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 4),)), Sample({}, ((5,),))]


@dataclass(frozen=True)
class ReshapeParams:
    """Parameters of Reshape."""

    shape: tuple[int, ...] = param(
        REQUIRED, "shape", "new shape: 0 keeps a dimension, -1 is inferred, -2 keeps all that are left, -3 "
        "merges two, -4 splits one into the two that follow it")
    reverse: bool = param(False, "bool", "match dimensions from the right")


@dataclass(frozen=True)
class OldReshapeParams:
    """How scripts and files for MXNet before 0.9 tell Reshape's shape, where they give no `shape`."""

    shape: tuple[int, ...] = param((), "shape", "new shape in today's code")
    target_shape: tuple[int, ...] = param((), "shape", "new shape, of which one dimension of 0 is inferred")
    keep_highest: bool = param(False, "bool", "keep the first dimension, whatever target_shape has there")


@register
class Reshape(View):
    """data under a new shape in MXNet's code; see the parameter."""

    name = "Reshape"
    aliases = ("reshape",)
    Params = ReshapeParams

    def attributes(self, attrs: Mapping[str, str]) -> Mapping[str, str]:
        old = {field.name for field in fields(OldReshapeParams)}
        p = parse_params(OldReshapeParams, {key: text for key, text in attrs.items() if key in old}, self.name)
        if p.shape or not p.target_shape:
            return {key: text for key, text in attrs.items() if key == "shape" or key not in old}
        codes = [size or -1 for size in p.target_shape]
        if p.keep_highest:
            codes[0] = 0
        return {**{key: text for key, text in attrs.items() if key not in old}, "shape": str(tuple(codes))}

    def infer_shape(self, p: ReshapeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is not None and is_complete(shape):
            out: PartialShape = reshaped(p, shape)  # type: ignore[arg-type]
        elif min(p.shape, default=1) >= 0 and (shape is not None or 0 not in p.shape) and not p.reverse:
            out = tuple(code or _dim(shape, i) for i, code in enumerate(p.shape))
        else:
            out = None
        out = merge_shapes(out, outs[0])
        check_size(shape, out)
        return [shape], [out]

    def slice_params(self, p: ReshapeParams, first: int, batch: int, outs: Sequence[TensorType]) -> ReshapeParams:
        return ReshapeParams(outs[0].shape)

    def samples(self) -> Sequence[Sample]:
        codes = [((2, 3, 4), (4, 0, 2)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (-3, 0)),
                 ((2, 3, 4), (-4, 1, -1, -2)), ((6,), (2, 3))]
        return [Sample({"shape": code}, (shape,)) for shape, code in codes]


def _dim(shape: PartialShape, i: int) -> int | None:
    return shape[i] if shape is not None and i < len(shape) else None


def reshaped(p: ReshapeParams, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape that a reshape code makes of a known shape; ShapeError when they do not fit."""
    if not p.reverse:
        return _reshaped(p.shape, shape)
    if -4 in p.shape:
        raise ShapeError("Reshape: the code -4 has no meaning with reverse=True")
    return _reshaped(p.shape[::-1], shape[::-1])[::-1]


def _reshaped(codes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    out: list[int] = []
    position = code = 0
    known, total = 1, prod(shape)              # elements still to be told apart by explicit and inferred dims
    infer: int | None = None

    def take() -> int:
        nonlocal position
        if position >= len(shape):
            raise ShapeError(f"shape code {tuple(codes)} asks for more dimensions than "
                             f"{format_shape(tuple(shape))} has")
        position += 1
        return shape[position - 1]

    copied: list[int] = []
    while code < len(codes):
        value = codes[code]
        code += 1
        if value == 0:
            copied.append(take())
            out.append(copied[-1])
        elif value == -2:
            rest = list(shape[position:])
            position = len(shape)
            copied += rest
            out += rest
        elif value == -3:
            copied += [take(), take()]
            out.append(copied[-1] * copied[-2])
        elif value == -4:
            copied.append(take())
            out += _split(copied[-1], codes[code:code + 2])
            code += 2
        elif value == -1:
            if infer is not None:
                raise ShapeError(f"shape code {tuple(codes)} has more than one -1")
            infer = len(out)
            out.append(1)
            position += 1
        else:
            out.append(value)
            known *= value
            position += 1
    if infer is not None:
        out[infer] = _inferred(shape, copied, known, total)
    return tuple(out)


def _inferred(shape: Sequence[int], copied: Sequence[int], known: int, total: int) -> int:
    """The dimension behind -1. Copied dimensions cancel on both sides, which matters when one is 0."""
    left = list(shape)
    for dim in copied:
        left.remove(dim)
    free = prod(left)
    if known == 0 or free % known:
        raise ShapeError(f"{total} elements of shape {format_shape(tuple(shape))} do not divide by the other "
                         f"dimensions, {known * prod(copied)} elements")
    return free // known


def _split(dim: int, parts: Sequence[int]) -> list[int]:
    if len(parts) != 2 or min(parts) < -1 or (parts[0] == -1 and parts[1] == -1):
        raise ShapeError(f"the shape code -4 needs two dimensions after it, at most one of them -1; got "
                         f"{tuple(parts)}")
    first, second = parts
    other = second if first == -1 else first
    if other <= 0 or dim % other or (-1 not in parts and first * second != dim):
        raise ShapeError(f"a dimension of {dim} cannot be split into {tuple(parts)}")
    return [dim // other if part == -1 else part for part in parts]


@dataclass(frozen=True)
class ExpandDimsParams:
    """Parameters of expand_dims."""

    axis: int = param(REQUIRED, "int", "position of the new axis in the output")


@register
class ExpandDims(View):
    """data with a new axis of length 1."""

    name = "expand_dims"
    Params = ExpandDimsParams

    def infer_shape(self, p: ExpandDimsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape, out = ins[0], outs[0]
        if out is not None:
            axis = axis_in(p.axis, len(out))
            shape = merge_shapes(shape, (*out[:axis], *out[axis + 1:]))
        if shape is None:
            return [None], [out]
        axis = axis_in(p.axis, len(shape) + 1)
        return [shape], [merge_shapes((*shape[:axis], 1, *shape[axis:]), out)]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": axis}, ((2, 3),)) for axis in (0, 1, -1)]


@dataclass(frozen=True)
class TransposeParams:
    """Parameters of transpose."""

    axes: tuple[int, ...] = param((), "shape", "input axis of each output axis; reversed when not given")


class Permutation(Op):
    """Base of ops that reorder axes; a subclass gives `order`."""

    recompute = "cheap"
    moves = True

    def order(self, p: Any, rank: int) -> tuple[int, ...]:
        """The input axis of each output axis."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        known = ins[0] if ins[0] is not None else outs[0]
        if known is None:
            return ins, outs
        order = self.order(p, len(known))
        forward = None if ins[0] is None else tuple(ins[0][i] for i in order)
        out = merge_shapes(forward, outs[0])
        assert out is not None
        return [tuple(out[i] for i in np.argsort(order))], [out]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0].transpose(self.order(p, ins[0].ndim)))


@register
class Transpose(Permutation):
    """data with its axes in another order."""

    name = "transpose"
    Params = TransposeParams
    as_stored = True

    def order(self, p: TransposeParams, rank: int) -> tuple[int, ...]:
        axes = tuple(axis_in(axis, rank) for axis in p.axes) or tuple(range(rank))[::-1]
        if sorted(axes) != list(range(rank)):
            raise ShapeError(f"axes {p.axes} is no order of {rank} axes")
        return axes

    def gradient(self, b: Builder, p: TransposeParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        back = tuple(int(i) for i in np.argsort(self.order(p, len(b.shape(ins[0])))))
        return [only(b.node("transpose", [grads[0]], axes=back))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 4),)), Sample({"axes": (1, 0, 2)}, ((2, 3, 4),)),
                Sample({"axes": (0, 2, 3, 1)}, ((2, 3, 1, 4),))]


@dataclass(frozen=True)
class SwapAxisParams:
    """Parameters of SwapAxis."""

    dim1: int = param(0, "int", "first axis")
    dim2: int = param(0, "int", "second axis")


@register
class SwapAxis(Permutation):
    """data with two axes exchanged."""

    name = "SwapAxis"
    aliases = ("swapaxes",)
    Params = SwapAxisParams

    def order(self, p: SwapAxisParams, rank: int) -> tuple[int, ...]:
        order = list(range(rank))
        first, second = axis_in(p.dim1, rank), axis_in(p.dim2, rank)
        order[first], order[second] = second, first
        return tuple(order)

    def gradient(self, b: Builder, p: SwapAxisParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("SwapAxis", [grads[0]], dim1=p.dim1, dim2=p.dim2))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"dim1": 0, "dim2": 2}, ((2, 3, 4),)), Sample({}, ((2, 3),))]
