"""The simulator: a plan replayed on a machine model, stream by stream, without computing anything.

Every stream runs its instructions in list order, each as soon as the one before it has ended; `Record` notes the time
that its stream has reached and `Wait` holds its stream until then. An op takes the time that the roofline gives its
declared cost, a copy its bytes over the bandwidth of the link, or of the disk where that is slower and the copy's other
end is a file; each also takes the launch cost once. Records and waits take what the machine has for events. Where a
profile has measured times, those count, longer or shorter by what the plan's addresses say of caches.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Cost, MXNetError, TensorType
from ..memory.machine import Machine
from ..memory.profile import Profile
from ..ops.registry import get_op
from .caches import coldness
from .plan import Kind, Plan


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a run would take on a machine, in seconds and bytes.

    `busy_seconds` and `stall_seconds` have one value a stream: time spent executing, and time lost in waits for
    events. `start` and `end` are float64 arrays with one value for each instruction of the range, in seconds from
    its beginning.
    """

    machine: str
    seconds: float
    streams: tuple[str, ...]
    busy_seconds: tuple[float, ...]
    stall_seconds: tuple[float, ...]
    copied_out_bytes: int
    copied_in_bytes: int
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    def text(self) -> str:
        """A short table for people."""
        lines = [f"{self.seconds * 1e3:.3f} ms on {self.machine}"]
        for name, busy, stall in zip(self.streams, self.busy_seconds, self.stall_seconds, strict=True):
            lines.append(f"{name:<8} busy {busy * 1e3:.3f} ms, stalled {stall * 1e3:.3f} ms")
        return "\n".join(lines)


def simulate(plan: Plan, machine: Machine, range_name: str | None = None,
             profile: Profile | None = None) -> Simulation:
    """Replay a plan, or one of its ranges, on a machine, by the measured times of a profile where there is one.

    MXNetError when there is no such range, or when an event is waited for that nothing before has recorded.
    """
    first, last = _range(plan, range_name)
    streams = len(plan.streams)
    busy, stall, now = [0.0] * streams, [0.0] * streams, [0.0] * streams
    start, end = [0.0] * (last - first), [0.0] * (last - first)
    seconds = instruction_seconds(plan, machine, profile)
    recorded = {event: 0.0 for event in _events(plan, 0, first)}  # earlier ranges have ended
    columns = plan.instructions
    for i in range(first, last):
        kind, stream, event = columns.kind[i], columns.stream[i], columns.event[i]
        start[i - first] = now[stream]
        if kind == Kind.RECORD:
            now[stream] += machine.event_seconds
            busy[stream] += machine.event_seconds
            recorded[event] = now[stream]
        elif kind == Kind.WAIT:
            if event not in recorded:
                raise MXNetError(f"plan {plan.program}: instruction {i} waits for event {event} before it is "
                                 "recorded; verify the plan")
            stall[stream] += max(recorded[event] - now[stream], 0.0)
            now[stream] = max(recorded[event], now[stream]) + machine.event_seconds
            busy[stream] += machine.event_seconds
        else:
            taken = seconds(i)
            busy[stream] += taken
            now[stream] += taken
        end[i - first] = now[stream]
    out, into = (_moved(plan, kind, first, last) for kind in (Kind.COPY_OUT, Kind.COPY_IN))
    return Simulation(machine.name, max(now), plan.streams, tuple(busy), tuple(stall), out, into,
                      np.array(start), np.array(end))


def instruction_seconds(plan: Plan, machine: Machine, profile: Profile | None = None) -> Callable[[int], float]:
    """A function from an instruction's number to its time on a machine, remembering times of equal costs."""
    costs = _Costs(plan)
    columns = plan.instructions
    cold = coldness(plan, profile.coldness) if profile is not None and profile.reuse else None

    def space_of(b: int) -> str:
        return plan.arenas[plan.buffers.arena[b]].space

    def seconds(i: int) -> float:
        kind = columns.kind[i]
        if kind == Kind.COMPUTE:
            cost = costs.of(i)
            if profile is not None:
                return profile.seconds(columns.op[i], columns.params[i], operand_types(plan, i), columns.algorithm[i],
                                       cost, machine, None if cold is None else cold[i])
            extra = costs.extra_bytes(i) / machine.bandwidth
            return machine.seconds(cost.flops, cost.read_bytes + cost.written_bytes) + extra
        if kind == Kind.FILL:
            return machine.seconds(0.0, plan.buffers.bytes[columns.writes[i][0]])
        if kind == Kind.COPY_OUT:
            return machine.copy_out_seconds(plan.buffers.bytes[columns.reads[i][0]], space_of(columns.writes[i][0]))
        if kind == Kind.COPY_IN:
            return machine.copy_in_seconds(plan.buffers.bytes[columns.reads[i][0]], space_of(columns.reads[i][0]))
        return 0.0

    return seconds


def instruction_costs(plan: Plan) -> Callable[[int], Cost]:
    """A function from a computation's number to the cost that its op declares."""
    return _Costs(plan).of


def operand_types(plan: Plan, i: int) -> list[TensorType]:
    """Types of what an instruction reads, and then of what it writes."""
    columns, buffers = plan.instructions, plan.buffers
    return [TensorType(buffers.shape[b], buffers.dtype[b], buffers.layout[b])
            for b in (*columns.reads[i], *columns.writes[i])]


class _Costs:
    """Costs of computations as their ops declare them, asked once for each op, parameters, types and algorithm."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.known: dict[Any, tuple[Cost, int]] = {}

    def of(self, i: int) -> Cost:
        """The cost of instruction `i`."""
        return self._of(i)[0]

    def extra_bytes(self, i: int) -> int:
        """Bytes that its algorithm moves beyond that; 0 for a device's own algorithms."""
        return self._of(i)[1]

    def _of(self, i: int) -> tuple[Cost, int]:
        columns, buffers = self.plan.instructions, self.plan.buffers
        ins, outs, algorithm = columns.reads[i], columns.writes[i], columns.algorithm[i]
        key = (columns.op[i], id(columns.params[i]),
               tuple([(buffers.shape[b], buffers.dtype[b], buffers.layout[b]) for b in ins]),
               tuple([(buffers.shape[b], buffers.dtype[b], buffers.layout[b]) for b in outs]), algorithm)
        found = self.known.get(key)
        if found is None:
            op, types = get_op(columns.op[i]), ([TensorType(*t) for t in key[2]], [TensorType(*t) for t in key[3]])
            offered = op.algorithms(columns.params[i], *types)
            extra_bytes = next((a.extra_bytes for a in offered if a.name == algorithm), 0)
            found = self.known[key] = op.cost(columns.params[i], *types), extra_bytes
        return found


def _range(plan: Plan, name: str | None) -> tuple[int, int]:
    if name is None:
        return 0, len(plan)
    if name not in plan.ranges:
        raise MXNetError(f"plan {plan.program} has no range {name!r}; it has {', '.join(plan.ranges)}")
    return plan.ranges[name]


def _events(plan: Plan, first: int, last: int) -> list[int]:
    columns = plan.instructions
    return [columns.event[i] for i in range(first, last) if columns.kind[i] == Kind.RECORD]


def _moved(plan: Plan, kind: Kind, first: int, last: int) -> int:
    columns = plan.instructions
    return sum(plan.buffers.bytes[columns.reads[i][0]] for i in range(first, last) if columns.kind[i] == kind)
