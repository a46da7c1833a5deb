"""Decoupled swaps: copies whose ends nobody waits for but for want of room, and copies back that are triggered by an
access long enough before the one that needs them; found by simulating the step and moving late triggers forward."""
from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from ...base import Entry
from ..schedule import RUN, Schedule
from .problem import Problem
from .swapping import Absence, Trip, carry, start_seconds

FEEDBACKS = 5
"""Times that triggers are moved forward."""
FEEDBACK_SHARE = 0.05
"""The least share of its copy's time by which a late trigger is moved."""


def triggered(problem: Problem, schedule: Schedule, chosen: Sequence[Absence], target_bytes: int) -> Schedule:
    """The schedule with the chosen absences in host memory; a value's first one copies it out, later ones drop it.

    A source is released when its copy has ended, or waited for where more than `target_bytes` would live. A copy back
    is triggered where it ends in time, but not before there is room.
    """
    if not chosen:
        return schedule
    play = _Play(problem, schedule, chosen, target_bytes)
    earlier: dict[Absence, float] = {}
    for _ in range(FEEDBACKS):
        late = play.run(earlier)
        if not late:
            break
        for absence, seconds in late.items():
            least = FEEDBACK_SHARE * problem.copy_in_seconds(absence.entry)
            earlier[absence] = earlier.get(absence, 0.0) + max(seconds, least)
    return carry(schedule, play.trips)


class _Play:
    """One simulation of the step with its copies."""

    def __init__(self, problem: Problem, schedule: Schedule, chosen: Sequence[Absence], target_bytes: int) -> None:
        self.problem = problem
        self.schedule = schedule
        self.chosen = sorted(chosen, key=lambda absence: absence.back)
        self.target_bytes = target_bytes
        self.live = problem.live(schedule).tolist()
        self.starts = start_seconds(problem, schedule)
        self.leaving_at: dict[int, list[Absence]] = {}
        self.needed_at: dict[int, list[Absence]] = {}
        for absence in self.chosen:
            self.leaving_at.setdefault(absence.last, []).append(absence)
            self.needed_at.setdefault(absence.back, []).append(absence)

    def run(self, earlier: dict[Absence, float]) -> dict[Absence, float]:
        """Play the step with triggers moved forward by some seconds; the seconds that each value came late."""
        self.clock = self.link_out = self.link_in = 0.0
        self.away_bytes = 0
        self.leaving: deque[tuple[Absence, float]] = deque()
        self.staying: set[Absence] = set()
        """Those of the leaving that were read before they had left."""
        self.copied: set[Entry] = set()
        """Values of which a copy is in host memory."""
        self.released: dict[Absence, int] = {}
        self.arrives: dict[Absence, float] = {}
        self.trips: list[Trip] = []
        late: dict[Absence, float] = {}
        coming = deque(self._triggers(earlier))
        for t, (kind, node) in enumerate(self.schedule.steps):
            self._release(t)
            for absence in self.needed_at.get(t, ()):
                self._need(absence, t)
            self._trigger(coming, t)
            for absence in self.needed_at.get(t, ()):
                waited = self.arrives.get(absence, 0.0) - self.clock
                if waited > 0:
                    late[absence] = waited
                    self.clock += waited
            self.clock += self.problem.seconds[node] if kind == RUN else 0.0
            for absence in self.leaving_at.get(t, ()):
                self._leave(absence, t)
        return late

    def _leave(self, absence: Absence, t: int) -> None:
        """Begin to copy a value out, or drop it where its copy is there."""
        if absence.entry in self.copied:
            self.released[absence] = t + 1
            self.away_bytes += self.problem.size_bytes[absence.entry]
        else:
            self.link_out = max(self.link_out, self.clock) + self.problem.copy_out_seconds(absence.entry)
            self.leaving.append((absence, self.link_out))

    def _triggers(self, earlier: dict[Absence, float]) -> list[tuple[int, Absence]]:
        """The step from which each value should be copied back, in the order of need: copies come one by one."""
        found, link = [], float("inf")
        for absence in reversed(self.chosen):
            begin = min(self.starts[absence.back], link) - self.problem.copy_in_seconds(absence.entry)
            link = begin
            begin -= earlier.get(absence, 0.0)
            found.append((max(bisect_right(self.starts, begin) - 1, absence.last + 1), absence))
        return found[::-1]

    def _release(self, t: int) -> None:
        """Release what has left by now, and wait for the first to have left while too much lives."""
        while self.leaving:
            absence, ends = self.leaving[0]
            if absence in self.staying:
                self.leaving.popleft()
                continue
            if ends > self.clock and self.live[t] - self.away_bytes <= self.target_bytes:
                return
            self.leaving.popleft()
            self.clock = max(self.clock, ends)
            self.released[absence] = t
            self.away_bytes += self.problem.size_bytes[absence.entry]

    def _need(self, absence: Absence, t: int) -> None:
        """A value is to be read: copy it back if it has left, else let it stay."""
        if absence in self.released:
            self._issue(absence, t)
        elif absence not in self.arrives:
            self.staying.add(absence)

    def _trigger(self, coming: deque[tuple[int, Absence]], t: int) -> None:
        while coming and coming[0][0] <= t:
            absence = coming[0][1]
            if absence in self.released:
                needed = self.live[t] - self.away_bytes + self.problem.size_bytes[absence.entry]
                if needed > self.target_bytes:
                    return
                self._issue(absence, t)
            elif absence.back > t and absence not in self.arrives:
                return
            coming.popleft()

    def _issue(self, absence: Absence, t: int) -> None:
        entry = absence.entry
        out = None if entry in self.copied else absence.last
        self.copied.add(entry)
        self.trips.append(Trip(entry, out, self.released.pop(absence), t))
        self.away_bytes -= self.problem.size_bytes[entry]
        self.link_in = max(self.link_in, self.clock) + self.problem.copy_in_seconds(entry)
        self.arrives[absence] = self.link_in
