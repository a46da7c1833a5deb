"""`auto`: minigraph's own policy. It makes one list of candidate schedules that does not depend on the budget, and
takes the fastest that fits; so a larger budget is never slower, and a smaller one never takes more memory."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, product

from ...base import Entry
from ..schedule import Schedule, from_order
from .capuchin import collective
from .checkpoints import drop_before, nested, spaced
from .cuts import Cut, find_cuts
from .hybrid import lowest, played
from .problem import Candidate, Problem, judge_beside_homes
from .search import candidates
from .swapping import Absence, absences, with_swaps

FEWEST = 3
"""Schedules of each kind that are tried on the largest graphs, too."""
STRETCHES = (64, 128, 16, 32, 8, 4)
"""Stretches between checkpoints of one level. This and all that follows begins with what tells most, for on a large
graph only a part is tried."""
SHARES = (1.0, 0.5, 0.75, 0.25)
"""Shares of the forward part of which checkpoints alone are kept, and of all absences, the longest first, that are
swapped; the rest is kept whole."""
NESTED_STRETCHES, LEVELS, BRANCHING = (8, 3, 12, 6, 4), (3, 2, 4), (4, 3)
"""Stretches of the first of several levels, and parts into which each further one divides those of the one before."""
LEADS = (None, 4, 32)
"""Most steps before its reader at which a swapped value begins to come back."""
EAGER_LEAD = 4
"""The same where the computation waits for a copy to have left."""
SWAPPED_BEHIND, SWAPPED_STRETCHES = (0.0, 0.3, 0.6), 64
"""Shares of forward behind which costly values are swapped, and stretches between checkpoints for all others."""
COLLECTIVE_TARGETS, COLLECTIVE_WORK = 12, 8_000
"""Sizes of the device for which values are swapped where that costs nothing and made again collectively, by Capuchin's
measures: at most so many, and no more than this over the nodes of a graph."""

Makers = list[Callable[[], Schedule]]


def auto(problem: Problem) -> list[Candidate]:
    """The plain order; cheap values dropped; checkpoints over a part or all of forward, in one to three levels; what a
    search finds; values made again collectively, those swapped whose copies are hidden; and each value kept, swapped or
    computed again by what it costs."""
    targets = min(COLLECTIVE_WORK // max(len(problem.order), 1), COLLECTIVE_TARGETS)
    return judge_beside_homes(problem, chain([from_order(problem.order)], _schedules(problem),
                                             candidates(problem), collective(problem, targets),
                                             played(problem), lowest(problem)))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    """As many of each list as the size of the graph allows."""
    cuts = find_cuts(problem)
    costly = frozenset(e for e in problem.saved if problem.is_costly(e))
    lists = [_dropping(problem, cuts, costly)]
    if problem.host_budget_bytes:
        lists += [_swapping(problem, costly), _swapped_behind(problem, cuts, costly)]
    if cuts:
        lists += [_between_checkpoints(problem, cuts), _between_nested(problem, cuts)]
    for makers in lists:
        for make in makers[:problem.few(len(makers), FEWEST)]:
            yield make()


def _dropping(problem: Problem, cuts: list[Cut], costly: Collection[Entry]) -> Makers:
    """Cheap values dropped in a share of forward."""
    end = len(problem.forward)
    return [partial(drop_before, problem, cuts, [], round(end * share), costly) for share in SHARES]


def _between_checkpoints(problem: Problem, cuts: list[Cut]) -> Makers:
    """A share of forward made again between checkpoints of one level."""
    makers: Makers = []
    end, total = len(problem.forward), cuts[-1].before_bytes
    for share, stretches in product(SHARES, list(_distinct(cuts, total, STRETCHES))):
        stop = _last_before(spaced(cuts, total / stretches), end * share)
        if stop is not None:
            makers.append(partial(drop_before, problem, cuts, nested(cuts, [total / stretches]), stop))
    return makers


def _between_nested(problem: Problem, cuts: list[Cut]) -> Makers:
    """Forward made again between checkpoints of several levels."""
    makers: Makers = []
    total = cuts[-1].before_bytes
    numbers = list(_distinct(cuts, total, NESTED_STRETCHES))
    for branching, levels, stretches in product(BRANCHING, LEVELS, numbers):
        distances = [total / stretches / branching ** level for level in range(levels)]
        stop = spaced(cuts, distances[-1])[-1].position + 1
        makers.append(partial(drop_before, problem, cuts, nested(cuts, distances), stop))
    return makers


def _swapping(problem: Problem, costly: Collection[Entry]) -> Makers:
    """Values away while nobody needs them, the longest absences first: alone, and with cheap values recomputed too."""
    plain, cheap_dropped = from_order(problem.order), drop_before(problem, [], [], len(problem.forward), costly)
    ways: list[tuple[Schedule, list[Absence]]] = []
    for base, entries in ((plain, problem.droppable), (cheap_dropped, costly)):
        away = absences(problem, base, set(problem.saved) & set(entries))
        away.sort(key=lambda a: (a.last - a.back, a.last))
        ways.append((base, away))
    makers: Makers = []
    for share, (lead, eager), (base, away) in product(
            SHARES, [(LEADS[0], False), (EAGER_LEAD, True), *((lead, False) for lead in LEADS[1:])], ways):
        chosen = sorted(away[:round(len(away) * share)], key=lambda a: a.last)
        if chosen:
            makers.append(partial(with_swaps, problem, base, chosen, eager=eager, lead=lead))
    return makers


def _swapped_behind(problem: Problem, cuts: list[Cut], costly: Collection[Entry]) -> Makers:
    """All of forward computed again between checkpoints, but for the costly values of its end, which are swapped."""
    return [partial(_swap_behind, problem, cuts, costly, share) for share in SWAPPED_BEHIND]


def _swap_behind(problem: Problem, cuts: list[Cut], costly: Collection[Entry], share: float) -> Schedule:
    total = cuts[-1].before_bytes if cuts else 0
    start = round(len(problem.forward) * share)
    late = {e for node in problem.forward[start:] for e in problem.graph.entries(node) if e in costly}
    base = drop_before(problem, cuts, nested(cuts, [total / SWAPPED_STRETCHES]), len(problem.forward), late)
    away = absences(problem, base, late)
    return with_swaps(problem, base, sorted(away, key=lambda a: a.last)) if away else base


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
