"""First-fit, best-fit and skyline placement in a given order: the machinery under the heuristics.

First-fit looks for the lowest gap among the buffers already placed whose lifetimes overlap. Looking at all of
them is quadratic; two indices, chosen per buffer, keep the work small on graphs of both kinds:

- a buffer that overlaps few others (chains, temporaries) has the list of them, made once by a sweep in time;
- one that overlaps many (activations that wait for their backward) uses ``floor``, a height for each instant
  below which every byte is taken. No gap lies below the highest floor of its lifetime, so only buffers that
  end above it are looked at, and with nested lifetimes those are few. Placed buffers are kept in order of
  their ends for this.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .problem import Int64Array, Problem

#: A buffer that overlaps at most this many others has their list; above that numpy is quicker (measured).
LIST_DEGREE = 128
#: Work of one look-up through numpy, in inspected buffers of a list that take as long; numpy elements a unit.
ARRAY_WORK, ELEMENTS_PER_WORK = 150, 16


class Placer:
    """Places the buffers of a problem that have a size, one order after another.

    Buffers are renumbered 0 to n-1 without those of 0 bytes, time is renumbered by births, bytes are counted
    in ``unit_bytes``, the greatest common divisor of all alignments.

    Attributes:
        work: inspected placements so far, a measure of time without a clock (about 0.1 microseconds each).
        free: the buffers whose offsets are wanted, as an array of their numbers.
        fixed: (number, offset in units) of the others.
        sizes, alignments: of all, in units.
    """

    def __init__(self, problem: Problem, list_degree: int = LIST_DEGREE) -> None:
        self.problem = problem
        self.ids = np.flatnonzero(problem.size_bytes > 0)
        alignment = problem.alignments[self.ids]
        self.unit_bytes = int(np.gcd.reduce(alignment)) if alignment.size else 1
        self.size = problem.aligned_bytes[self.ids] // self.unit_bytes
        instants = np.unique(problem.born[self.ids])
        self.instants = len(instants)
        self.born = np.searchsorted(instants, problem.born[self.ids])
        self.dies = np.searchsorted(instants, problem.dies[self.ids])
        self.work = 0
        self.sizes: list[int] = self.size.tolist()
        self.alignments: list[int] = (alignment // self.unit_bytes).tolist()
        self._born: list[int] = self.born.tolist()
        self._dies: list[int] = self.dies.tolist()
        fixed = problem.fixed_offsets[self.ids]
        self.free = np.flatnonzero(fixed < 0)
        self.fixed = [(int(i), int(fixed[i]) // self.unit_bytes) for i in np.flatnonzero(fixed >= 0)]
        self._list_degree = list_degree
        self._neighbours: list[list[int] | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bound(self) -> int:
        """The problem's lower bound, in units."""
        return self.problem.lower_bound_bytes // self.unit_bytes

    def degrees(self) -> Int64Array:
        """How many others each buffer's lifetime overlaps."""
        born_before = np.concatenate(([0], np.cumsum(np.bincount(self.born, minlength=self.instants))))
        dead_by = np.cumsum(np.bincount(self.dies, minlength=self.instants + 1))
        return born_before[self.dies] - dead_by[self.born] - 1

    def offsets_bytes(self, start: list[int]) -> Int64Array:
        """Offsets in bytes of all the problem's buffers, from those of the sized ones in units."""
        offset = np.maximum(self.problem.fixed_offsets, 0)
        offset[self.ids] = np.array(start, np.int64) * self.unit_bytes
        return offset

    def top(self, start: list[int] | Int64Array) -> int:
        """Arena size of a placement, in units."""
        return int((np.asarray(start, np.int64) + self.size).max(initial=0))

    def skyline(self, order: Iterable[int]) -> list[int]:
        """Put each buffer of ``order`` above all that overlap its lifetime, holes or not; as :meth:`fit`."""
        height = np.zeros(self.instants, np.int64)
        start = [-1] * len(self)
        for i, at in self.fixed:
            start[i] = at
            span = height[self._born[i]:self._dies[i]]
            np.maximum(span, at + self.sizes[i], out=span)
        for i in order:
            span = height[self._born[i]:self._dies[i]]
            at = int(span.max())
            at += -at % self.alignments[i]
            start[i] = at
            span[:] = at + self.sizes[i]
            self.work += ARRAY_WORK // 3 + len(span) // ELEMENTS_PER_WORK
        return start

    def fit(self, order: Iterable[int], best: bool = False) -> list[int]:
        """Put each buffer of ``order`` into the lowest gap that holds it, or with ``best`` the smallest.

        Args:
            order: every free buffer once.
            best: best-fit instead of first-fit.

        Returns:
            Offsets in units, of all buffers.
        """
        neighbours = self._neighbour_lists()
        placed = _Placed(self)
        start, end = [-1] * len(self), [0] * len(self)
        for i, at in self.fixed:
            start[i], end[i] = at, at + self.sizes[i]
            placed.add(i, at)
        for i in order:
            near = neighbours[i]
            floor: int | None = None
            if near is None:
                at, floor = placed.find(i, best)
            else:
                self.work += len(near) + 10
                gaps = sorted([(start[j], end[j]) for j in near if start[j] >= 0])
                at = lowest_gap(gaps, self.sizes[i], self.alignments[i], best)
            start[i] = at
            end[i] = at + self.sizes[i]
            placed.add(i, at, floor)
        return start

    def neighbours(self) -> list[list[int]]:
        """The neighbours of every buffer; an error where ``list_degree`` is too low to list them all."""
        lists = [near for near in self._neighbour_lists() if near is not None]
        if len(lists) < len(self):
            raise ValueError(f"Placer: list_degree {self._list_degree} leaves {len(self) - len(lists)} "
                             f"buffers without a list; give {len(self)}")
        return lists

    def _neighbour_lists(self) -> list[list[int] | None]:
        """For each buffer the others whose lifetimes overlap its own; None for one that overlaps too many."""
        if self._neighbours is None:
            few = (self.degrees() <= self._list_degree).tolist()
            self._neighbours = [[] if yes else None for yes in few]
            self._crowded_met = [False] * len(self)
            self._sweep(self._neighbours)
        return self._neighbours

    def _sweep(self, lists: list[list[int] | None]) -> None:
        deaths = np.argsort(self.dies, kind="stable").tolist()
        live: dict[int, None] = {}
        live_few: dict[int, None] = {}
        crowded, dead = 0, 0
        for i in np.argsort(self.born, kind="stable").tolist():
            while self._dies[deaths[dead]] <= self._born[i]:
                gone = deaths[dead]
                dead += 1
                del live[gone]
                live_few.pop(gone, None)
                crowded -= lists[gone] is None
            own = lists[i]
            for j in live_few:
                lists[j].append(i)  # type: ignore[union-attr]
                self._crowded_met[j] |= own is None
            live[i] = None
            if own is None:
                crowded += 1
                self._crowded_met[i] = True
            else:
                own.extend(j for j in live if j != i)
                live_few[i] = None
                self._crowded_met[i] |= crowded > 0
        self.work += sum(len(near) for near in lists if near is not None)


