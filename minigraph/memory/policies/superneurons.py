"""`superneurons`: Wang, Ye, Zhao, Wu, Li, Song, Xu and Kraska, "SuperNeurons: Dynamic GPU Memory Management for
Training Deep Neural Networks" (PPoPP 2018).

Checkpoints are what costly layers make (convolutions, fully connected ones), and where paths join or part. Everything
else is dropped in forward, and a *segment* between checkpoints is made again in one of two ways: once, and kept for
all its backward layers (speed-centric), or for each backward layer, which frees what lies between (memory-centric). The
cost-aware choice takes the first wherever the segment's bytes stay within the largest working set of one layer, below
which no plan can go. Checkpoints wait in host memory: all of them, each copied out as soon as it is made (the unified
tensor pool), or, by the tensor cache, only those used least recently when the device is full. The cache is played at
planning over the accesses of the schedule, for several sizes; a plan takes the fastest that fits its budget.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from ...base import Entry
from ..schedule import RUN, Recomputation, Schedule, from_order, read_roots
from .problem import Candidate, Problem, judge
from .swapping import Trip, backward_begin, carry, start_seconds, uses

CACHES = 12
"""Sizes of the tensor cache that are tried, in geometric steps from what nobody evicts to the smallest."""


def superneurons(problem: Problem) -> list[Candidate]:
    """Plain; and each way of recomputation with checkpoints on the device, in the tensor cache, or all offloaded."""
    return judge(problem, _schedules(problem))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    bases = (from_order(problem.order), speed_centric(problem), cost_aware(problem), memory_centric(problem))
    for base in dict.fromkeys(bases):
        yield base
        if problem.host_budget_bytes:
            yield offloaded(problem, base)
            yield from (cached(problem, base, size) for size in _cache_sizes(problem, base))


# -- recomputation -------------------------------------------------------------------------------------------
def checkpoints(problem: Problem) -> frozenset[Entry]:
    """Forward values that are never dropped: made by a costly op or by one that joins several, or read by several."""
    graph = problem.graph
    readers: dict[Entry, int] = {}
    kept: set[Entry] = set()
    made = {e for node in problem.forward for e in graph.entries(node)}
    for node in problem.forward:
        op, sources = graph.op[node], made.intersection(read_roots(graph, node))
        assert op is not None
        if op.recompute == "costly" or len(sources) > 1:
            kept.update(graph.entries(node))
        for entry in sources:
            readers[entry] = readers.get(entry, 0) + 1
    kept.update(entry for entry, count in readers.items() if count > 1)
    return frozenset(kept)


def speed_centric(problem: Problem) -> Schedule:
    """Each segment is made again once and kept for all its backward layers."""
    return _Segments(problem, frozenset()).schedule()


def memory_centric(problem: Problem) -> Schedule:
    """Each segment is made again for every backward layer that needs some of it."""
    return _Segments(problem, problem.droppable - checkpoints(problem)).schedule()


def cost_aware(problem: Problem) -> Schedule:
    """Memory-centric for segments that would take more than the largest working set of a layer, else speed-centric."""
    limit = largest_working_set(problem)
    large = [entries for entries, nbytes in segments(problem) if nbytes > limit]
    return _Segments(problem, frozenset().union(*large)).schedule()


def largest_working_set(problem: Problem) -> int:
    """The most bytes that one backward node reads and makes: l_peak, a floor under every plan's peak."""
    return max((_working_set(problem, node) for node in problem.order[problem.backward_start:]), default=0)


def segments(problem: Problem) -> list[tuple[frozenset[Entry], int]]:
    """Droppable values between checkpoints, connected by their makers; and the working sets of these, added up."""
    graph = problem.graph
    dropped = problem.droppable - checkpoints(problem)
    segment_of: dict[Entry, int] = {}
    found: list[tuple[set[Entry], int]] = []
    for node in problem.forward:
        entries = dropped.intersection(graph.entries(node))
        if not entries:
            continue
        source = next((segment_of[e] for e in read_roots(graph, node) if e in segment_of), None)
        if source is None:
            source = len(found)
            found.append((set(), 0))
        segment_of.update(dict.fromkeys(entries, source))
        found[source] = (found[source][0] | entries, found[source][1] + _working_set(problem, node))
    return [(frozenset(entries), nbytes) for entries, nbytes in found]


def _working_set(problem: Problem, node: int) -> int:
    """Bytes of the values, not variables, that a node reads and makes."""
    graph = problem.graph
    read = (e for e in read_roots(graph, node) if graph.op[graph.node_of[e]] is not None)
    return sum(problem.size_bytes[e] for e in (*read, *graph.entries(node)))


