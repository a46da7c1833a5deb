"""A cache played over the known accesses of a schedule: what would leave a device of some size, and for how long."""
from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from ...base import Entry
from ..schedule import Schedule
from .problem import Problem
from .swapping import Trip, uses


class Cache:
    """An LRU list of values on the device, played over the known accesses of a schedule.

    Where more than `capacity_bytes` would live, the values used least recently leave. One comes back at the last of
    the steps `prefetching` before its next access if there is room then, else at that access. What the step at hand
    uses is locked, and so is what was fetched until it is used.
    """

    def __init__(self, problem: Problem, schedule: Schedule, capacity_bytes: int, prefetching: Sequence[int] = (),
                 ) -> None:
        self.size = problem.size_bytes
        self.capacity_bytes = capacity_bytes
        self.live = problem.live(schedule).tolist()
        self.uses = uses(problem, schedule)
        self.prefetching = prefetching
        self.recent: OrderedDict[Entry, int] = OrderedDict()
        """Values on the device that will be used again, the least recently used one first, with their last use."""
        self.away: dict[Entry, tuple[int | None, int]] = {}
        """Evicted values: the step after which each was copied out, if not before, and that of its release."""
        self.copied: set[Entry] = set()
        self.away_bytes = 0
        self.trips: list[Trip] = []

    def play(self) -> list[Trip]:
        """The trips of all evicted values, in the order of their return."""
        used_at: dict[int, list[Entry]] = {}
        for entry, steps in self.uses.items():
            for t in steps:
                used_at.setdefault(t, []).append(entry)
        layers = dict(pairwise([*self.prefetching, len(self.live)]))
        for t in range(len(self.live)):
            used = used_at.get(t, ())
            for entry in used:
                self._fetch(entry, t)
            if t in layers:
                self._prefetch(t, layers[t])
            self._make_room(t, used)
            for entry in used:
                self.recent.pop(entry, None)
                if self.uses[entry][-1] > t:
                    self.recent[entry] = t
        return self.trips

    def _fetch(self, entry: Entry, t: int) -> None:
        if entry in self.away:
            self.trips.append(Trip(entry, *self.away.pop(entry), t))
            self.away_bytes -= self.size[entry]

    def _prefetch(self, t: int, until: int) -> None:
        """Fetch what is used by the step `until`, the first used first, while there is room."""
        coming = sorted((use, entry) for entry in self.away if (use := self._next_use(entry, t)) <= until)
        for _, entry in coming:
            if self.live[t] - self.away_bytes + self.size[entry] > self.capacity_bytes:
                return
            self._fetch(entry, t)

    def _make_room(self, t: int, locked: Collection[Entry]) -> None:
        for entry in list(self.recent) if self._over(t) else ():
            if not self._over(t):
                return
            if entry not in locked:
                last = self.recent.pop(entry)
                self.away[entry] = (None if entry in self.copied else last, t)
                self.copied.add(entry)
                self.away_bytes += self.size[entry]

    def _over(self, t: int) -> bool:
        return self.live[t] - self.away_bytes > self.capacity_bytes

    def _next_use(self, entry: Entry, t: int) -> int:
        steps = self.uses[entry]
        return steps[bisect_left(steps, t)]


def capacities(problem: Problem, schedule: Schedule, count: int) -> list[int]:
    """`count` geometric steps from just below the schedule's peak to what stays when all that is not in use is away."""
    live = problem.live(schedule)
    away = np.zeros(len(live) + 1, dtype=np.int64)
    for entry, steps in uses(problem, schedule).items():
        for before, after in pairwise(steps):
            away[before + 1] += problem.size_bytes[entry]
            away[after] -= problem.size_bytes[entry]
    highest, lowest = int(live.max()), int((live - np.cumsum(away)[:-1]).max())
    if lowest >= highest:
        return []
    return [int(highest * (lowest / highest) ** (k / count)) for k in range(1, count + 1)]
