"""Values kept, swapped or computed again, each by what it costs, played for a row of sizes of the device.

Values that cost most to compute again, as many as the link can copy out during forward, are *dear*: they go by host
memory. The others are *cheap*: they are let go of and made again when they are read. In a graph in slices each slice of
a value leaves and comes back by itself.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...base import Entry
from ..schedule import Schedule, from_order
from .ground import Ground
from .play import Play
from .problem import Problem, repeats_alike
from .superneurons import CACHES, memory_centric, speed_centric, tensor_cache
from .swapping import carry

WORK = 24_000
"""Nodes that plays without swaps may go through, and as many again with them; the number of plays is this over the
nodes of a graph, within the next two."""
FEWEST_PLAYS, MOST_PLAYS = 4, 40
FEWEST_TARGETS, MOST_TARGETS = 6, 12
"""Sizes of the device for each share of dear values."""
MOST_REPAIRS = 24
"""Plays in which values come back only by copies since making them again would not fit: at most so many, and no more
than the work over the nodes of a graph."""
SMALLEST = 2
"""Sizes of SuperNeurons' tensor cache, the smallest ones, that are tried."""
LINK_SHARES = ((1.0, False), (float("inf"), False), (0.7, True))
"""Bytes of dear values over those that the link could copy out during forward, and whether inputs are dear, too, as
they may be where the link has time left; with all that may be, no copy is passed over for making a value again, and the
least memory is reached."""


def played(problem: Problem) -> Iterator[Schedule]:
    """Schedules for a row of targets and shares of dear values, of which those are left out that come to no end."""
    if not problem.backward_start < len(problem.order) <= WORK:
        return
    ground = Ground(postponed(problem))
    count = min(max(WORK // len(problem.order), FEWEST_PLAYS), MOST_PLAYS)
    targets = ground.targets(min(max(count // len(LINK_SHARES), FEWEST_TARGETS), MOST_TARGETS))
    chosen = [(target, 0.0, False) for target in targets][:count]  # with host memory too: it may be too little to help
    if problem.host_budget_bytes:
        chosen += [(target, *way) for way in LINK_SHARES for target in targets][:count]
    repairs = min(WORK // len(problem.order), MOST_REPAIRS) if problem.host_budget_bytes else 0
    for target, share, with_inputs in chosen:
        dear = ground.dear(share) | (ground.inputs if with_inputs else frozenset())
        by_copy = dear if share == float("inf") else frozenset[Entry]()
        plays = list(_repaired(ground, target, dear, by_copy, repairs))
        repairs -= len(plays) - 1
        yield from (found for found in plays if found is not None and repeats_alike(problem, found))


def _repaired(ground: Ground, target: int, dear: frozenset[Entry], by_copy: frozenset[Entry], most: int,
              ) -> Iterator[Schedule | None]:
    """A play, and at most so many more in which what could not be made again within the target comes by host memory."""
    for _ in range(1 + most):
        play = Play(ground, target, dear, by_copy)
        yield play.run()
        crowded = ground.alone.intersection(play.crowded).difference(by_copy)
        if not crowded:
            return
        dear, by_copy = dear | crowded, by_copy | crowded


def postponed(problem: Problem) -> Problem:
    """The problem with each change of a variable behind the last use of what is made from its old value, so that this
    can be made again until then. A change whose result others read stays where it is."""
    graph, order = problem.graph, problem.order
    position = {node: t for t, node in enumerate(order)}
    readers: dict[Entry, list[int]] = {}
    for node in order:
        for entry in problem.reads[node]:
            readers.setdefault(entry, []).append(node)
    needed: dict[int, int] = {}
    for node in reversed(problem.forward):
        uses = [other for e in graph.entries(node) for other in readers.get(e, ())]
        needed[node] = max((max(position[other], needed.get(other, 0)) for other in uses), default=0)
    place = dict(position)
    for node in order[problem.backward_start:]:
        changed = problem.changes(node)
        if changed and not any(e in readers for e in graph.entries(node)):
            place[node] = max([position[node], *(needed.get(r, 0) for e in changed for r in readers.get(e, ()))])
    moved = sorted(order, key=lambda node: (place[node], place[node] > position[node], position[node]))
    return replace(problem, order=moved)


def lowest(problem: Problem) -> Iterator[Schedule]:
    """What takes least memory at any price: values away that are not in use, and values made again in segments,
    for each reader or once (SuperNeurons' tensor cache in its smallest sizes, over its recomputations)."""
    if not problem.backward_start < len(problem.order) <= WORK:
        return
    for base in dict.fromkeys((from_order(problem.order), speed_centric(problem), memory_centric(problem))):
        yield base
        if problem.host_budget_bytes:
            cache = tensor_cache(problem, base)
            yield from (carry(base, cache.play(size)) for size in cache.capacities(CACHES)[-SMALLEST:])
