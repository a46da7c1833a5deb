"""Putting swaps into a schedule: when each copy begins, when its source is released, when it comes back.

Copies go one after the other on each of two streams beside the computation. A source is released where the modelled
copy has left, so nobody waits; a copy back begins as late as it can and still be in time. Where there is no such
moment the copy begins as early as possible and the computation waits: the model says for how long.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...base import Entry
from ..schedule import DROP, IN, OUT, RUN, Schedule
from .problem import Problem


@dataclass(frozen=True)
class Absence:
    """The stretch of a schedule in which nobody reads a value: after the step `last` and before the step `back`."""

    entry: Entry
    last: int
    back: int


@dataclass(frozen=True)
class Trip:
    """A value's way to host memory and back, in positions of a schedule: the copy out begins after the step `out`, its
    source is released before the step `release`, and the copy back begins before the step `issue`. Without `out` the
    copy of an earlier trip is still in host memory."""

    entry: Entry
    out: int | None
    release: int
    issue: int


def carry(schedule: Schedule, trips: Sequence[Trip]) -> Schedule:
    """The schedule with the trips in it; those that go first before a step are listed first. Releases at a step come
    before copies back at it, so that these find room."""
    before: dict[int, list[tuple[str, Entry]]] = {}
    after: dict[int, list[tuple[str, Entry]]] = {}
    for trip in trips:
        if trip.out is not None:
            after.setdefault(trip.out, []).append((OUT, trip.entry))
        before.setdefault(trip.release, []).append((DROP, trip.entry))
    for trip in trips:
        before.setdefault(trip.issue, []).append((IN, trip.entry))
    steps: list[tuple[str, int]] = []
    for k, step in enumerate(schedule.steps):
        steps += [*before.get(k, ()), step, *after.get(k, ())]
    return Schedule(tuple(steps))


def uses(problem: Problem, schedule: Schedule) -> dict[Entry, list[int]]:
    """For each droppable value that is read, and that the schedule makes once and never drops, the steps that make
    and read it, in order."""
    graph = problem.graph
    runs = Counter(schedule.order)
    wanted = {e for e in problem.droppable if runs[graph.node_of[e]] == 1}
    wanted.difference_update(schedule.operands(DROP).tolist())
    found: dict[Entry, list[int]] = {}
    for t, (kind, node) in enumerate(schedule.steps):
        if kind == RUN:
            for entry in wanted.intersection((*problem.reads[node], *graph.entries(node))):
                found.setdefault(entry, []).append(t)
    return {entry: steps for entry, steps in found.items() if len(steps) > 1}


def backward_begin(problem: Problem, schedule: Schedule) -> int:
    """The first step that runs a node again or a node of backward."""
    forward, ran = set(problem.forward), set[int]()
    for t, (kind, node) in enumerate(schedule.steps):
        if kind == RUN:
            if node in ran or node not in forward:
                return t
            ran.add(node)
    return len(schedule)


def absences(problem: Problem, schedule: Schedule, entries: Collection[Entry]) -> list[Absence]:
    """For each value that forward makes, backward reads and the schedule never drops: the absence between them.

    Backward begins with the first node that runs again. A value that is made again before backward has read it is left
    out, for nobody needs what was away.
    """
    wanted = set(entries)
    wanted.difference_update(schedule.operands(DROP).tolist())
    forward = frozenset(problem.forward)
    ran: set[int] = set()
    last: dict[Entry, int] = {}
    back: dict[Entry, int] = {}
    started = False
    for k, (kind, node) in enumerate(schedule.steps):
        if kind != RUN:
            continue
        started = started or node in ran or node not in forward
        ran.add(node)
        for entry in problem.reads[node]:
            if not started and entry in wanted:
                last[entry] = k
            elif entry in last:
                back.setdefault(entry, k)
        for entry in problem.graph.entries(node):
            if not started and entry in wanted:
                last[entry] = k
            elif entry not in back:
                last.pop(entry, None)
    return [Absence(e, last[e], back[e]) for e in last if e in back]


def with_swaps(problem: Problem, schedule: Schedule, chosen: Sequence[Absence], eager: bool = False,
               lead: int | None = None) -> Schedule:
    """The schedule with the chosen absences spent in host memory.

    `eager` releases each source right after its last reader, and waits for the copy, as vDNN's synchronous layers do.
    No copy back begins more than `lead` steps before its reader, so that copies which lag behind wait in host memory
    and not in the arena.
    """
    starts = start_seconds(problem, schedule)
    releases = release_steps(problem, schedule, chosen, starts, eager)
    trips: list[Trip] = []
    next_in = float("inf")
    for absence in sorted(chosen, key=lambda a: a.back, reverse=True):
        release = releases[absence.entry]
        if release >= absence.back:
            continue
        deadline = min(starts[absence.back], next_in)
        next_in = deadline - problem.copy_in_seconds(absence.entry)
        earliest = release if lead is None else max(release, absence.back - lead)
        issue = max(bisect_right(starts, next_in) - 1, earliest)
        trips.append(Trip(absence.entry, absence.last, release, min(issue, absence.back)))
    return carry(schedule, trips)


def start_seconds(problem: Problem, schedule: Schedule) -> list[float]:
    """When each step would begin, in seconds, if nothing waited for a copy."""
    return border_seconds(problem, schedule)[:-1]


def border_seconds(problem: Problem, schedule: Schedule) -> list[float]:
    """When each step would begin, and the last one end, if nothing waited for a copy."""
    own = np.zeros(len(schedule) + 1)
    runs = schedule.at(RUN)
    own[runs + 1] = np.asarray(problem.seconds, np.float64)[schedule.columns[1][runs]]
    starts: list[float] = np.cumsum(own).tolist()
    return starts


def release_steps(problem: Problem, schedule: Schedule, chosen: Sequence[Absence], starts: Sequence[float],
                  eager: bool) -> dict[Entry, int]:
    """The step before which each source is released."""
    releases: dict[Entry, int] = {}
    clock = 0.0
    for absence in sorted(chosen, key=lambda a: a.last):
        begin = starts[absence.last + 1] if absence.last + 1 < len(starts) else starts[-1]
        clock = max(clock, begin) + problem.copy_out_seconds(absence.entry)
        left = absence.last + 1 if eager else max(bisect_left(starts, clock), absence.last + 1)
        releases[absence.entry] = min(left, len(schedule.steps))
    return releases
