"""Times of single instructions, measured: of one program's rehearsals, or of all runs while a recording is on."""
from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .binding import Group
from .formats.atomic import write_atomically
from .inspection import Rehearsal, stepwise
from .plan.plan import Kind, Plan


@dataclass(frozen=True)
class Event:
    """One instruction's run: `start` and `seconds` in seconds, the stream it belongs to, and what it did."""

    name: str
    op: str
    stream: str
    program: str
    start: float
    seconds: float
    shapes: tuple[tuple[int, ...], ...]


@dataclass
class Trace:
    """Events in the order of their ends."""

    events: list[Event] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The sum over all events."""
        return sum(event.seconds for event in self.events)

    def by_op(self) -> dict[str, tuple[int, float]]:
        """(runs, seconds) of each operator, the dearest first."""
        totals: dict[str, tuple[int, float]] = {}
        for event in self.events:
            runs, seconds = totals.get(event.op, (0, 0.0))
            totals[event.op] = runs + 1, seconds + event.seconds
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def text(self) -> str:
        """A table of the operators for people."""
        rows = [f"{'operator':<32} {'runs':>8} {'total ms':>12} {'mean ms':>12}"]
        rows += [f"{op:<32} {runs:>8} {seconds * 1e3:>12.4f} {seconds / runs * 1e3:>12.4f}"
                 for op, (runs, seconds) in self.by_op().items()]
        return "\n".join(rows) + "\n"

    def chrome(self) -> dict[str, Any]:
        """The trace in Chrome's Trace Event Format (times in microseconds), one thread for each stream."""
        begin = min((event.start for event in self.events), default=0.0)
        return {"displayTimeUnit": "ms", "traceEvents": [
            {"name": event.name, "cat": event.op, "ph": "X", "pid": event.program, "tid": event.stream,
             "ts": (event.start - begin) * 1e6, "dur": event.seconds * 1e6,
             "args": {"op": event.op, "outputs": [list(shape) for shape in event.shapes]}} for event in self.events]}

    def save(self, fname: str | os.PathLike) -> None:
        """Write the Chrome trace as JSON."""
        write_atomically(fname, json.dumps(self.chrome()).encode())


def profile(group: Group, plan: Plan, given: Mapping[str, np.ndarray], n: int) -> Trace:
    """The times of all instructions in n runs over a copy of the state, after one run that is not counted."""
    if n < 1:
        raise ValueError(f"a profile needs one run or more, got n={n}")
    rehearsal, trace = Rehearsal(group, plan), Trace()
    try:
        for run in range(n + 1):
            rehearsal.feed(given)
            _run(group, rehearsal.program, plan, range(len(plan)), trace if run else Trace())
    finally:
        rehearsal.close()
    return trace


def _run(group: Group, program: Any, plan: Plan, instructions: Sequence[int], trace: Trace) -> None:
    """Run the instructions of a stepwise program one by one, each to its end."""
    code, shapes = plan.instructions, plan.buffers.shape
    group.device.synchronize()
    for i in instructions:
        start = time.perf_counter()
        program.run(str(i))
        group.device.synchronize()
        seconds = time.perf_counter() - start
        op = code.op[i] if code.kind[i] == Kind.COMPUTE else Kind(code.kind[i]).name
        trace.events.append(Event(code.name[i], op, plan.streams[code.stream[i]], plan.program, start, seconds,
                                  tuple(shapes[b] for b in code.writes[i])))


# -- recording all runs --------------------------------------------------------------------------------------
class Recorder:
    """Whether runs are being timed, and what was timed so far."""

    def __init__(self) -> None:
        self.running = False
        self.trace = Trace()
        self._timed: WeakKeyDictionary[Any, TimedProgram] = WeakKeyDictionary()

    def runner(self, group: Group, program: Any) -> Any:
        """What is to be fed and run in the place of `program`: itself, or its timed twin while recording."""
        if not self.running:
            return program
        twin = self._timed.get(program)
        if twin is None:
            twin = self._timed[program] = TimedProgram(group, program.plan, self)
        return twin


class TimedProgram:
    """A program over the group's own memory that times each instruction."""

    def __init__(self, group: Group, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self._group, self._recorder = group, recorder
        self._program = group.device.load(stepwise(plan), group.memory)

    def feed(self, name: str, value: np.ndarray) -> None:
        """Give an input its value."""
        self._program.feed(name, value)

    def run(self, name: str) -> None:
        """Run a range."""
        _run(self._group, self._program, self.plan, range(*self.plan.ranges[name]), self._recorder.trace)


recorder = Recorder()
"""The recorder of this process, which `minigraph.profiler` switches."""
