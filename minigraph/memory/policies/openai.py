"""`openai`: Salimans and Bulatov, "gradient-checkpointing" (2018), the collections of their memory_saving_gradients.

`speed` keeps what costly layers make and makes everything else again. `memory` looks for bottlenecks, values through
which everything that comes later must pass, and keeps every so many of them that about the square root of the number of
all values is left, or more. The recursive form keeps about the square root of the bottlenecks alone, or a higher root,
and does the same in each stretch between two of those. Where a graph has no bottleneck
there is nothing for the last two to keep, and only `speed` is offered.
"""
from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from ...base import Entry
from ..schedule import Schedule, from_order
from .checkpoints import Placed, drop_before
from .cuts import Crossing
from .problem import Candidate, Problem, judge

SMALLEST = 1024
"""Elements above which a value may be a checkpoint, as in the authors' code."""
MOST_DISTANCES = 24
"""Distances between kept bottlenecks that are tried, evenly from one to the root of the number of values: all of them
up to that number, which the zoo's networks do not reach, and no more on chains of tens of thousands."""
RECURSIONS = (1, 2, 3)
"""Levels of checkpoints that are tried in the recursive form."""


def openai(problem: Problem) -> list[Candidate]:
    """Plain, `speed`, `memory`, and `memory` applied recursively."""
    return judge(problem, [from_order(problem.order), speed(problem), *_memory(problem)])


def speed(problem: Problem) -> Schedule:
    """Only what costly operators make is kept."""
    graph = problem.graph
    costly = {e for node in problem.forward for e in graph.entries(node)
              if graph.op[node].recompute == "costly"}  # type: ignore[union-attr]
    return drop_before(problem, [], [], len(problem.forward), costly)


def bottlenecks(problem: Problem) -> list[Entry]:
    """Values of more than SMALLEST elements that alone cross some position of forward, in its order."""
    crossing = Crossing(problem)
    alone = dict.fromkeys(crossing.at(t)[0] for t, count in enumerate(crossing.count) if count == 1)
    return [entry for entry in alone if problem.graph.type_of(entry).size > SMALLEST]


def _memory(problem: Problem) -> Iterator[Schedule]:
    graph, found = problem.graph, bottlenecks(problem)
    large = sum(graph.type_of(e).size > SMALLEST for node in problem.forward for e in graph.entries(node))
    step = max(1, ceil(len(found) / max(large, 1) ** 0.5))
    distances = sorted({1 + k * (step - 1) // max(min(step, MOST_DISTANCES) - 1, 1)
                        for k in range(min(step, MOST_DISTANCES))})
    collections: list[Placed] = [[(0, frozenset({entry})) for entry in found[each:-1:each]] for each in distances]
    for placed in (*collections, *(_placed(found, levels) for levels in RECURSIONS)):
        if placed:
            yield drop_before(problem, [], placed, len(problem.forward))


def _placed(found: list[Entry], levels: int) -> Placed:
    """Checkpoints at every n**(l/(l+1))-th bottleneck of n, and between those by the same rule at further levels."""
    placed: Placed = []
    for k, entry in enumerate(found[:-1], start=1):
        for level in range(levels):
            step = ceil(len(found) ** ((levels - level) / (levels + 1)))
            if k % step == 0:
                placed.append((level, frozenset({entry})))
                break
    return placed