class _Segments(Recomputation):
    """Everything but checkpoints is dropped; what is `passing` is made again for each backward node by itself."""

    def __init__(self, problem: Problem, passing: Collection[Entry]) -> None:
        super().__init__(problem.graph, problem.order, problem.backward_start,
                         problem.droppable - checkpoints(problem))
        self.passing = passing

    def _provide(self, wanted: Iterable[Entry]) -> None:
        wanted = set(wanted)
        for entry in self._make_again(sorted(wanted)):
            if entry in self.passing and entry not in wanted:
                self._drop(entry)


# -- checkpoints in host memory ------------------------------------------------------------------------------
def offloaded(problem: Problem, schedule: Schedule) -> Schedule:
    """Every checkpoint leaves behind its last reader in forward, and is released where its copy has ended.

    It comes back at the last costly layer of backward before it is needed, so while that layer runs.
    """
    layers, begin = _costly_layers(problem, schedule), backward_begin(problem, schedule)
    moved = checkpoints(problem)
    used = {e: steps for e, steps in uses(problem, schedule).items() if e in moved and steps[0] < begin <= steps[-1]}
    starts, clock, trips = start_seconds(problem, schedule), 0.0, []
    for entry, steps in sorted(used.items(), key=lambda use: _latest(use[1], begin)):
        last, back = _latest(steps, begin), steps[bisect_left(steps, begin)]
        clock = max(clock, starts[last + 1]) + problem.copy_out_seconds(entry)
        release = max(bisect_left(starts, clock), last + 1)
        issue = max(_latest(layers, back, begin), release)
        if issue < back:
            trips.append(Trip(entry, last, release, issue))
    return carry(schedule, sorted(trips, key=lambda trip: trip.issue))


def cached(problem: Problem, schedule: Schedule, capacity_bytes: int) -> Schedule:
    """The tensor cache: where more than `capacity_bytes` would live, the values used least recently are evicted."""
    return carry(schedule, _Cache(problem, schedule, capacity_bytes).play())


class _Cache:
    """An LRU list of values on the device, played over the known accesses of a schedule.

    An evicted value is fetched at the last costly layer before its next access if there is room then, else at that
    access. What the step at hand uses is locked, and so is what was fetched until it is used.
    """

    def __init__(self, problem: Problem, schedule: Schedule, capacity_bytes: int) -> None:
        self.size = problem.size_bytes
        self.capacity_bytes = capacity_bytes
        self.live = problem.live(schedule).tolist()
        self.uses = uses(problem, schedule)
        self.layers = _costly_layers(problem, schedule)
        self.recent: OrderedDict[Entry, int] = OrderedDict()
        """Values on the device that will be used again, the least recently used one first, with their last use."""
        self.away: dict[Entry, tuple[int, int]] = {}
        """Evicted values: the step after which each was copied out, and that before which it was released."""
        self.away_bytes = 0
        self.trips: list[Trip] = []

    def play(self) -> list[Trip]:
        """The trips of all evicted values, in the order of their return."""
        used_at: dict[int, list[Entry]] = {}
        for entry, steps in self.uses.items():
            for t in steps:
                used_at.setdefault(t, []).append(entry)
        layers = dict(pairwise([*self.layers, len(self.live)]))
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
                self.away[entry] = (self.recent.pop(entry), t)
                self.away_bytes += self.size[entry]

    def _over(self, t: int) -> bool:
        return self.live[t] - self.away_bytes > self.capacity_bytes

    def _next_use(self, entry: Entry, t: int) -> int:
        steps = self.uses[entry]
        return steps[bisect_left(steps, t)]


def _cache_sizes(problem: Problem, schedule: Schedule) -> list[int]:
    """Geometric steps from just below the schedule's peak to what stays when all that is not in use is away."""
    live = problem.live(schedule)
    away = np.zeros(len(live) + 1, dtype=np.int64)
    for entry, steps in uses(problem, schedule).items():
        for before, after in pairwise(steps):
            away[before + 1] += problem.size_bytes[entry]
            away[after] -= problem.size_bytes[entry]
    highest, lowest = int(live.max()), int((live - np.cumsum(away)[:-1]).max())
    if lowest >= highest:
        return []
    return [int(highest * (lowest / highest) ** (k / CACHES)) for k in range(1, CACHES + 1)]


def _costly_layers(problem: Problem, schedule: Schedule) -> list[int]:
    """The steps at which costly layers run backward: where the inputs of their forward nodes are first read there."""
    graph, backward = problem.graph, set(problem.order[problem.backward_start:])
    inputs = {e for node in problem.forward if graph.op[node].recompute == "costly"  # type: ignore[union-attr]
              for e in read_roots(graph, node) if graph.op[graph.node_of[e]] is not None}
    layers = []
    for t, (kind, node) in enumerate(schedule.steps):
        if kind == RUN and node in backward:
            met = inputs.intersection(read_roots(graph, node))
            if met:
                layers.append(t)
                inputs -= met
    return layers


def _latest(steps: Sequence[int], before: int, default: int = -1) -> int:
    """The last of the ascending steps that is less than `before`."""
    k = bisect_left(steps, before)
    return steps[k - 1] if k else default
