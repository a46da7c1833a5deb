"""Candidates of which the graph itself is in slices of the batch: plain, and with values of slices computed again.

Slices bound what a single operator needs, which no other technique does. Where nothing in a step asks for a whole
batch, forward and backward of one slice run before the next one, at no cost but of launches; elsewhere all forward
slices come first, and what a slice's backward reads is made again from the nearest checkpoint, slice by slice.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..schedule import Schedule, from_order
from .checkpoints import drop_before, nested
from .cuts import find_cuts
from .exchange import exchanged
from .hybrid import played
from .parameters import place_homes
from .problem import Candidate, Problem, Slicing, front, judge

TOGETHER = (2, 4, 8, 16, 32)
"""Numbers of slices that are tried where forward and backward of a slice go together."""
APART = (4, 16, 32)
"""Numbers of slices that are tried where all of forward comes first, and values are computed again."""
STRETCHES = (2, 4, 8, 16)
"""Numbers of stretches between checkpoints that are tried in a sliced graph."""
LARGE_SHARE = 1 / 16
"""Share of the largest tensor from which one is large; where forward comes first, the others stay whole."""
MOST_STEPS = 24_000
"""Steps of a sliced graph up to which it is considered, so that planning does not take much longer."""


def in_slices(problem: Problem, known: list[Candidate], moves_homes: bool) -> list[Candidate]:
    """The candidates that are known, and those in slices, but for such as another one beats. With `moves_homes`
    parameters and states may be sent away from the device, too.

    Where forward and backward go together more slices are tried only while they add candidates: where fewer do not
    help, neither do more. Elsewhere a few that leave no room beside a slice may not, although more do.
    """
    apart = APART if problem.backward_start < len(problem.order) else ()
    found = known
    for numbers, together in ((TOGETHER, True), (apart, False)):
        for slices in numbers:
            if slices * len(problem.order) > MOST_STEPS:
                break
            more = front([*found, *_candidates(problem, _cut(problem, slices, together), moves_homes)])
            if together and len(more) == len(found) and all(a is b for a, b in zip(more, found, strict=True)):
                break
            found = more
    return found


def alike(problem: Problem, slicing: Slicing, moves_homes: bool) -> list[Candidate]:
    """The candidates in as many slices as those of another size of the same network, cut in the same way."""
    cut = _cut(problem, slicing.slices, slicing.together)
    problem.alike[cut, moves_homes] = found = _candidates(problem, cut, moves_homes)
    return found


def _cut(problem: Problem, slices: int, together: bool) -> Slicing:
    """How a problem is cut; where forward comes first, at large tensors only."""
    large = 0 if together else int(max(problem.size_bytes, default=0) * LARGE_SHARE)
    return Slicing(slices, large, together)


def _candidates(problem: Problem, slicing: Slicing, moves_homes: bool) -> list[Candidate]:
    if (slicing, moves_homes) in problem.alike:
        return problem.alike[slicing, moves_homes]
    cut = problem.sliced(slicing)
    if cut is None:
        return []
    # A slice is never taken to be faster than the whole: then a larger budget is never slower.
    fastest = sum(problem.seconds[node] for node in problem.order)
    schedules = [from_order(cut.order)] if slicing.together else _recomputing(cut, slicing.slices)
    found = judge(cut, schedules)
    if found:
        found = place_homes(cut, found, moves_homes)
    return [replace(c, graph=cut.graph, slicing=slicing, seconds=max(c.seconds, fastest)) for c in found]


def _recomputing(problem: Problem, slices: int) -> Iterator[Schedule]:
    """The plain order; each slice kept, swapped or made again; all dropped and made again; checkpoints between."""
    yield from_order(problem.order)
    yield from played(problem)
    yield from exchanged(problem)
    end = len(problem.forward)
    costly = frozenset(e for e in problem.saved if problem.is_costly(e))
    yield drop_before(problem, [], [], end, costly)
    yield drop_before(problem, [], [], end)
    cuts = find_cuts(problem, slices)
    total = cuts[-1].before_bytes if cuts else 0
    for stretches in STRETCHES if total else ():
        yield drop_before(problem, cuts, nested(cuts, [total / stretches]), end)