class _Placed:
    """Buffers placed so far by ascending end, only those that a crowded buffer can meet; and the floor."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._met = placer._crowded_met
        self._floor = np.zeros(placer.instants, np.int64)
        self._count = 0
        # Rows end, start and rows born, dies: an insertion moves two at once.
        self._space = np.empty((2, sum(self._met)), np.int64)
        self._time = np.empty((2, sum(self._met)), np.int32)

    def add(self, i: int, at: int, floor: int | None = None) -> None:
        """Record a placement; ``floor`` is the highest floor under it, where :meth:`find` has told it."""
        if not self._met[i]:
            return
        p, count = self._placer, self._count
        end = at + p.sizes[i]
        k = int(self._space[0, :count].searchsorted(end))
        for rows, column in ((self._space, (end, at)), (self._time, (p._born[i], p._dies[i]))):
            rows[:, k + 1:count + 1] = rows[:, k:count]
            rows[:, k] = column
        self._count = count + 1
        if floor is None or at == floor:
            heights = self._floor[p._born[i]:p._dies[i]]
            np.putmask(heights, heights == at, end)

    def find(self, i: int, best: bool) -> tuple[int, int]:
        """Lowest gap above the floor, with ``best`` the smallest, as an offset; and the highest floor."""
        p = self._placer
        born, dies, size, alignment = p._born[i], p._dies[i], p.sizes[i], p.alignments[i]
        floor = int(self._floor[born:dies].max())
        above = int(self._space[0, :self._count].searchsorted(floor, "right"))
        end, start = self._space[:, above:self._count]
        births, deaths = self._time[:, above:self._count]
        near = np.flatnonzero((births < dies) & (deaths > born))
        p.work += ARRAY_WORK + (len(end) + (dies - born) // 4) // ELEMENTS_PER_WORK
        if not near.size:
            return floor + -floor % alignment, floor
        # A gap begins where a buffer ends and reaches to the lowest start among those that end higher.
        begin = np.concatenate(([floor], end[near]))
        reach = np.minimum.accumulate(start[near[::-1]])[::-1]
        if alignment > 1:
            begin += -begin % alignment
        room = reach - begin[:-1]
        fits = np.flatnonzero(room >= size)
        if not fits.size:
            return int(begin[-1]), floor
        return int(begin[fits[np.argmin(room[fits])] if best else fits[0]]), floor


def lowest_gap(taken: list[tuple[int, int]], size: int, alignment: int, best: bool = False) -> int:
    """Lowest gap of ``size`` units between ``taken`` ranges, sorted by start; with ``best`` the smallest."""
    at = 0
    chosen, chosen_room = -1, 0
    for start, end in taken:
        if start - at >= size:
            if not best:
                return at
            if chosen < 0 or start - at < chosen_room:
                chosen, chosen_room = at, start - at
        if end > at:
            at = end + -end % alignment
    return chosen if chosen >= 0 else at
