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
from collections.abc import Collection, Iterable, Iterator, Sequence

from ...base import Entry
from ..schedule import RUN, Recomputation, Schedule, from_order
from .cache import Cache
from .problem import Candidate, Problem, judge
from .swapping import Trip, backward_begin, carry, start_seconds, uses

CACHES = 12
"""Sizes of the tensor cache that are tried, in geometric steps from what nobody evicts to the smallest."""
MOST_RUNS = 8
"""Runs of the whole graph, counted in steps, after which a segment is kept once it was made again: without costly
layers the whole network is one segment, and to make that again for each layer takes a time that is quadratic in depth.
No network of the zoo comes to half of them."""


def superneurons(problem: Problem) -> list[Candidate]:
    """Plain; and each way of recomputation with checkpoints on the device, in the tensor cache, or all offloaded."""
    return judge(problem, _schedules(problem))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    bases = (from_order(problem.order), speed_centric(problem), cost_aware(problem), memory_centric(problem))
    for base in dict.fromkeys(bases):
        yield base
        if problem.host_budget_bytes:
            yield offloaded(problem, base)
            cache = tensor_cache(problem, base)
            yield from (carry(base, cache.play(size)) for size in cache.capacities(CACHES))


# -- recomputation -------------------------------------------------------------------------------------------
def checkpoints(problem: Problem) -> frozenset[Entry]:
    """Forward values that are never dropped: made by a costly op or by one that joins several, or read by several."""
    graph = problem.graph
    readers: dict[Entry, int] = {}
    kept: set[Entry] = set()
    made = {e for node in problem.forward for e in graph.entries(node)}
    for node in problem.forward:
        op, sources = graph.op[node], made.intersection(problem.reads[node])
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
        source = next((segment_of[e] for e in problem.reads[node] if e in segment_of), None)
        if source is None:
            source = len(found)
            found.append((set(), 0))
        segment_of.update(dict.fromkeys(entries, source))
        found[source][0].update(entries)
        found[source] = (found[source][0], found[source][1] + _working_set(problem, node))
    return [(frozenset(entries), nbytes) for entries, nbytes in found]


def _working_set(problem: Problem, node: int) -> int:
    """Bytes of the values, not variables, that a node reads and makes."""
    graph = problem.graph
    read = (e for e in problem.reads[node] if graph.op[graph.node_of[e]] is not None)
    return sum(problem.size_bytes[e] for e in (*read, *graph.entries(node)))


class _Segments(Recomputation):
    """Everything but checkpoints is dropped; what is `passing` is made again for each backward node by itself, as long
    as that does not take too many steps."""

    def __init__(self, problem: Problem, passing: Collection[Entry]) -> None:
        super().__init__(problem.facts, problem.droppable - checkpoints(problem))
        self.passing = passing

    def _provide(self, wanted: Iterable[Entry]) -> None:
        wanted = set(wanted)
        again = self._make_again(sorted(wanted))
        if len(self.steps) > MOST_RUNS * len(self.order):
            return
        for entry in again:
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


def tensor_cache(problem: Problem, schedule: Schedule) -> Cache:
    """The tensor cache: it evicts what was used least recently, and fetches at costly layers."""
    return Cache(problem, schedule, _costly_layers(problem, schedule))


def _costly_layers(problem: Problem, schedule: Schedule) -> list[int]:
    """The steps at which costly layers run backward: where the inputs of their forward nodes are first read there."""
    graph, backward = problem.graph, set(problem.order[problem.backward_start:])
    inputs = {e for node in problem.forward if graph.op[node].recompute == "costly"  # type: ignore[union-attr]
              for e in problem.reads[node] if graph.op[graph.node_of[e]] is not None}
    layers = []
    for t, (kind, node) in enumerate(schedule.steps):
        if kind == RUN and node in backward:
            met = inputs.intersection(problem.reads[node])
            if met:
                layers.append(t)
                inputs -= met
    return layers


def _latest(steps: Sequence[int], before: int, default: int = -1) -> int:
    """The last of the ascending steps that is less than `before`."""
    k = bisect_left(steps, before)
    return steps[k - 1] if k else default
