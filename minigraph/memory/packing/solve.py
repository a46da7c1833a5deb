"""Choosing offsets: heuristics from cheap to costly, until the lower bound is met; then, where there are many buffers,
fillings from the bottom up; then short attempts of an exact search, at all buffers and at a core of them; a local
search; and where there is time for them long exact attempts.

Every limit is a count of work and never a clock, so that the same problem always gets the same plan. And a capacity
only tells where to stop: what is tried, and in which order, does not depend on it. So a capacity is met if and only if
it is no less than what the same effort comes to without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from .exact import Attempts, is_searchable, long_attempts, short_attempts
from .filling import Filler, is_fillable
from .placement import Placer
from .problem import Int64Array, Problem, Solution
from .search import Walk

#: Above the bound by no more than this, a solution is good enough to spare the search, except by full effort.
CLOSE_ENOUGH = 0.0005
#: Heuristics that always run, unless the lower bound is met before.
CHEAPEST = 2
#: Buffers from which on the second of them takes minutes, and runs only where the first is not good enough.
LARGE = 200_000
#: Further heuristics go on until this much work is done (each is finished that was begun), then the search has a
#: share of its own, and weighing another. A unit takes about 0.1 microseconds.
HEURISTIC_WORK = {"default": 12_000_000, "budget": 12_000_000, "full": 200_000_000}
SEARCH_WORK = {"default": 6_000_000, "budget": 6_000_000, "full": 40_000_000}
WEIGHING_WORK = {"default": 6_000_000, "budget": 48_000_000, "full": 320_000_000}
#: Nodes of the long attempts of the exact search, before the walk and behind it; some 5000 a second.
EXACT_NODES = {"default": (0, 0), "budget": (0, 0), "full": (5_000, 130_000)}
#: Between so many buffers they are filled in from the bottom up before anything is searched: every one looks at all
#: that are left, so that 21,000 take 1.2 s and twice as many 4.
FILL_BUFFERS, FILL_MOST = 3_000, 30_000
#: The walk lists every pair of overlapping lifetimes; with more than this many it would not pay, and the buffers are
#: weighed instead: what ended above a ceiling, this part above the bound, weighs as much more. Measured on slices: with
#: 0.02 to 0.025 the arena is least after 15 fits, with a ceiling at a capacity 0.04 above the bound 2 % larger.
WALK_PAIRS = 1_500_000
CEILING, HEAVIER = 0.025, 2.0
#: Except by default effort a core of buffers is placed by attempts of the exact search, and the others are weighed
#: around it: those of which the size, times the square root of the life in instants where that is asked for, is above
#: a part of the bound. Measured where there are too many for the walk, on ResNet-50 in 32 slices, 15,237 buffers: with
#: 0.0005 of the bound, 6,502 buffers, 1.007 to 1.015 after 3 s each; with 0.001 or more 1.033. Inception v3 in 4
#: slices, 2,561 buffers, comes to 1.0085 by size, with 929 in the core, and to 1.017 by size and life, 1,091; Inception
#: v4, 4,664 buffers, to no less than by the search of all, 1.069, and to 1.053, as many are small and live long.
MANY_CORES, FEW_CORES = ((0.0005, False),), ((0.006, False), (0.005, True))
#: Attempts at each core, work on the others after each, by buffer of all, and buffers that the largest core has.
CORE_ATTEMPTS, CORE_WORK, MOST_CORE = 3, 400, 8_000

Order = list[int]
Placement = list[int]
Float64Array = NDArray[np.float64]


def pack(problem: Problem, capacity_bytes: int | None = None, effort: str = "default") -> Solution:
    """Choose offsets so that the arena is small; deterministic, and never above ``problem.naive_bytes``.

    Args:
        problem: the buffers.
        capacity_bytes: once the two cheapest heuristics have run, stop at the first solution that fits into
            this many bytes. None does if and only if the same effort without a capacity comes to more; then what is
            returned is no more than that it does not fit, and larger than what could be found.
        effort: ``"default"`` keeps to about a second of work on a large problem, ``"budget"`` searches longer where
            too many lifetimes overlap for the walk, ``"full"`` some ten times as long where the lower bound is not met.

    Raises:
        ValueError: an unknown effort or a negative capacity.
    """
    if effort not in SEARCH_WORK:
        raise ValueError(f"pack: effort is {effort!r}; give one of {', '.join(map(repr, SEARCH_WORK))}")
    if capacity_bytes is not None and capacity_bytes < 0:
        raise ValueError(f"pack: capacity_bytes is {capacity_bytes}; give 0 or more")
    return _Packing(problem, capacity_bytes, effort).solve()


class _Packing:
    """The best placement so far of one problem, and what is good enough."""

    def __init__(self, problem: Problem, capacity_bytes: int | None, effort: str) -> None:
        self.placer = Placer(problem)
        self.problem = problem
        self.effort = effort
        bound = self.placer.bound
        self.bound = bound
        self.capacity = None if capacity_bytes is None else capacity_bytes // self.placer.unit_bytes
        self.goal = max(bound, self.capacity or 0)
        self.close = max(self.goal, bound if effort == "full" else bound + int(bound * CLOSE_ENOUGH))
        # Buffers of their own bytes: what everything else has to beat.
        naive = problem.naive_offsets[self.placer.ids] // self.placer.unit_bytes
        self.top, self.placement, self.method = self.placer.top(naive), naive.tolist(), "naive"
        self.order: Order | None = None
        self.order_top = self.top

    def solve(self) -> Solution:
        if self.top > self.bound:
            self._run_heuristics(HEURISTIC_WORK[self.effort])
        if self.top > self.close and (self.capacity is None or self.capacity >= self.bound):
            self._fill()
            self._search()
        offset = self.placer.offsets_bytes(self.placement)
        return Solution(offset, self.top * self.placer.unit_bytes, self.method)

    def _run_heuristics(self, work: int) -> None:
        for number, (method, order, place) in enumerate(_heuristics(self.placer)):
            cheapest = CHEAPEST if len(self.problem) < LARGE else 1
            if number >= cheapest and (self.placer.work > work or self.top <= self.goal):
                return
            if self._offer(method, place(order)):
                self.order, self.order_top = order, self.top
            if self.top <= self.bound:
                return

    def _offer(self, method: str, placement: Placement | None) -> bool:
        """Keep a placement if it is the best so far; whether it is."""
        if placement is None or self.placer.top(placement) >= self.top:
            return False
        self.top, self.placement, self.method = self.placer.top(placement), placement, method
        return True

    def _most(self) -> int:
        """The largest arena of use: what is close enough ends the search, within a capacity or not."""
        return self.top - 1 if self.capacity is None else min(self.top - 1, self.close)

    def _fill(self) -> None:
        """Fill all buffers in from the bottom up, in several ways."""
        if FILL_BUFFERS <= len(self.placer) <= FILL_MOST and is_fillable(self.placer):
            filler = Filler(self.placer)
            filler.blend(self.close, SEARCH_WORK[self.effort])
            self._offer("filled", filler.offset)

    def _search(self) -> None:
        before, behind = EXACT_NODES[self.effort]
        if is_searchable(self.placer):
            self._attempt(Attempts(self.placer), short_attempts(len(self.placer)))
        long = Attempts(self.placer) if before and is_searchable(self.placer) else None
        if long is not None:
            self._attempt(long, long_attempts(before, long))
        if self.top <= self.close:
            return
        is_walkable = int(self.placer.degrees().sum()) // 2 <= WALK_PAIRS
        if self.effort != "default" and is_fillable(self.placer):
            for part, by_life in FEW_CORES if is_walkable else MANY_CORES:
                self._search_core(part, by_life)
        if self.top > self.close:
            (self._walk if is_walkable else self._weigh)()
        if long is not None:
            self._attempt(long, long_attempts(behind, long))

    def _attempt(self, attempts: Attempts, turns: Iterable[int]) -> None:
        """Search exactly, attempt after attempt."""
        for number in turns:
            if self.top <= self.close or attempts.is_final:
                return
            self._offer("exact", attempts.next(number, self._most()))

    def _walk(self) -> None:
        """Walk from the best order of a heuristic, as if nothing but heuristics had run."""
        if self.order is not None:
            placer = Placer(self.problem, list_degree=len(self.placer))
            walk = Walk(placer, self.order, self.order_top, self.bound)
            self._offer("walk", walk.run(SEARCH_WORK[self.effort], self.close))

    def _search_core(self, part: float, by_life: bool) -> None:
        """Place the buffers that matter most by attempts of the exact search, and the others around them."""
        placer, problem = self.placer, self.problem
        weight = placer.size * np.sqrt(placer.dies - placer.born) if by_life else placer.size
        heaviest = np.argsort(-weight, kind="stable")[:MOST_CORE]
        ids = placer.ids[np.sort(heaviest[weight[heaviest] > part * self.bound])]
        if not len(ids):
            return
        core = Placer(Problem(problem.born[ids], problem.dies[ids], problem.size_bytes[ids], problem.alignments[ids]))
        attempts, fixed = Attempts(core), np.full(len(problem), -1)
        for turns in short_attempts(len(core))[:CORE_ATTEMPTS]:
            if self.top <= self.close:
                return
            found = attempts.next(turns, self._most() * placer.unit_bytes // core.unit_bytes)
            if found is not None:
                fixed[ids] = core.offsets_bytes(found)
                around = Placer(Problem(problem.born, problem.dies, problem.size_bytes, problem.alignments, fixed))
                area = (around.size * (around.dies - around.born)).astype(np.float64)
                self._weigh_in("core", around, area, core.top(found), CORE_WORK * len(placer))

    def _weigh(self) -> None:
        """Weigh all buffers, at first by their sizes."""
        weight = self.placer.size.astype(np.float64)
        self._weigh_in("weighed", self.placer, weight, int(self.bound * (1 + CEILING)), WEIGHING_WORK[self.effort])

    def _weigh_in(self, method: str, placer: Placer, weight: Float64Array, ceiling: int, work: int) -> None:
        """Pack again and again by weight; whatever ended above the ceiling weighs more the next time, and so finds room
        before others do (Joslin and Clements 1999: squeaky wheel)."""
        free, stop_at = placer.free, placer.work + work
        while placer.work < stop_at and self.top > self.close:
            order: Order = free[np.lexsort((placer.born[free], -weight[free]))].tolist()
            placement = placer.fit(order)
            self._offer(method, placement)
            weight[np.array(placement) + placer.size > ceiling] *= HEAVIER


def _heuristics(placer: Placer) -> Iterator[tuple[str, Order, Callable[[Order], Placement]]]:
    """Name, order and way of placing of each heuristic, by rising cost; orders are made in their turn."""
    size, born, life = placer.size, placer.born, placer.dies - placer.born

    def by(*keys: Int64Array) -> Order:
        """Free buffers sorted by the first key, ties by the next, then by number."""
        free = placer.free
        order: Order = free[np.lexsort([key[free] for key in reversed(keys)])].tolist()
        return order

    yield "skyline-duration", by(-life, -size), placer.skyline
    by_size = by(-size, -life)
    yield "first-fit-size", by_size, placer.fit
    yield "first-fit-duration", by(-life, -size), placer.fit
    yield "first-fit-size-program", by(-size, born), placer.fit
    yield "first-fit-area", by(-size * life), placer.fit
    yield "best-fit-size", by_size, lambda order: placer.fit(order, best=True)
    yield "first-fit-program", by(born, -life), placer.fit
    yield "first-fit-reverse", by(-placer.dies, -life), placer.fit
    load = peak_load(placer)
    yield "first-fit-load", by(-load, -size), placer.fit
    yield "first-fit-load-duration", by(-load, -life, -size), placer.fit


def peak_load(placer: Placer) -> Int64Array:
    """Largest sum of live sizes, in units, that each buffer's lifetime sees."""
    change = np.zeros(placer.instants + 1, np.int64)
    np.add.at(change, placer.born, placer.size)
    np.subtract.at(change, placer.dies, placer.size)
    load = np.cumsum(change)
    spans = zip(placer.born.tolist(), placer.dies.tolist(), strict=True)
    return np.array([load[born:dies].max() for born, dies in spans], np.int64)
