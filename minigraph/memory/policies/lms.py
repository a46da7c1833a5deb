"""`lms`: Le, Imai, Negishi and Kawachiya, "Automatic GPU Memory Management for Large Neural Models in TensorFlow"
(ISMM 2019), and IBM's released code, version 2.

The graph's nodes have levels: one more than the highest level of those that they read from. An edge over at least
`threshold` levels is written again as a copy out and a copy back. The copy back is held by a control dependency until
its reader is at most `ahead` levels away, and copies back whose readers are close together begin together. Copies may
be waited for at once (`synchronous`) or not. The authors simulate a step to find the largest threshold that fits, then
the largest distance ahead; here every combination is a candidate, judged by the same count as all policies, and the
fastest that fits is taken. Values of one dimension or none stay, as in the code.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..schedule import RUN, Schedule, from_order, read_roots
from .problem import Candidate, Problem, judge
from .swapping import Absence, Trip, absences, carry, release_steps, start_seconds

THRESHOLDS = 12
"""Distances that are tried, in geometric steps from the longest edge to the shortest."""
AHEAD = (1, 4, 16)
"""Levels before its reader at which a copy back may begin."""
GROUP = (0, 4)
"""Copies back whose readers are within so many levels begin together."""


def lms(problem: Problem) -> list[Candidate]:
    """Nothing swapped, and every combination of threshold, distance ahead, grouping and waiting."""
    return judge(problem, _schedules(problem))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    plain = from_order(problem.order)
    yield plain
    levels = node_levels(problem)
    far = _distances(problem, plain, levels)
    seen = {0}
    for threshold in _thresholds(list(far.values())):
        chosen = [absence for absence, distance in far.items() if distance >= threshold]
        if len(chosen) in seen:
            continue
        seen.add(len(chosen))
        for ahead in AHEAD:
            for group in GROUP:
                yield _rewritten(problem, plain, levels, chosen, ahead, group, synchronous=False)
        yield _rewritten(problem, plain, levels, chosen, AHEAD[0], GROUP[0], synchronous=True)


def node_levels(problem: Problem) -> dict[int, int]:
    """For each node in order one more than the highest level of those whose values it reads."""
    graph, levels = problem.graph, dict[int, int]()
    for node in problem.order:
        levels[node] = 1 + max((levels.get(graph.node_of[e], 0) for e in read_roots(graph, node)), default=0)
    return levels


def _distances(problem: Problem, plain: Schedule, levels: dict[int, int]) -> dict[Absence, int]:
    """For each absence the levels between the node that makes the value and its first reader after it."""
    graph = problem.graph
    large = [e for e in problem.saved if e in problem.droppable and len(graph.type_of(e).shape) > 1]
    return {absence: levels[plain.steps[absence.back][1]] - levels[graph.node_of[absence.entry]]
            for absence in absences(problem, plain, large)}


def _thresholds(distances: Sequence[int]) -> list[int]:
    if not distances:
        return []
    longest, shortest = max(distances), max(min(distances), 1)
    return [round(longest * (shortest / longest) ** (k / (THRESHOLDS - 1))) for k in range(THRESHOLDS)]


def _rewritten(problem: Problem, plain: Schedule, levels: dict[int, int], chosen: Sequence[Absence], ahead: int,
               group: int, synchronous: bool) -> Schedule:
    """The plain schedule with the chosen values away between their readers."""
    starts = start_seconds(problem, plain)
    released = release_steps(problem, plain, chosen, starts, synchronous)
    trips: list[Trip] = []
    leader: Absence | None = None
    begin = 0
    for absence in sorted(chosen, key=lambda a: (a.back, a.last)):
        level = levels[plain.steps[absence.back][1]]
        if leader is None or level - levels[plain.steps[leader.back][1]] > group:
            leader, begin = absence, _begin(plain, levels, absence.back, ahead)
        release = released[absence.entry]
        if release < leader.back:
            trips.append(Trip(absence.entry, absence.last, release, max(begin, release)))
    return carry(plain, trips)


def _begin(plain: Schedule, levels: dict[int, int], back: int, ahead: int) -> int:
    """The first step of those right before a reader that are at most `ahead` levels below it."""
    reader = levels[plain.steps[back][1]]
    step = back
    while step > 0 and plain.steps[step - 1][0] == RUN and levels[plain.steps[step - 1][1]] >= reader - ahead:
        step -= 1
    return step
