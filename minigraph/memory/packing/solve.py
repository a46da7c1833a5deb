"""Choosing offsets: heuristics from cheap to costly, until the lower bound is met; then, where there are many buffers,
fillings from the bottom up; then a short exact search, a local one, and with time for it a long exact one.

Every limit is a count of work and never a clock, so that the same problem always gets the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from .exact import fit_within, is_searchable
from .filling import Filler, is_fillable
from .placement import Placer
from .problem import Int64Array, Problem, Solution
from .search import Walk

#: Above the bound by no more than this, a solution is good enough to spare the search.
CLOSE_ENOUGH = 0.0005
#: Heuristics that always run, unless the lower bound is met before.
CHEAPEST = 2
#: Buffers from which on the second of them takes minutes, and runs only where the first is not good enough.
LARGE = 200_000
#: Further heuristics go on until this much work is done (each is finished that was begun), then the search has a
#: share of its own. A unit takes about 0.1 microseconds.
HEURISTIC_WORK = {"default": 12_000_000, "full": 200_000_000}
SEARCH_WORK = {"default": 6_000_000, "full": 40_000_000}
#: Nodes of the exact search for each capacity it is asked for, before the walk, and behind it, up to so many buffers,
#: some 5000 a second; a node takes as much longer as there are more buffers, and the nodes become fewer by as much.
EXACT_BUFFERS = 1_000
EXACT_NODES = {"default": (2_500, 0), "full": (5_000, 130_000)}
#: Capacities that it is asked for where none is given.
EXACT_CAPACITIES = 3
#: Above the bound by this part of it a placement is looked for first, which is found more easily than at the bound.
EASIER = 0.004
#: From so many buffers on, beyond what the exact search takes, they are filled in from the bottom up before anything is
#: searched. Repairs of the large ones may take the second times the work of a search. What then ends by more than the
#: third above a capacity is left so: on five steps in slices repairs gained 0.006 to 0.036, and the walk less.
FILL_BUFFERS, FILL_REPAIRS, FILL_REACH = 3_000, 4, 0.04
#: Buffers up to which they are: every one looks at all that are left, so that 21,000 take 1.2 s and twice as many 4.
FILL_MOST = 30_000
#: The walk lists every pair of overlapping lifetimes; with more than this many it would not pay, and the buffers are
#: weighed instead: what ended above a ceiling, this part above the bound, weighs as much more. Measured on slices: with
#: 0.02 to 0.025 the arena is least after 15 fits, with a ceiling at a capacity 0.04 above the bound 2 % larger.
WALK_PAIRS = 1_500_000
CEILING, HEAVIER = 0.025, 2.0
#: With a capacity there is this many times as much work for it, unless the best is further above the capacity, or the
#: large buffers have been placed exactly before, which weighing then seldom betters (in none of four refused plans of
#: ResNet-50 with 513 to 520 images and 4 GiB).
CAPPED_WORK, HOPELESS = 8, 0.15
#: With a capacity, buffers above this part of the bound are filled in alone, if they are no more than so many, and
#: repaired to this part of the room between bound and capacity; where that fails the exact search is asked by so many
#: nodes. The others are weighed around them. Measured on 21,000 buffers of 32 slices: in 1 s the large ones are
#: repaired to 0.019 above the bound, and the others lift that to 0.021, where filling all in leaves 0.05.
COARSE, COARSE_BUFFERS, COARSE_NODES, COARSE_ROOM = 0.002, 4_000, 700, 0.7

Order = list[int]
Placement = list[int]
Float64Array = NDArray[np.float64]


def pack(problem: Problem, capacity_bytes: int | None = None, effort: str = "default") -> Solution:
    """Choose offsets so that the arena is small; deterministic, and never above ``problem.naive_bytes``.

    Args:
        problem: the buffers.
        capacity_bytes: once the two cheapest heuristics have run, stop at the first solution that fits into
            this many bytes. When none does, the smallest found is returned all the same: compare its ``bytes``.
        effort: ``"default"`` keeps to about a second of work on a large problem, ``"full"`` searches some ten
            times as long where the lower bound is not met.

    Raises:
        ValueError: an unknown effort or a negative capacity.
    """
    if effort not in SEARCH_WORK:
        raise ValueError(f"pack: effort is {effort!r}; give one of {', '.join(map(repr, SEARCH_WORK))}")
    if capacity_bytes is not None and capacity_bytes < 0:
        raise ValueError(f"pack: capacity_bytes is {capacity_bytes}; give 0 or more")
    return _Packing(problem, capacity_bytes).solve(effort)


class _Packing:
    """The best placement so far of one problem, and what is good enough."""

    def __init__(self, problem: Problem, capacity_bytes: int | None) -> None:
        self.placer = Placer(problem)
        self.problem = problem
        bound = self.placer.bound
        self.bound = bound
        self.is_capped = capacity_bytes is not None
        self.goal = bound if capacity_bytes is None else max(bound, capacity_bytes // self.placer.unit_bytes)
        self.close = self.goal if self.is_capped else self.goal + int(bound * CLOSE_ENOUGH)
        # Buffers of their own bytes: what everything else has to beat.
        naive = problem.naive_offsets[self.placer.ids] // self.placer.unit_bytes
        self.top, self.placement, self.method = self.placer.top(naive), naive.tolist(), "naive"
        self.order: Order | None = None
        self.filled = self.coarse = False
        """Whether buffers were filled in, and whether the large ones were placed first and the others around them."""

    def solve(self, effort: str) -> Solution:
        if self.top > self.bound:
            self._run_heuristics(HEURISTIC_WORK[effort])
        if self.top > self.close:
            self._fill(SEARCH_WORK[effort])
        if not self.filled or not self._is_beyond(self.top, self.goal):
            self._search_on(effort)
        offset = self.placer.offsets_bytes(self.placement)
        return Solution(offset, self.top * self.placer.unit_bytes, self.method)

    def _search_on(self, effort: str) -> None:
        before, behind = (n * EXACT_BUFFERS // max(len(self.placer), EXACT_BUFFERS) for n in EXACT_NODES[effort])
        self._search_exactly(before)
        if self.top > self.close:
            self._search(SEARCH_WORK[effort])
        self._search_exactly(behind)

    def _run_heuristics(self, work: int) -> None:
        for number, (method, order, place) in enumerate(_heuristics(self.placer)):
            cheapest = CHEAPEST if len(self.problem) < LARGE else 1
            if number >= cheapest and (self.placer.work > work or self.top <= self.goal):
                return
            self._offer(method, place(order), order)
            if self.top <= self.bound:
                return

    def _offer(self, method: str, placement: Placement | None, order: Order) -> None:
        if placement is not None and self.placer.top(placement) < self.top:
            self.top, self.placement, self.method = self.placer.top(placement), placement, method
            self.order = order or self.order  # the exact search has none, and the walk needs one

    def _search(self, work: int) -> None:
        order = self.order
        if order is None:
            return
        if int(self.placer.degrees().sum()) // 2 > WALK_PAIRS:
            self._weigh(work if self.coarse or not self.is_capped else work * CAPPED_WORK)
            return
        placer = Placer(self.problem, list_degree=len(self.placer))
        found = Walk(placer, order, self.top, self.goal).run(work)
        self._offer("walk", found, order)

    def _search_exactly(self, nodes: int) -> None:
        """Ask for a placement a little above the goal, then for one at it, or halfway to the best if there is none."""
        if nodes == 0 or self.top <= self.close or not is_searchable(self.placer):
            return
        failed, capacity = self.goal - 1, self.goal
        if not self.is_capped and self.top > self.goal + int(self.bound * EASIER):
            capacity += int(self.bound * EASIER)
        for _ in range(1 if self.is_capped else EXACT_CAPACITIES):
            found, _ = fit_within(self.placer, capacity, nodes)
            self._offer("exact", found, [])
            failed = capacity if found is None else failed
            if self.top <= max(self.close, failed + int(self.bound * CLOSE_ENOUGH) + 1):
                return
            capacity = self.goal if failed < self.goal else (failed + self.top) // 2

    def _is_hopeless(self) -> bool:
        """Whether no way to weigh or to search is worth it for the capacity."""
        return self.top > self.goal * (1 + HOPELESS) or self.goal == self.bound

    def _fill(self, work: int) -> None:
        """Fill all buffers in from the bottom up, and then, with a capacity, the large ones alone."""
        placer = self.placer
        if not FILL_BUFFERS <= len(placer) <= FILL_MOST or not is_fillable(placer) \
                or self.is_capped and self.goal == self.bound:
            return
        self.filled = True
        filler = Filler(placer)
        filler.blend(self.close, work)
        self._offer_filled("filled", filler)
        large = placer.ids[placer.size > COARSE * self.bound]
        if self.is_capped and self.top > self.close and 0 < len(large) <= COARSE_BUFFERS:
            self._fill_coarsely(large, work)

    def _offer_filled(self, method: str, filler: Filler) -> None:
        if filler.offset is not None:
            self._offer(method, filler.offset, np.argsort(filler.offset, kind="stable").tolist())

    def _fill_coarsely(self, large: Int64Array, work: int) -> None:
        """Place the large buffers and the others around them."""
        problem = self.problem
        placer = Placer(Problem(problem.born[large], problem.dies[large], problem.size_bytes[large],
                                problem.alignments[large]))
        ceiling = int(self.bound + (self.goal - self.bound) * COARSE_ROOM)
        found = self._large_ones(placer, ceiling, work)
        if found is None or placer.top(found) > self.goal:
            return
        fixed = np.full(len(problem), -1)
        fixed[large] = placer.offsets_bytes(found)
        around = Placer(Problem(problem.born, problem.dies, problem.size_bytes, problem.alignments, fixed))
        weight = (around.size * (around.dies - around.born)).astype(np.float64)
        self.coarse = True
        self._weigh_in("coarse", around, weight, self.goal, SEARCH_WORK["default"])

    def _is_beyond(self, top: int, ceiling: int) -> bool:
        """Whether a placement that was filled in ends so far above what a capacity allows that nothing will mend it."""
        return self.is_capped and top > ceiling + FILL_REACH * self.bound

    def _large_ones(self, placer: Placer, ceiling: int, work: int) -> Placement | None:
        """A placement within the ceiling, or else the best that filling gives; None where that is far above."""
        filler = Filler(placer)
        filler.blend(ceiling, work)
        if self._is_beyond(filler.top, ceiling):
            return None
        filler.repair(ceiling, FILL_REPAIRS * work)
        if filler.top <= ceiling:
            return filler.offset
        found = fit_within(placer, ceiling, COARSE_NODES)[0] if is_searchable(placer) else None
        return filler.offset if found is None else found

    def _weigh(self, work: int) -> None:
        """Weigh all buffers, at first by their sizes."""
        if self.is_capped and self._is_hopeless():
            return
        weight = self.placer.size.astype(np.float64)
        self._weigh_in("weighed", self.placer, weight, int(self.bound * (1 + CEILING)), work)

    def _weigh_in(self, method: str, placer: Placer, weight: Float64Array, ceiling: int, work: int) -> None:
        """Pack again and again by weight; whatever ended above the ceiling weighs more the next time, and so finds room
        before others do (Joslin and Clements 1999: squeaky wheel)."""
        free, stop_at = placer.free, placer.work + work
        while placer.work < stop_at and self.top > self.close:
            order: Order = free[np.lexsort((placer.born[free], -weight[free]))].tolist()
            placement = placer.fit(order)
            self._offer(method, placement, order)
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
