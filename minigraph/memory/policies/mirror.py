"""`mirror`: what the network's author marked runs again in backward, as MXNet's `force_mirroring` asks.

A value is dropped when forward has used it last if its node is marked to run again and no view of it is marked to be
kept. At the end of forward that may save nothing, for backward begins with those values, and all of a stretch would be
made again at once. So of the last marked values some are left where they are: as many as give the lowest peak.
"""
from __future__ import annotations

from collections.abc import Iterator

from ...base import Entry
from ..schedule import Recomputation, Schedule, from_order, root_of
from .problem import Candidate, Problem, judge

ENDS = 24
"""Values at the end of forward at which dropping may end."""


def mirror(problem: Problem) -> list[Candidate]:
    """The plain order, and orders in which marked nodes run again, for each value at which that may end."""
    return judge(problem, [from_order(problem.order), *_family(problem)])


def _family(problem: Problem) -> Iterator[Schedule]:
    marked, saved = _marked(problem), set(problem.saved)
    made = [e for node in problem.forward for e in problem.graph.entries(node) if e in marked]
    ends = [k + 1 for k, entry in enumerate(made) if entry in saved]
    for end in ends[-problem.few(ENDS, 2):]:
        yield Recomputation(problem.facts, made[:end]).schedule()


def _marked(problem: Problem) -> set[Entry]:
    """The values to drop in forward and to make again in backward."""
    graph = problem.graph
    kept = {root_of(graph, graph.first[i]) for i, mark in enumerate(graph.mark) if mark is False}
    return {e for e in problem.droppable if graph.mark[graph.node_of[e]] and e not in kept}
