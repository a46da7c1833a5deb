"""Plans of several streams on the CPU: computations, copies, fills and events become steps of a timeline."""
from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import numpy as np

from ...base import MXNetError
from ...plan.plan import Kind, Plan
from .memory import CpuMemory
from .native.library import Library
from .native.run import NativeRun
from .poison import deaths, poison_buffer, poison_unwritten, written_anew
from .program import Call, CpuProgram, call_of, merged
from .spaces import OUTSIDE, Place, mover
from .streams import Delay, Progress, Step, Timeline, copy, walk


class StreamedCpuProgram(CpuProgram):
    """A plan with copies and several streams. A run returns when all streams have come to their ends.

    `poison` and `delay` as `CpuDevice` has them. Host memory and swap files are made here and at no later time.
    """

    def __init__(self, plan: Plan, memory: CpuMemory, library: Library | None = None, poison: bool = False,
                 delay: Delay | None = None) -> None:
        super().__init__(plan, memory, library)
        self._poison, self._delay = poison, delay
        self._timelines: dict[tuple[int, int], Timeline] = {}
        self._serial: list[Call] = []
        self._awaited = _awaited(plan)
        self._deaths = deaths(plan) if poison else {}
        self._reserve_spaces()

    def _reserve_spaces(self) -> None:
        used = set(self.plan.buffers.arena)
        for number, arena in enumerate(self.plan.arenas):
            if arena.space in OUTSIDE and number in used:
                self.memory.reserve_space(arena.name, arena.space, arena.bytes)

    def _run(self, first: int, last: int) -> None:
        if first == 0 and self._poison:
            poison_unwritten(self.plan, self.memory)
        self._timelines[first, last].run(self.memory.workers)

    def _alone(self) -> list[Call]:
        """The instructions in the order of the list, copies too on the calling thread: nothing is waited for."""
        if self._poison:
            poison_unwritten(self.plan, self.memory)
        if not self._serial:  # kept, for kernels' arguments are laid out in a call's first run
            steps, progress = self._steps(), Progress()
            bodies = ([] if kind in (Kind.RECORD, Kind.WAIT) else [*steps.of(i, progress), *steps.behind(i)]
                      for i, kind in enumerate(self.plan.instructions.kind))
            self._serial = [body[0] if len(body) == 1 else partial(walk, progress, body) for body in bodies]
        return self._serial

    def _bind(self) -> None:
        self._reserve_spaces()  # again, for they may have been given back
        steps = self._steps()
        self._timelines = {bounds: self._timeline(*bounds, steps) for bounds in self.plan.ranges.values()}
        self._serial = []
        self._generation = self.memory.generation

    def _steps(self) -> _Steps:
        return _Steps(self.plan, self.memory, self.library, self._poison, self._deaths, self._delay, self._arrays())

    def _timeline(self, first: int, last: int, steps: _Steps) -> Timeline:
        code, progress = self.plan.instructions, Progress()
        streams: list[list[Step]] = [[] for _ in self.plan.streams]
        signals: dict[int, list[Step]] = {}
        for i in range(last - 1, first - 1, -1):  # backwards, so that a record finds the locks of its waits
            record = self._awaited[i]
            body: list[Step] = []
            if record >= first:  # earlier ranges have ended
                lock = progress.lock()
                signals.setdefault(record, []).append(lock.release)
                body = [lock.acquire]
            elif code.kind[i] == Kind.RECORD:
                body = signals.pop(i, [])
            elif code.kind[i] != Kind.WAIT:
                body = steps.of(i, progress)
            streams[code.stream[i]] += reversed(body + steps.behind(i))
        return Timeline(progress, [_stoppable(merged(mine[::-1]), progress) for mine in streams])


class _Steps:
    """Makes the steps of single instructions."""

    def __init__(self, plan: Plan, memory: CpuMemory, library: Library | None, poison: bool,
                 deaths: dict[int, list[int]], delay: Delay | None, arrays: list[np.ndarray]) -> None:
        self.plan, self.memory, self.library, self.arrays = plan, memory, library, arrays
        self.poison, self.deaths, self.delay = poison, deaths, delay
        self.chances = [random.Random(f"{delay.seed} {name}") for name in plan.streams] if delay else []

    def of(self, i: int, progress: Progress) -> list[Step]:
        """What instruction `i` does, after the sleep and the poison that come before it."""
        code = self.plan.instructions
        steps: list[Step] = []
        if self.delay and self.delay.bound(code.kind[i]):
            steps.append(self.delay.step(self.chances[code.stream[i]], code.kind[i]))
        if self.poison:
            steps += [self._poisoning(b) for b in written_anew(self.plan, i)]
        return [*steps, self._step(i, progress)]

    def behind(self, i: int) -> list[Step]:
        """The poison behind instruction `i`."""
        return [self._poisoning(b) for b in self.deaths.get(i, ())]

    def _step(self, i: int, progress: Progress) -> Step:
        code = self.plan.instructions
        if code.kind[i] == Kind.COMPUTE:
            return call_of(self.plan, i, self.arrays, self.library)
        if code.kind[i] == Kind.FILL:
            return partial(self.arrays[code.writes[i][0]].fill, code.value[i])
        source, target = (self._place(b) for b in (*code.reads[i], *code.writes[i]))
        return partial(copy, progress, mover(source, target), self.plan.buffers.bytes[code.reads[i][0]])

    def _place(self, b: int) -> Place:
        columns = self.plan.buffers
        return self.memory.place(self.plan.arenas[columns.arena[b]].name, columns.offset[b], columns.bytes[b])

    def _poisoning(self, b: int) -> Step:
        return partial(poison_buffer, self.plan, self.memory, b)


def _awaited(plan: Plan) -> Sequence[int]:
    """For each wait the record that holds it up: -1 for everything else, and for a record of the same stream.

    MXNetError for a wait that would never end.
    """
    code = plan.instructions
    recorded: dict[int, int] = {}
    result = [-1] * len(plan)
    for i, (kind, event) in enumerate(zip(code.kind, code.event, strict=True)):
        if kind == Kind.RECORD:
            recorded[event] = i
        elif kind == Kind.WAIT:
            if event not in recorded:
                raise MXNetError(f"the plan of `{plan.program}` cannot run: instruction {i} waits for event {event}, "
                                 f"which no instruction before it records; verify the plan")
            if code.stream[recorded[event]] != code.stream[i]:
                result[i] = recorded[event]
    return result


def _stoppable(steps: Sequence[Step], progress: Progress) -> list[Step]:
    """The steps, with runs of kernels that end early once the range is stopped."""
    return [partial(step, lambda: progress.stopped) if isinstance(step, NativeRun) else step for step in steps]
