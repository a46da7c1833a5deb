"""A cache played over the known accesses of a schedule: what would leave a device of some size, and for how long."""
from __future__ import annotations

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

    Where more than the capacity would live, the values used least recently leave. One comes back at the last of
    the steps `prefetching` before its next access if there is room then, else at that access. What the step at hand
    uses is locked, and so is what was fetched until it is used.
    """

    def __init__(self, problem: Problem, schedule: Schedule, prefetching: Sequence[int] = ()) -> None:
        self.size = problem.size_bytes
        self.live = problem.live(schedule).tolist()
        self.uses = uses(problem, schedule)
        self.used_at: dict[int, list[Entry]] = {}
        for entry, steps in self.uses.items():
            for t in steps:
                self.used_at.setdefault(t, []).append(entry)
        self.prefetching = prefetching

    def play(self, capacity_bytes: int) -> list[Trip]:
        """The trips of all evicted values, in the order of their return."""
        self.capacity_bytes = capacity_bytes
        self.recent: OrderedDict[Entry, int] = OrderedDict()
        """Values on the device that will be used again, the least recently used one first, with their last use."""
        self.away: dict[Entry, tuple[int | None, int]] = {}
        """Evicted values: the step after which each was copied out, if not before, and that of its release."""
        self.copied: set[Entry] = set()
        self.away_bytes = 0
        self.trips: list[Trip] = []
        layers = dict(pairwise([*self.prefetching, len(self.live)]))
        for t in range(len(self.live)):
            used = self.used_at.get(t, ())
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
        coming = (entry for use in range(t + 1, until + 1) for entry in self.used_at.get(use, ()) if entry in self.away)
        for entry in coming:
            if self.live[t] - self.away_bytes + self.size[entry] > self.capacity_bytes:
                return
            self._fetch(entry, t)

    def _make_room(self, t: int, locked: Collection[Entry]) -> None:
        evicted = []
        for entry in self.recent:
            if self.live[t] - self.away_bytes <= self.capacity_bytes:
                break
            if entry not in locked:
                evicted.append(entry)
                self.away_bytes += self.size[entry]
        for entry in evicted:
            last = self.recent.pop(entry)
            self.away[entry] = (None if entry in self.copied else last, t)
            self.copied.add(entry)

    def capacities(self, count: int) -> list[int]:
        """`count` geometric steps from just below the peak of the schedule to what stays when all that is not in use is
        away."""
        away = np.zeros(len(self.live) + 1, dtype=np.int64)
        for entry, steps in self.uses.items():
            for before, after in pairwise(steps):
                away[before + 1] += self.size[entry]
                away[after] -= self.size[entry]
        highest, lowest = max(self.live), int((np.array(self.live) - np.cumsum(away)[:-1]).max())
        if lowest >= highest:
            return []
        return [int(highest * (lowest / highest) ** (k / count)) for k in range(1, count + 1)]
