"""Sequences of unequal lengths, (time, batch, ...) or (batch, time, ...): SequenceMask, SequenceLast,
SequenceReverse, and the numbers of _arange."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry, MXNetError, PartialShape, TensorType, dtype_of
from .chunks import chunks
from .elemwise import only
from .indexing import PIECE, ByIndex, IdRange, numbers
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found, flat
from .registry import register
from .shape import axis_in


@dataclass(frozen=True)
class SequenceParams:
    """Parameters of SequenceLast, SequenceReverse, and their gradients."""

    use_sequence_length: bool = param(False, "bool", "whether an input tells the length of each sequence")
    axis: int = param(0, "int", "the time axis: 0, or 1 with the batch first")


@dataclass(frozen=True)
class SequenceMaskParams:
    """Parameters of SequenceMask."""

    use_sequence_length: bool = param(False, "bool", "whether an input tells the length of each sequence")
    value: float = param(0.0, "float", "value of elements past the end of their sequence")
    axis: int = param(0, "int", "the time axis: 0, or 1 with the batch first")


Lengths = SequenceParams | SequenceMaskParams


class SequenceOp(ByIndex):
    """Base: inputs in `given`, of which the first is data or its like, then the lengths if there are any."""

    Params: ClassVar[type] = SequenceParams
    given: ClassVar[tuple[str, ...]] = ("data",)
    least: ClassVar[int] = 0
    """The least length of a sequence."""
    axes: ClassVar[tuple[int, ...]] = (0, 1)

    def inputs(self, p: Lengths) -> tuple[str, ...]:
        return (*self.given, "sequence_length") if p.use_sequence_length else self.given

    @property
    def ids(self) -> tuple[int, ...]:  # type: ignore[override]
        """The input with the lengths."""
        return (len(self.given),)

    def check(self, p: Lengths, data: PartialShape) -> None:
        """Raise unless data has a time and a batch axis, and the op knows the axis asked for."""
        if p.axis not in self.axes:
            raise MXNetError(f"{self.name}: axis={p.axis}; it must be {' or '.join(map(str, self.axes))}")
        if data is not None and len(data) < 2:
            raise ShapeError(f"{self.name}: data {format_shape(data)} must have a time axis and a batch axis")

    def length_shapes(self, p: Lengths, data: PartialShape, given: Sequence[PartialShape],
                      ) -> list[PartialShape]:
        """The shape of the lengths, where there are any."""
        batch = None if data is None else (data[1 - p.axis],)
        return [merge_shapes(shape, batch) for shape in given]

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], outs[0])
        self.check(p, data)
        return [data, *self.length_shapes(p, data, ins[1:])], [data]

    def id_ranges(self, p: Lengths, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        time = ins[len(self.given) - 1].shape[p.axis]
        return [IdRange(self._where, len(self.given), lengths.shape, time + 1, least=self.least)
                for lengths in ins[len(self.given):]]

    @property
    def _where(self) -> str:
        return f"{self.name}: sequence length"

    def sequences(self, p: Lengths, lengths: Sequence[np.ndarray], *arrays: np.ndarray,
                  ) -> Iterator[tuple[Any, ...]]:
        """(length, sequence of each array with time first) for each member of the batch."""
        views = [a if p.axis == 0 else a.swapaxes(0, 1) for a in arrays]
        time, batch = views[0].shape[:2]
        if not lengths:
            for n in range(batch):
                yield (time, *(v[:, n] for v in views))
            return
        for start, counts in numbers(lengths[0], time + 1, self._where, least=self.least):
            for n, count in enumerate(counts.tolist(), start):
                yield (count, *(v[:, n] for v in views))


def _cases(params: Sequence[dict[str, Any]], shape: tuple[int, ...]) -> list[Sample]:
    """Samples without lengths and with them, for each of some parameters."""
    cases = []
    for each in params:
        batch = shape[1 - each.get("axis", 0)]
        cases.append(Sample(each, (shape,)))
        cases.append(Sample({**each, "use_sequence_length": True}, (shape, (batch,)),
                            integer={"sequence_length": shape[each.get("axis", 0)]}))
    return cases


@register
class SequenceMask(SequenceOp):
    """data with `value` past the end of each sequence."""

    name = "SequenceMask"
    Params = SequenceMaskParams

    def inplace(self, p: SequenceMaskParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: SequenceMaskParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0])
        if p.use_sequence_length:
            for count, out in self.sequences(p, ins[1:], outs[0]):
                out[count:] = p.value

    def gradient(self, b: Builder, p: SequenceMaskParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        rest: list[Entry | None] = [None] * (len(ins) - 1)
        if grads[0] is None or not wanted[0]:
            return [None, *rest]
        return [only(b.node("SequenceMask", [grads[0], *ins[1:]], use_sequence_length=p.use_sequence_length,
                            axis=p.axis)), *rest]

    def samples(self) -> Sequence[Sample]:
        return _cases(({"value": 1.5}, {"axis": 1}), (3, 4, 2)) + _cases(({},), (2, 3))


@register
class SequenceReverse(SequenceOp):
    """data (time, batch, ...) with each sequence in reverse order, and what is past its end as it was."""

    name = "SequenceReverse"
    axes = (0,)

    def compute(self, p: SequenceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if not p.use_sequence_length:
            np.copyto(outs[0], ins[0][::-1])
            return
        for count, data, out in self.sequences(p, ins[1:], ins[0], outs[0]):
            np.copyto(out[:count], data[:count][::-1])
            np.copyto(out[count:], data[count:])

    def gradient(self, b: Builder, p: SequenceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        rest: list[Entry | None] = [None] * (len(ins) - 1)
        if grads[0] is None or not wanted[0]:
            return [None, *rest]
        return [only(b.node("SequenceReverse", [grads[0], *ins[1:]], **vars(p))), *rest]

    def samples(self) -> Sequence[Sample]:
        return _cases(({},), (3, 4, 2)) + _cases(({},), (2, 3))


def _without_time(p: SequenceParams, data: PartialShape) -> PartialShape:
    return None if data is None else (data[1 - p.axis], *data[2:])


@register
class SequenceLast(SequenceOp):
    """The last element of each sequence, (batch, ...); a length of 0 raises."""

    name = "SequenceLast"
    least = 1
    looks_up = (0,)

    def infer_shape(self, p: SequenceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        self.check(p, ins[0])
        if ins[0] is not None and ins[0][p.axis] == 0:
            raise ShapeError(f"{self.name}: data {format_shape(ins[0])} has no element along axis {p.axis}, time, of "
                             f"which one is the last")
        lengths = self.length_shapes(p, ins[0], ins[1:])
        return [ins[0], *lengths], [merge_shapes(_without_time(p, ins[0]), outs[0])]

    def compute(self, p: SequenceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        found = self.sequences(p, ins[1:], ins[0])
        for n, (count, data) in enumerate(found):
            outs[0][n] = data[count - 1]

    def gradient(self, b: Builder, p: SequenceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        rest: list[Entry | None] = [None] * (len(ins) - 1)
        if grads[0] is None or not wanted[0]:
            return [None, *rest]
        return [only(b.node("_sequence_last_backward", [grads[0], *ins], **vars(p))), *rest]

    def samples(self) -> Sequence[Sample]:
        return [s for s in (*_cases(({}, {"axis": 1}), (3, 4, 2)), *_cases(({},), (2, 3)))
                if not s.integer] + [Sample({"use_sequence_length": True}, ((2, 3, 2), (3,)), low=1.0, high=1.9),
                                     Sample({"use_sequence_length": True, "axis": 1}, ((3, 2), (3,)),
                                            low=1.0, high=2.9)]


@register
class SequenceLastBackward(SequenceOp):
    """grad at the last element of each sequence, 0 elsewhere; data is read for its shape."""

    name = "_sequence_last_backward"
    given = ("grad", "data")
    least = 1

    def unread(self, p: SequenceParams) -> tuple[int, ...]:
        return (1,)

    def infer_shape(self, p: SequenceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[1], outs[0])
        grad = merge_shapes(ins[0], _without_time(p, data))
        return [grad, data, *self.length_shapes(p, data, ins[2:])], [data]

    def compute(self, p: SequenceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        for n, (count, out) in enumerate(self.sequences(p, ins[2:], outs[0])):
            out[count - 1] = ins[0][n]


@dataclass(frozen=True)
class ArangeParams:
    """Parameters of _arange."""

    start: float = param(REQUIRED, "float", "first number; with no stop the stop, and numbers begin at 0")
    stop: float | None = param(None, "float", "end, which is not among the numbers")
    step: float = param(1.0, "float", "difference of neighbours")
    repeat: int = param(1, "int", "how often each number stands")
    infer_range: bool = param(False, "bool", "false: the range is given by `stop`", (False,))
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@dataclass(frozen=True)
class ArangeLikeParams:
    """Parameters of arange_like."""

    start: float = param(0.0, "float", "first number")
    step: float = param(1.0, "float", "difference of neighbours")
    repeat: int = param(1, "int", "how often each number stands")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    axis: int | None = param(None, "int", "number the places along this axis; all elements when not given")


@register
class ArangeLike(Op):
    """Numbers from start by steps, each `repeat` times: as many as data has elements, in its shape, or along an axis;
    no gradient."""

    name = "_contrib_arange_like"
    Params = ArangeLikeParams

    def infer_shape(self, p: ArangeLikeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.step == 0 or p.repeat < 1 or not all(map(math.isfinite, (p.start, p.step))):
            raise ShapeError(f"start {p.start} and step {p.step} must be finite, step not 0, and repeat {p.repeat} at "
                             f"least 1")
        data = ins[0]
        if data is not None and 0 in data:
            raise ShapeError(f"data {format_shape(data)} is empty along axis {data.index(0)}")
        if p.axis is None:
            shape = merge_shapes(data, outs[0])
            return [shape], [shape]
        return [data], [merge_shapes(None if data is None else (data[axis_in(p.axis, len(data))],), outs[0])]

    def expand(self, b: Builder, p: ArangeLikeParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        shape = b.shape(ins[0])
        count = math.prod(shape) if p.axis is None else shape[p.axis]
        numbers = -(-count // p.repeat)
        found = b.node("_arange", [], start=numbers, repeat=min(p.repeat, count), dtype=b.dtype(ins[0]))
        if numbers * p.repeat > count:
            found = b.node("slice_axis", found, axis=0, begin=0, end=count)
        if p.step != 1:
            found = b.node("_mul_scalar", found, scalar=p.step)
        if p.start:
            found = b.node("_plus_scalar", found, scalar=p.start)
        return found if p.axis is not None else b.node("Reshape", found, shape=shape)

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, ((2, 5),), differentiable=False) for params in (
            {}, {"start": 1, "step": 2}, {"axis": -1, "repeat": 2}, {"axis": 0, "step": -0.5}, {"repeat": 3})]


@register
class Arange(Op):
    """Numbers from start to before stop by steps, each `repeat` times; no gradient."""

    name = "_arange"
    Params = ArangeParams
    recompute = "cheap"

    def inputs(self, p: ArangeParams) -> tuple[str, ...]:
        return ()

    def infer_shape(self, p: ArangeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        start, stop = (0.0, p.start) if p.stop is None else (p.start, p.stop)
        if p.step == 0 or p.repeat < 1:
            raise ShapeError(f"_arange: step {p.step} must not be 0 and repeat {p.repeat} must be at least 1")
        if not all(map(math.isfinite, (start, stop, p.step))):
            raise ShapeError(f"_arange: from {start} to {stop} by {p.step}; all three must be finite numbers")
        count = math.ceil((stop - start) / p.step)
        if count < 1:
            raise ShapeError(f"_arange: from {start} to {stop} by {p.step} there is no number")
        return [], [merge_shapes((count * p.repeat,), outs[0])]

    def infer_dtype(self, p: ArangeParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [], [dtype_of(p.dtype)]

    def compute(self, p: ArangeParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out = flat(outs[0])
        for s in chunks(out.size, PIECE):
            places = np.arange(s.start, s.stop) // p.repeat
            out[s] = (0.0 if p.stop is None else p.start) + p.step * places

    def gradient(self, b: Builder, p: ArangeParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return []

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (), differentiable=False) for params in (
            {"start": 5}, {"start": 1, "stop": 4, "step": 0.5}, {"start": 3, "stop": 0, "step": -1, "repeat": 2},
            {"start": 2, "stop": 5, "dtype": "int32"})]
