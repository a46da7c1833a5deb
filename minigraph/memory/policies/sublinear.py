"""`sublinear`: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016).

The forward part is cut into stretches; only the values at the cuts are kept, and each stretch is run a second time when
its backward part comes. How long a stretch may be is searched as in the authors' memonger: try distances around the
square-root rule, and let the planner say what each one costs.
"""
from __future__ import annotations

from collections.abc import Iterator

from ..schedule import Schedule, from_order
from .checkpoints import drop_before, nested, spaced
from .cuts import find_cuts
from .problem import Candidate, Problem, judge

DISTANCES = 24
"""Distances that are tried, in geometric steps from a whole forward part to one cut."""


def sublinear(problem: Problem) -> list[Candidate]:
    """The plain order, and one cut of the forward part for each distance."""
    return judge(problem, [from_order(problem.order), *_family(problem)])


def _family(problem: Problem) -> Iterator[Schedule]:
    cuts = find_cuts(problem)
    seen = set()
    for distance in _distances([cut.before_bytes for cut in cuts]):
        chosen = spaced(cuts, distance)
        positions = tuple(cut.position for cut in chosen)
        if chosen and positions not in seen:
            seen.add(positions)
            yield drop_before(problem, cuts, nested(cuts, [distance]), chosen[-1].position + 1)


def _distances(before_bytes: list[int]) -> list[float]:
    """Geometric steps from half of all saved bytes down to the shortest way between two cuts."""
    gaps = [b - a for a, b in zip(before_bytes, before_bytes[1:], strict=False) if b > a]
    if not before_bytes or not before_bytes[-1]:
        return []
    longest = max(before_bytes[-1] / 2, 1.0)
    shortest = min(min(gaps, default=longest), longest)
    return [longest * (shortest / longest) ** (k / (DISTANCES - 1)) for k in range(DISTANCES)]
