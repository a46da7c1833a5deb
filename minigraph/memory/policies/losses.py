"""What it would cost to get each value back if it left the device now, for all values of a play at once.

A play asks at nearly every step which values should leave, and a deep network has thousands; so all that the answer
rests on is kept in columns, which change with each value that leaves or comes back.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ...base import Entry
from .ground import Ground

NEVER = 1 << 60
"""The step of a value that nobody reads any more."""
MOMENT = 1e-9
"""Seconds that are added to the time until a value is read, which may be none."""


class Losses:
    """Which managed values are on the device, which step needs each next, and the seconds that it costs if it leaves.

    `uses` are the steps that need each value, in order. `dear` values go by host memory, of whose way back the share
    `hidden` of its time is counted. `gone` are the values that were made and are not on the device, and `copied` tells
    when a copy of a value is in host memory, or will be.
    """

    def __init__(self, ground: Ground, dear: Collection[Entry], hidden: float,
                 uses: Mapping[Entry, list[int]]) -> None:
        self.ground, self.problem, self.uses = ground, ground.problem, uses
        self.gone: set[Entry] = set()
        self.copied: dict[Entry, float] = {}
        self.entries, self.at = ground.entries, ground.at
        self.again = self._column(ground.seconds_alone)
        self.is_stale = np.zeros(len(self.entries), bool)
        """Values of which something that they are made from has left or come back since they were counted."""
        self.any_stale = False
        self.terms = np.concatenate((self.again, np.zeros(len(self.entries))))
        """Of what `again` is the sum (`Ground.terms`): seconds of each value's node, and behind those for each value
        what it adds for whom it is missing, which is nothing while it is there."""
        self.size = self._column(self.problem.size_bytes.__getitem__)
        self.out_seconds = self._column(self.problem.copy_out_seconds)
        self.in_seconds = hidden * self._column(self.problem.copy_in_seconds)
        self.copied_at = np.full(len(self.entries), -1.0)
        """When the copy of each value is there, or -1 without one."""
        self.is_dear = self._column(dear.__contains__) > 0
        self.is_here = np.zeros(len(self.entries), bool)
        self.use = np.full(len(self.entries), -1, np.int64)
        """The step that was found to need each next; one that has passed says nothing."""
        self.starts = np.array(ground.starts)

    def _column(self, of: Callable[[Entry], float]) -> NDArray[np.float64]:
        return np.array([of(entry) for entry in self.entries], np.float64)

    def next_use(self, entry: Entry, step: int) -> int:
        """The first step from `step` on that needs a value, directly or for others."""
        k = self.at[entry]
        if self.use[k] < step:
            uses = self.uses[entry]
            first = bisect_left(uses, step)
            self.use[k] = uses[first] if first < len(uses) else NEVER
        return int(self.use[k])

    # -- what a play does ----------------------------------------------------------------------------------------
    def is_on_device(self, entry: Entry) -> bool:
        """Whether a managed value is there."""
        return bool(self.is_here[self.at[entry]])

    def come(self, entry: Entry) -> None:
        """A value was made, or is back."""
        k = self.at[entry]
        self.is_here[k] = True
        if entry in self.gone:
            self.gone.discard(entry)
            self.terms[len(self.entries) + k] = 0.0
            self._count_users(k)

    def leave(self, entry: Entry) -> None:
        """A value leaves the device."""
        k = self.at[entry]
        self.is_here[k] = False
        self.gone.add(entry)
        self.terms[len(self.entries) + k] = self._missing_seconds(entry)
        self._count_users(k)

    def copy(self, entry: Entry, there: float) -> None:
        """A value is copied to host memory, and is there at that time."""
        self.copied[entry] = self.copied_at[self.at[entry]] = there

    def _count_users(self, k: int) -> None:
        """Count the values anew that are made from one: a few at once, many when somebody asks, for until then more of
        what they are made from may leave."""
        users = self.ground.users[k]
        if self.ground.has_few[k]:
            for user in users:
                self.again[user] = self.seconds_again(self.entries[user])
        else:
            self.is_stale[users] = True
            self.any_stale = True

    def _count_stale(self) -> None:
        """Count those values on the device anew that are stale. A value that is gone was copied before or never will
        be, so it does not matter when that is done; and terms are added in the order of what a node reads."""
        stale = (self.is_stale & self.is_here).nonzero()[0]
        row, term = self.ground.terms.gather(stale)
        self.again[stale] = np.bincount(row, self.terms[term], len(stale))
        self.is_stale[stale] = False
        self.any_stale = bool(self.is_stale.any())

    def seconds_again(self, entry: Entry) -> float:
        """About the seconds to compute a value again: those of its node, and of what that reads and is gone; without
        end for an input."""
        if entry in self.ground.inputs:
            return float("inf")
        node = self.problem.graph.node_of[entry]
        seconds = self.problem.seconds[node]
        for source in self.problem.reads[node]:
            if source in self.gone:
                seconds += self._missing_seconds(source)
        return seconds

    def _missing_seconds(self, entry: Entry) -> float:
        """What a value that is gone adds to the seconds of making another one from it."""
        again = self.ground.again[entry]
        return min(again, self.problem.copy_in_seconds(entry)) if entry in self.copied else again

    # -- what leaves first ---------------------------------------------------------------------------------------
    def ranked(self, step: int, clock: float, link_out: float,
               locked: Iterable[Entry]) -> Iterator[tuple[float, Entry]]:
        """(loss, value) of those that may leave before a step, the least loss first: the seconds to get it back for its
        bytes and the time until it is read. Nothing is computed again before backward, so what is cheap stays for its
        readers in forward."""
        if self.any_stale:
            self._count_stale()
        may = self.is_here.copy()
        may[[self.at[entry] for entry in locked]] = False
        k = may.nonzero()[0]
        for stale in k[self.use[k] < step].tolist():
            self.next_use(self.entries[stale], step)
        k = k[self.is_dear[k] | (self.use[k] >= self.problem.backward_start)]
        until = self.starts[np.minimum(self.use[k], len(self.starts) - 1)] - self.starts[step]
        loss = self._seconds(k, clock, link_out) / self.size[k] / (until + MOMENT)
        return ((float(loss[i]), self.entries[k[i]]) for i in np.argsort(loss, kind="stable").tolist())

    def _seconds(self, k: NDArray[np.int64], clock: float, link_out: float) -> NDArray[np.float64]:
        """Seconds to get values back if they leave now, and to wait until they have left."""
        there, again = self.copied_at[k], self.again[k]
        stall = np.where(there >= 0, np.maximum(there - clock, 0.0), max(link_out - clock, 0.0) + self.out_seconds[k])
        return np.where(self.is_dear[k], stall + np.minimum(self.in_seconds[k], again), again)
