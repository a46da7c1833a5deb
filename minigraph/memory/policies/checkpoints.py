"""Placing checkpoints on the cuts of a forward part, in one level or in nested ones."""
from __future__ import annotations

from collections.abc import Collection, Sequence

from ...base import Entry
from ..schedule import Recomputation, Schedule, from_order
from .cuts import Cut
from .problem import Problem

Placed = list[tuple[int, frozenset[Entry]]]


def spaced(cuts: Sequence[Cut], distance_bytes: float, start_bytes: int = 0) -> list[Cut]:
    """Cuts at which at least `distance_bytes` of saved values lie behind the previous one (memonger's greedy walk)."""
    chosen, passed = [], start_bytes
    for cut in cuts:
        if cut.before_bytes - passed >= distance_bytes:
            chosen.append(cut)
            passed = cut.before_bytes
    return chosen


def nested(cuts: Sequence[Cut], distances: Sequence[float]) -> Placed:
    """Checkpoints of several levels: level k at the cuts spaced by `distances[k]`, the largest distance first.

    A cut that several levels would choose has the lowest of them. The order is that of the forward part.
    """
    level_of: dict[int, int] = {}
    for level in reversed(range(len(distances))):
        level_of.update((cut.position, level) for cut in spaced(cuts, distances[level]))
    return [(level_of[cut.position], cut.entries) for cut in cuts if cut.position in level_of]


def drop_before(problem: Problem, cuts: Sequence[Cut], placed: Placed, keep_from: int,
                keep: Collection[Entry] = ()) -> Schedule:
    """The schedule that drops what forward makes before position `keep_from`, apart from checkpoints and `keep`."""
    recompute = problem.droppable.difference(keep)
    if keep_from < len(problem.forward):
        recompute &= {e for node in problem.forward[:keep_from] for e in problem.graph.entries(node)}
    if not recompute:
        return from_order(problem.order)
    return Recomputation(problem.facts, recompute, placed).schedule()
