"""`auto`: minigraph's own policy. It makes one list of candidate schedules that does not depend on the budget, and
takes the fastest that fits; so a larger budget is never slower, and a smaller one never takes more memory."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ...base import Entry
from ..schedule import Schedule, from_order
from .capuchin import collective
from .checkpoints import drop_before, nested, spaced
from .cuts import Cut, find_cuts
from .hybrid import lowest, played
from .problem import Candidate, Problem, judge_beside_homes
from .search import candidates
from .swapping import absences, with_swaps


@dataclass(frozen=True)
class Grid:
    """What is tried. `stretches` of one level are each tried over several `shares` of the forward part: so much of it
    is dropped, and the rest is kept whole. In nested `levels` the first has `nested_stretches`, and each further one
    divides those of the level before into `branching` parts. A swapped value begins to come back at most `leads` steps
    before its reader."""

    stretches: tuple[int, ...]
    shares: tuple[float, ...]
    nested_stretches: tuple[int, ...]
    branching: tuple[int, ...]
    levels: tuple[int, ...]
    leads: tuple[int | None, ...]


FINE = Grid((4, 8, 16, 32, 64, 128), (0.25, 0.5, 0.75, 1.0), (3, 4, 6, 8, 12), (3, 4), (2, 3, 4), (4, 32, None))
COARSE = Grid((64, 128), (1.0,), (8,), (4,), (3,), (None,))
SWAPPED_BEHIND, SWAPPED_STRETCHES = (0.0, 0.3, 0.6), 64
"""Shares of forward behind which costly values are swapped, and stretches between checkpoints for all others."""
COLLECTIVE_TARGETS, COLLECTIVE_WORK = 12, 8_000
"""Sizes of the device for which values are swapped where that costs nothing and made again collectively, by Capuchin's
measures: at most so many, and no more than this over the nodes of a graph."""
COARSE_FROM = 60_000
"""Nodes from which on the coarse grid is tried: there every schedule takes a second, and one level goes far."""


def auto(problem: Problem) -> list[Candidate]:
    """The plain order; cheap values dropped; checkpoints over a part or all of forward, in one to three levels; what a
    search finds; values made again collectively, those swapped whose copies are hidden; and each value kept, swapped or
    computed again by what it costs."""
    searched = candidates(problem) if len(problem.order) < COARSE_FROM else ()
    targets = min(COLLECTIVE_WORK // max(len(problem.order), 1), COLLECTIVE_TARGETS)
    return judge_beside_homes(problem, chain([from_order(problem.order)], _schedules(problem), searched,
                                             collective(problem, targets), played(problem), lowest(problem)))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    cuts = find_cuts(problem)
    end = len(problem.forward)
    costly = frozenset(e for e in problem.saved if problem.is_costly(e))
    grid = FINE if len(problem.order) < COARSE_FROM else COARSE
    for share in grid.shares:
        yield drop_before(problem, cuts, [], round(end * share), costly)
    if problem.host_budget_bytes and grid.leads:
        yield from _swapping(problem, grid, [costly, problem.droppable])
        yield from _swapped_behind(problem, cuts, costly)
    total = cuts[-1].before_bytes if cuts else 0
    for stretches in _distinct(cuts, total, grid.stretches):
        chosen = spaced(cuts, total / stretches)
        for share in grid.shares:
            stop = _last_before(chosen, end * share)
            if stop is not None:
                yield drop_before(problem, cuts, nested(cuts, [total / stretches]), stop)
    for stretches in _distinct(cuts, total, grid.nested_stretches):
        for levels in grid.levels:
            for branching in grid.branching:
                finest = total / stretches / branching ** (levels - 1)
                placed = nested(cuts, [total / stretches / branching ** level for level in range(levels)])
                yield drop_before(problem, cuts, placed, spaced(cuts, finest)[-1].position + 1)


def _swapping(problem: Problem, grid: Grid, kinds: Sequence[Collection[Entry]]) -> Iterator[Schedule]:
    """Values away while nobody needs them, the longest absences first: alone, and with cheap values recomputed too."""
    plain = from_order(problem.order)
    costly, droppable = kinds
    cheap_dropped = drop_before(problem, [], [], len(problem.forward), costly)
    for base, entries in ((plain, droppable), (cheap_dropped, costly)):
        away = absences(problem, base, set(problem.saved) & set(entries))
        away.sort(key=lambda a: (a.last - a.back, a.last))
        for share in grid.shares:
            chosen = sorted(away[:round(len(away) * share)], key=lambda a: a.last)
            if chosen:
                yield from (with_swaps(problem, base, chosen, lead=lead) for lead in grid.leads)
                yield with_swaps(problem, base, chosen, eager=True, lead=grid.leads[0])


def _swapped_behind(problem: Problem, cuts: list[Cut], costly: Collection[Entry]) -> Iterator[Schedule]:
    """All of forward computed again between checkpoints, but for the costly values of its end, which are swapped."""
    total = cuts[-1].before_bytes if cuts else 0
    for share in SWAPPED_BEHIND:
        start = round(len(problem.forward) * share)
        late = {e for node in problem.forward[start:] for e in problem.graph.entries(node) if e in costly}
        base = drop_before(problem, cuts, nested(cuts, [total / SWAPPED_STRETCHES]), len(problem.forward), late)
        away = absences(problem, base, late)
        if away:
            yield with_swaps(problem, base, sorted(away, key=lambda a: a.last))


def _distinct(cuts: list[Cut], total: float, numbers: Sequence[int]) -> Iterator[int]:
    """The numbers of stretches that give different checkpoints: a short network has few."""
    seen = {0}
    for stretches in numbers:
        count = len(spaced(cuts, total / stretches))
        if count not in seen:
            seen.add(count)
            yield stretches


def _last_before(cuts: list[Cut], position: float) -> int | None:
    """One past the position of the last cut before `position`."""
    before = [cut.position + 1 for cut in cuts if cut.position < position]
    return before[-1] if before else None
