"""Plans loaded on the CPU. Binding does every look-up once; the loop of a step only calls what is ready."""
from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, cast

import numpy as np

from ...base import MXNetError, Shape, stored_shape
from ...ops.op import OperatorError, Workspace
from ...ops.registry import get_op
from ...plan.plan import Plan
from ..device import Before, Clock, nothing
from ..storages import storages_by_death
from .memory import CpuMemory
from .native.bind import bind, is_native
from .native.library import Library
from .native.run import NativeRun, joined
from .poison import poison, poison_unwritten, written_anew
from .streams import BUFFER_ELEMENTS

Call = Callable[[], Any]
SHORTEST = 1e-9
"""Seconds of an instruction that a clock cannot tell from none."""
_EMPTY_CALLS = 99
_NOTHING = np.empty(0, np.uint8)
_NO_SCRATCH = Workspace(_NOTHING)


class CpuProgram:
    """A plan that only computes, bound to arenas; bound again by itself when an arena has moved."""

    def __init__(self, plan: Plan, memory: CpuMemory, library: Library | None = None) -> None:
        self.plan = plan
        self.memory = memory
        self.library = library
        self._mapped = [memory.map(arena) for arena in plan.arenas if arena.space == "mapped"]
        self._generation = -1
        self._calls: list[Call] = []
        self._merged: dict[tuple[int, int], list[Call]] = {}

    def feed(self, name: str, value: np.ndarray) -> None:
        """Give an input its value for the next run."""
        np.copyto(self.array(self.plan.inputs[name]), value)

    def run(self, name: str) -> None:
        """Run one of the plan's ranges; MXNetError when there is no such range."""
        if name not in self.plan.ranges:
            raise MXNetError(f"the plan of `{self.plan.program}` has no range {name!r}; it has "
                             f"{', '.join(self.plan.ranges)}")
        self._ready()
        with _numpy_settings():
            self._run(*self.plan.ranges[name])

    def times(self, clock: Clock, before: Before = nothing) -> list[float]:
        """Run the whole plan once, each instruction to its end before the next; the seconds of each by `clock`.

        Little happens between two instructions, so that each finds caches as in a run or as `before` leaves them; what
        is timed of that is taken off.
        """
        self._ready()
        with _numpy_settings():
            empty = statistics.median(_seconds_of_each([_nothing] * _EMPTY_CALLS, clock, nothing))
            return [max(seconds - empty, SHORTEST) for seconds in _seconds_of_each(self._alone(), clock, before)]

    def array(self, buffer: int) -> np.ndarray:
        """A live array over a buffer in memory, as its layout stores it."""
        columns = self.plan.buffers
        return self.memory.view(self.plan.arenas[columns.arena[buffer]].name, columns.offset[buffer],
                                stored_shape(columns.shape[buffer], columns.layout[buffer]), columns.dtype[buffer])

    def _ready(self) -> None:
        """Bind again where arenas have moved; MXNetError in a child that was forked without them."""
        self.memory.check_owner()
        if self._generation != self.memory.generation:
            self._bind()

    def _run(self, first: int, last: int) -> None:
        calls = self._merged.get((first, last))
        if calls is None:
            calls = self._merged[first, last] = merged(self._calls[first:last])
        for call in calls:
            call()

    def _alone(self) -> list[Call]:
        """The instructions, each ready to be called by itself."""
        return self._calls

    def _bind(self) -> None:
        arrays = self._arrays()
        self._calls = [call_of(self.plan, i, arrays, self.library) for i in range(len(self.plan))]
        self._merged = {}
        self._generation = self.memory.generation

    def _arrays(self) -> list[np.ndarray]:
        """Live arrays over all buffers on the device; empty ones for those that no computation can use."""
        arenas = self.plan.arenas
        return [self.array(b) if arenas[k].on_device else _NOTHING for b, k in enumerate(self.plan.buffers.arena)]


@contextmanager
def _numpy_settings() -> Iterator[None]:
    """NumPy as a run wants it: small hidden buffers, and no warnings of numbers out of range."""
    before = np.setbufsize(BUFFER_ELEMENTS)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        np.setbufsize(before)


def _nothing() -> None:
    """An instruction that does nothing, to measure what calling one takes."""


def _seconds_of_each(calls: Sequence[Call], clock: Clock, before: Before) -> list[float]:
    seconds = []
    for i, call in enumerate(calls):
        before(i)
        start = clock()
        call()
        seconds.append(clock() - start)
    return seconds


def call_of(plan: Plan, i: int, arrays: list[np.ndarray], library: Library | None) -> Call:
    """A computation over live arrays of the plan's buffers, ready to be called: kernels or NumPy, as was planned."""
    if is_native(plan, i):
        return bind(plan, i, arrays, library)
    code = plan.instructions
    shapes = plan.buffers.shape
    ins = [_shape_only(shapes[b], arrays[b].dtype) if k in code.unread[i] else arrays[b]
           for k, b in enumerate(code.reads[i])]
    work = Workspace(arrays[code.workspace[i]]) if code.workspace[i] >= 0 else _NO_SCRATCH
    outs = [arrays[b] for b in code.writes[i]]
    return partial(_compute, code.name[i], get_op(code.op[i]).compute, code.params[i], ins, outs, work)


def _compute(node: str, compute: Callable[..., None], params: Any, ins: list[np.ndarray], outs: list[np.ndarray],
             work: Workspace) -> None:
    try:
        compute(params, ins, outs, work.reset())
    except OperatorError as error:
        raise error.at(node) from error.__cause__
    except MXNetError as error:
        raise MXNetError(f"{node}: {error}") from error
    except TypeError as error:
        given, made = (", ".join(array.dtype.name for array in arrays) for arrays in (ins, outs))
        raise MXNetError(f"{node}: its operator makes no {made} of {given} ({error}); put Cast(dtype='float32') before "
                         f"it") from error


def merged(calls: Iterable[Call]) -> list[Call]:
    """The same calls with each run of kernels that follow one another as one call."""
    result: list[Call] = []
    for native, group in groupby(calls, lambda call: isinstance(call, NativeRun)):
        if native:
            result.append(joined(cast("list[NativeRun]", list(group))))
        else:
            result.extend(group)
    return result


class PoisonedCpuProgram(CpuProgram):
    """Runs a plan with NaN in all bytes that nobody may read: before the program, in outputs and scratch before each
    instruction, and in every storage after its last reader. A stale or missing read then shows in the results."""

    def _bind(self) -> None:
        super()._bind()
        self._dying = storages_by_death(self.plan)
        self._fresh = [[self.array(b) for b in written_anew(self.plan, i)] for i in range(len(self.plan))]

    def _run(self, first: int, last: int) -> None:
        if first == 0:
            poison_unwritten(self.plan, self.memory)
        for i in range(first, last):
            self._run_poisoned(i)

    def _alone(self) -> list[Call]:
        poison_unwritten(self.plan, self.memory)
        return [partial(self._run_poisoned, i) for i in range(len(self.plan))]

    def _run_poisoned(self, i: int) -> None:
        for out in self._fresh[i]:
            poison(out)
        self._calls[i]()
        for buffer in self._dying.get(i + 1, ()):
            poison(self.array(buffer))


def _shape_only(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """An array of a shape and dtype without bytes of its own, for inputs that are read for their shape."""
    filler = np.full((), np.nan if dtype.kind == "f" else 0, dtype=dtype)
    return np.broadcast_to(filler, shape)
