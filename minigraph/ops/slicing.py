"""Ops that join and cut tensors: Concat, SliceChannel, slice_axis, slice."""
from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry, PartialShape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, is_complete, merge_shapes, numbered
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register
from .shape import axis_in


def _with(shape: Sequence[int | None], axis: int, dim: int | None) -> tuple[int | None, ...]:
    return (*shape[:axis], dim, *shape[axis + 1:])


def along(axis: int, s: slice) -> tuple[slice, ...]:
    """The index that takes `s` along an axis and everything along those before it."""
    return (*(slice(None),) * axis, s)


@dataclass(frozen=True)
class ConcatParams:
    """Parameters of Concat."""

    num_args: int = param(REQUIRED, "int", "number of inputs")
    dim: int = param(1, "int", "axis along which the inputs are joined")


@register
class Concat(Op):
    """The inputs one after the other along an axis."""

    name = "Concat"
    aliases: ClassVar[tuple[str, ...]] = ("concat",)
    Params = ConcatParams
    recompute = "cheap"

    def inputs(self, p: ConcatParams) -> tuple[str, ...]:
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def sliced(self, p: ConcatParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if axis_in(p.dim, len(ins[0].shape)) else None

    def infer_shape(self, p: ConcatParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        known = [s for s in (*ins, outs[0]) if s is not None]
        if not known:
            return ins, outs
        axis = axis_in(p.dim, len(known[0]))
        frame = merge_shapes(*(_with(s, axis, None) for s in known))
        assert frame is not None
        dims = [None if s is None else s[axis] for s in ins]
        total = None if outs[0] is None else outs[0][axis]
        if None not in dims:
            joined = sum(d for d in dims if d is not None)
            if total not in (None, joined):
                raise ShapeError(f"inputs {', '.join(map(format_shape, ins))} join to {joined} along axis "
                                 f"{axis}, not to {total}")
            total = joined
        elif total is not None and dims.count(None) == 1:
            dims[dims.index(None)] = total - sum(d for d in dims if d is not None)
        return [_with(frame, axis, d) for d in dims], [_with(frame, axis, total)]

    def compute(self, p: ConcatParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        axis = axis_in(p.dim, outs[0].ndim)
        start = 0
        for array in ins:
            stop = start + array.shape[axis]
            np.copyto(outs[0][along(axis, slice(start, stop))], array)
            start = stop

    def gradient(self, b: Builder, p: ConcatParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        found: list[Entry | None] = []
        start = 0
        for entry, ask in zip(ins, wanted, strict=True):
            shape = b.shape(entry)
            stop = start + shape[axis_in(p.dim, len(shape))]
            cut = ask and grads[0] is not None and stop > start
            found.append(only(b.node("slice_axis", [grads[0]], axis=p.dim, begin=start, end=stop))
                         if cut and grads[0] is not None else None)
            start = stop
        return found

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": 2}, ((2, 3), (2, 1))),
                Sample({"num_args": 3, "dim": 0}, ((2, 3), (1, 3), (2, 3))),
                Sample({"num_args": 2, "dim": -1}, ((2, 3, 2), (2, 3, 4))),
                Sample({"num_args": 1}, ((2, 3),))]


@register
class RnnParamConcat(Concat):
    """Concat, under the name by which Gluon's exported recurrent layers join their parameters."""

    name = "_rnn_param_concat"
    aliases = ()

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": 2, "dim": 0}, ((6,), (4,)))]


@dataclass(frozen=True)
class SliceChannelParams:
    """Parameters of SliceChannel."""

    num_outputs: int = param(REQUIRED, "int", "number of equal parts")
    axis: int = param(1, "int", "axis along which data is cut")
    squeeze_axis: bool = param(False, "bool", "drop the axis, which must be left with length 1")


@register
class SliceChannel(Op):
    """data in equal parts along an axis."""

    name = "SliceChannel"
    aliases = ("split",)
    Params = SliceChannelParams
    recompute = "cheap"

    def outputs(self, p: SliceChannelParams) -> tuple[str, ...]:
        if p.num_outputs < 1:
            raise ShapeError(f"SliceChannel: num_outputs {p.num_outputs} must be at least 1")
        return numbered("output", p.num_outputs) if p.num_outputs > 1 else ("output",)

    def infer_shape(self, p: SliceChannelParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        out = merge_shapes(*outs)
        data = ins[0]
        if out is not None:
            axis = axis_in(p.axis, len(out) + p.squeeze_axis)
            part = 1 if p.squeeze_axis else out[axis]
            rest = out[axis:] if p.squeeze_axis else out[axis + 1:]
            data = merge_shapes(data, (*out[:axis], None if part is None else part * p.num_outputs, *rest))
        if data is None:
            return [None], [out] * p.num_outputs
        return [data], [merge_shapes(self._part(p, data), out)] * p.num_outputs

    def sliced(self, p: SliceChannelParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if axis_in(p.axis, len(ins[0].shape)) else None

    def _part(self, p: SliceChannelParams, data: Sequence[int | None]) -> PartialShape:
        axis = axis_in(p.axis, len(data))
        dim = data[axis]
        if dim is not None and (dim % p.num_outputs or p.squeeze_axis and dim != p.num_outputs):
            raise ShapeError(f"axis {axis} of {format_shape(tuple(data))} cannot be cut into {p.num_outputs} "
                             f"parts" + (" of length 1" if p.squeeze_axis else ""))
        if p.squeeze_axis:
            return (*data[:axis], *data[axis + 1:])
        return _with(data, axis, None if dim is None else dim // p.num_outputs)

    def compute(self, p: SliceChannelParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        axis = axis_in(p.axis, ins[0].ndim)
        length = ins[0].shape[axis] // p.num_outputs
        for i, out in enumerate(outs):
            part = ins[0][along(axis, slice(i * length, (i + 1) * length))]
            np.copyto(out.reshape(part.shape), part)

    def gradient(self, b: Builder, p: SliceChannelParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if not wanted[0] or all(g is None for g in grads):
            return [None]
        parts = [only(b.node("zeros_like", [out])) if g is None else g
                 for g, out in zip(grads, outs, strict=True)]
        if p.squeeze_axis:
            axis = axis_in(p.axis, len(b.shape(ins[0])))
            parts = [only(b.node("expand_dims", [part], axis=axis)) for part in parts]
        return [only(b.node("Concat", parts, num_args=len(parts), dim=p.axis))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_outputs": 2}, ((2, 4),)), Sample({"num_outputs": 3, "axis": -1}, ((2, 2, 3),)),
                Sample({"num_outputs": 3, "axis": 1, "squeeze_axis": True}, ((2, 3, 4),))]


@dataclass(frozen=True)
class SliceAxisParams:
    """Parameters of slice_axis."""

    axis: int = param(REQUIRED, "int", "axis along which data is cut")
    begin: int = param(REQUIRED, "int", "first index; negative counts from the end")
    end: int | None = param(None, "int", "index after the last; the length when not given")


@dataclass(frozen=True)
class SliceParams:
    """Parameters of slice."""

    begin: str = param(REQUIRED, "str", "first index of each axis; None for the start")
    end: str = param(REQUIRED, "str", "index after the last of each axis; None for the end")
    step: str | None = param("()", "str", "step of each axis; None for 1", optional=True)


@lru_cache(maxsize=1024)
def optional_ints(text: str | None) -> tuple[int | None, ...]:
    """A tuple of integers and Nones from its text, () from None; ShapeError when it is none."""
    if text is None:
        return ()
    try:
        value = ast.literal_eval(text.strip())
        items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        return tuple(None if item is None else int(item) for item in items)
    except (ValueError, SyntaxError, TypeError) as error:
        raise ShapeError(f"slice: {text!r} is no tuple of integers and None") from error


class Slicing(Op):
    """Base of ops that take a part of data; a subclass gives `key`."""

    recompute = "cheap"
    looks_up = (0,)

    def key(self, p: Any, rank: int) -> tuple[slice, ...]:
        """The index of the part."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        key = self.key(p, len(shape))
        dims = [None if d is None else len(range(*s.indices(d))) for d, s in zip(shape, key, strict=False)]
        out = (*dims, *shape[len(key):])
        # A full slice keeps its dimension, so a known output completes it.
        merged = merge_shapes(out, outs[0])
        assert merged is not None
        full = [i >= len(key) or key[i] == slice(None) for i in range(len(shape))]
        return [tuple(m if f else d for m, f, d in zip(merged, full, shape, strict=True))], [merged]

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        key = self.key(p, len(ins[0].shape))
        return Sliced.every(ins, outs) if key[0] == slice(None) else None

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0][self.key(p, ins[0].ndim)])

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node(f"_{self.name}_backward", [grads[0], ins[0]], **vars(p)))]


class SlicingBackward(Op):
    """Base: the gradient of a part, 0 outside it; of data only the shape is read."""

    recompute = "cheap"
    forward: type[Slicing]

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[1], outs[0])
        if not is_complete(shape):
            return [ins[0], shape], [shape]
        (data,), (grad,) = self.forward().infer_shape(p, [shape], [ins[0]])
        return [grad, data], [data]

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        key = self.forward().key(p, len(outs[0].shape))
        return Sliced.every(ins, outs) if key[0] == slice(None) else None

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        outs[0][self.forward().key(p, outs[0].ndim)] = ins[0]


@register
class SliceAxis(Slicing):
    """The part of data from begin to end along one axis."""

    name = "slice_axis"
    Params = SliceAxisParams

    def key(self, p: SliceAxisParams, rank: int) -> tuple[slice, ...]:
        return along(axis_in(p.axis, rank), slice(p.begin or None, p.end))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": 1, "begin": 1, "end": 3}, ((2, 4),)),
                Sample({"axis": 0, "begin": -2}, ((3, 2, 2),))]


@register
class SliceAxisBackward(SlicingBackward):
    """grad in its place along one axis, 0 elsewhere."""

    name = "_slice_axis_backward"
    Params = SliceAxisParams
    forward = SliceAxis

    def samples(self) -> Sequence[Sample]:
        return [Sample({"axis": 1, "begin": 1, "end": 3}, ((2, 2), (2, 4)), differentiable=False)]


@register
class Slice(Slicing):
    """The part of data from begin to end, with steps, along the first axes."""

    name = "slice"
    aliases = ("crop",)
    Params = SliceParams

    def key(self, p: SliceParams, rank: int) -> tuple[slice, ...]:
        begin, end, step = (optional_ints(text) for text in (p.begin, p.end, p.step))
        if len(begin) != len(end) or len(begin) > rank or (step and len(step) != len(begin)) or 0 in step:
            raise ShapeError(f"slice: begin={p.begin}, end={p.end}, step={p.step} do not fit a tensor with "
                             f"{rank} axes; give one begin and end for each leading axis, and no step 0")
        return tuple(slice(*item) for item in zip(begin, end, step or (None,) * len(begin), strict=True))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"begin": "(1,)", "end": "(3,)"}, ((5,),)),
                Sample({"begin": "(0, None)", "end": "(2, -1)"}, ((3, 4, 2),)),
                Sample({"begin": "(None, 3)", "end": "(None, None)", "step": "(2, -1)"}, ((3, 4),))]


@register
class SliceBackward(SlicingBackward):
    """grad in its place, 0 elsewhere."""

    name = "_slice_backward"
    Params = SliceParams
    forward = Slice

    def samples(self) -> Sequence[Sample]:
        return [Sample({"begin": "(1,)", "end": "(3,)"}, ((2,), (5,)), differentiable=False)]
