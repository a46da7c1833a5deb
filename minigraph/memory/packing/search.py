"""Local search below a ceiling: place first-fit by rank, and where a buffer finds no room move it forward.

A walk in the manner of WalkSAT. Buffers are placed first-fit by rank until one would end above the ceiling, a
little below the best arena known. That buffer gets a rank just before one of those in its way, whatever
overlaps its lifetime and ranks behind it is taken out, and placing goes on. Nothing is accepted or rejected,
and a repair touches neighbours only, so that the walk makes some ten thousand repairs a second on problems of
any size. Whenever all buffers are placed the ceiling comes down.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from .placement import Placer, lowest_gap

#: Rank of a fixed buffer: before every other, so that nothing ever takes it out.
FIXED = float("-inf")
#: The ceiling lies this part of the way from the best arena to the goal; 0.02 to 0.1 do about as well.
STEP = 0.05
#: A buffer is moved before the last by rank of this many drawn from those in its way: a late one, so that
#: little is taken out, but not always the last, which would walk in circles. Measured: 1 and 3 do worse.
DRAWS = 5


class Walk:
    """One walk; the same problem, order and work give the same result.

    Args:
        placer: of a problem that has the neighbours of every buffer listed (``list_degree`` of n).
        order: the free buffers, in the order of a good first-fit placement.
        top: arena size of that placement, in units.
        goal: the least arena size that there can be, in units.
    """

    def __init__(self, placer: Placer, order: Sequence[int], top: int, goal: int) -> None:
        self._placer = placer
        self._near = placer.neighbours()
        self._goal = goal
        self._rank = [FIXED] * len(placer)
        for rank, i in enumerate(order):
            self._rank[i] = float(rank)
        self._start = [-1] * len(placer)
        self._end = [0] * len(placer)
        for i, at in placer.fixed:
            self._start[i], self._end[i] = at, at + placer.sizes[i]
        self._waiting = [(self._rank[i], i) for i in order]
        heapify(self._waiting)
        self._random = random.Random(0)
        self._ceiling = self._below(top)

    def run(self, work: int, enough: int = 0) -> list[int] | None:
        """Walk until the goal or an arena of ``enough`` units is met, or ``work`` placements were inspected.

        Returns:
            The best placement below the first one's top, as offsets in units, or None if there was none.
        """
        best: list[int] | None = None
        stop_at = self._placer.work + work
        while self._placer.work < stop_at:
            if not self._waiting:
                best = list(self._start)
                top = max(self._end)
                if top <= max(self._goal, enough):
                    break
                self._lower_ceiling(top)
            i = heappop(self._waiting)[1]
            if not self._place(i) and not self._move_forward(i):
                break
        return best

    def _below(self, top: int) -> int:
        return max(self._goal, top - max(1, int((top - self._goal) * STEP)))

    def _lower_ceiling(self, top: int) -> None:
        self._ceiling = self._below(top)
        for i, end in enumerate(self._end):
            if end > self._ceiling:
                self._take_out(i)

    def _place(self, i: int) -> bool:
        """Put a buffer into the lowest gap among its neighbours, unless it would end above the ceiling."""
        placer, start, end = self._placer, self._start, self._end
        near, size = self._near[i], placer.sizes[i]
        placer.work += len(near) + 10
        taken = sorted([(start[j], end[j]) for j in near if start[j] >= 0])
        at = lowest_gap(taken, size, placer.alignments[i])
        if at + size > self._ceiling:
            return False
        start[i], end[i] = at, at + size
        return True

    def _move_forward(self, i: int) -> bool:
        """Rank a buffer before one of those in its way; False if all of them are fixed: no order helps
        then."""
        in_way = [self._rank[j] for j in self._near[i] if self._start[j] >= 0 and self._rank[j] > FIXED]
        if not in_way:
            return False
        self._placer.work += len(self._near[i])
        before = max(in_way[int(self._random.random() * len(in_way))] for _ in range(DRAWS))
        rank = self._rank[i] = before - self._random.random() / 2
        for j in self._near[i]:
            if self._start[j] >= 0 and self._rank[j] > rank:
                self._take_out(j)
        heappush(self._waiting, (rank, i))
        return True

    def _take_out(self, i: int) -> None:
        self._start[i], self._end[i] = -1, 0
        heappush(self._waiting, (self._rank[i], i))
