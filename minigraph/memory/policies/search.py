"""Recomputation searched for entry by entry: what candidates made by rule alone are too coarse for.

On all graphs the schedules are those of the best chain (`rotor`), and those that give values up by their bytes for each
second of making them again; on graphs that are not large also those that give up so many bytes in the least time, each
value priced by itself. On graphs with few values to decide about, each value is kept, or made again once for all
its readers, or for each of them; for a row of falling targets values are given up one after the other, those first that
take most away from the live bytes above the target for the time that they cost, and taken back where the target allows
it. Every schedule that is met on the way is a candidate. The number of evaluations is bounded by the graph's size,
never by time.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...base import Entry
from ..schedule import Recomputation, Schedule
from . import narrow, rotor
from .knapsack import cheapest
from .lineage import LONGEST
from .problem import Problem
from .swapping import absences, with_swaps

WORK = 40_000
"""Steps of schedules that the search may look at; some 10 microseconds each."""
FULL_WORK = 400_000
"""The same for a full search."""
MOST_VALUES = 80
"""Values above which a search entry by entry would only have begun when its work is done."""
TARGETS = 12
"""Peaks that are aimed at, in equal steps from plain to the least that the chain reaches."""
SWAPPED_BASES, LEAD = 5, 4
"""Schedules of each kind whose kept values are swapped out as well; steps ahead of its reader that one comes back."""
PREFIXES = 10
"""Shares of the saved bytes that are given up by worth alone."""
LOADS = 40
"""Numbers of bytes that are given up in the least time."""
MOST_RUNS = 4
"""Runs of the whole graph, counted in steps, above which giving up by worth is not followed: values that are made again
for each reader by itself take a time that is quadratic in depth."""
NARROW_BUDGETS = 8
"""Sizes from the least upwards for which the chain is solved in fine slots."""
LARGE, CHAIN_BUDGETS, FEW_CHAIN_BUDGETS = 2_000, 24, 8
"""Nodes from which on fewer memory sizes of the chain are tried, and no loads."""


def candidates(problem: Problem, work: int = WORK) -> Iterator[Schedule]:
    """Schedules that recompute, those of the chain first."""
    budgets = problem.few(CHAIN_BUDGETS if len(problem.order) < LARGE else FEW_CHAIN_BUDGETS)
    chain = list(rotor.schedules(problem, budgets))
    yield from chain
    yield from narrow.schedules(problem, problem.few(NARROW_BUDGETS))
    worth = list(_by_worth(problem))
    yield from worth
    if len(problem.order) < LARGE:
        yield from _in_least_time(problem)
    if problem.host_budget_bytes:
        for bases in (chain, worth):
            for base in spread(bases, problem.few(SWAPPED_BASES)):
                yield from _with_checkpoints_away(problem, base)
    values = _values(problem)
    evaluations = work // max(len(problem.order), 1)
    if values and len(values) <= MOST_VALUES and evaluations > 4 * len(values):
        yield from _Descent(problem, values, evaluations).run(chain)


def _with_checkpoints_away(problem: Problem, base: Schedule) -> Iterator[Schedule]:
    """The schedule with what it keeps for backward in host memory meanwhile, and with the half of it that is away for
    longest."""
    away = sorted(absences(problem, base, problem.droppable), key=lambda a: a.last - a.back)
    for chosen in (away, away[:len(away) // 2]) if away else ():
        chosen = sorted(chosen, key=lambda a: a.last)
        yield with_swaps(problem, base, chosen, lead=None)
        yield with_swaps(problem, base, chosen, eager=True, lead=LEAD)


def _by_worth(problem: Problem) -> Iterator[Schedule]:
    """Growing shares of the saved values given up, those first that free most bytes for a second of computing them."""
    cost = _prices(problem)
    saved = sorted(cost, key=lambda e: (-problem.size_bytes[e] / max(cost[e], 1e-12), e))
    prefixes = problem.few(PREFIXES, 1)
    total, passed, share = sum(problem.size_bytes[e] for e in saved), 0, 1
    for k, entry in enumerate(saved, start=1):
        passed += problem.size_bytes[entry]
        if passed * prefixes >= share * total:
            share = passed * prefixes // total + 1
            for each in ((), saved[:k]):
                schedule = _Mixed(problem, saved[k:], frozenset(each)).schedule()
                if len(schedule) <= MOST_RUNS * len(problem.order):
                    yield schedule


def _in_least_time(problem: Problem) -> Iterator[Schedule]:
    """Growing numbers of bytes given up in the least time, each value made again once for all its readers."""
    cost = _prices(problem)
    saved = list(cost)
    for chosen in cheapest([problem.size_bytes[e] for e in saved], list(cost.values()), LOADS):
        schedule = _Mixed(problem, set(saved).difference(saved[k] for k in chosen), frozenset()).schedule()
        if len(schedule) <= MOST_RUNS * len(problem.order):
            yield schedule


def _prices(problem: Problem) -> dict[Entry, float]:
    """The saved values that may be given up, with the seconds to make each again from all others; without those for
    which many nodes would have to run."""
    given = frozenset(problem.saved)
    found = {e: seconds_again(problem, e, given) for e in problem.saved
             if e in problem.droppable and problem.size_bytes[e]}
    return {e: seconds for e, seconds in found.items() if seconds < float("inf")}


def seconds_again(problem: Problem, entry: Entry, given: Collection[Entry]) -> float:
    """Seconds to make a value again from those that are given, and from what is always there; without end where it
    takes more nodes than the longest lineage has."""
    graph = problem.graph
    todo, seen, seconds = [entry], set[int](), 0.0
    while todo:
        node = graph.node_of[todo.pop()]
        if node not in seen:
            seen.add(node)
            if len(seen) > LONGEST:
                return float("inf")
            seconds += problem.seconds[node]
            todo += [e for e in problem.reads[node] if e in problem.droppable and e not in given]
    return seconds


def _values(problem: Problem) -> list[Entry]:
    """What there is to decide about: droppable values with bytes that backward reads, or that cost much to make."""
    graph, saved = problem.graph, set(problem.saved)
    return [e for node in problem.forward for e in graph.entries(node)
            if e in problem.droppable and problem.size_bytes[e]
            and (e in saved or graph.op[node].recompute == "costly")]  # type: ignore[union-attr]


def spread(schedules: Sequence[Schedule], count: int) -> list[Schedule]:
    """At most so many of the schedules, evenly from the first to the last."""
    if len(schedules) <= count:
        return list(schedules)
    return [schedules[k * (len(schedules) - 1) // max(count - 1, 1)] for k in range(count)]


@dataclass(frozen=True)
class _Choice:
    """Values that are kept, and those that are made again for each reader by itself; the rest is made again once."""

    kept: frozenset[Entry]
    each: frozenset[Entry] = frozenset()


@dataclass(frozen=True)
class _Found:
    """A choice with its schedule, live bytes and seconds."""

    choice: _Choice
    schedule: Schedule
    live: np.ndarray
    seconds: float

    def excess(self, target: float) -> float:
        """Bytes above a target, summed over steps: it falls on the way to a target that no single value reaches."""
        return float(np.maximum(self.live - target, 0).sum())


class _Descent:
    """Gives values up for one target after the other."""

    def __init__(self, problem: Problem, values: Sequence[Entry], evaluations: int) -> None:
        self.problem = problem
        self.values = values
        self.left = evaluations
        self.known: dict[_Choice, _Found] = {}

    def run(self, chain: Iterable[Schedule]) -> list[Schedule]:
        """All schedules that were met."""
        saved = frozenset(self.problem.saved)
        first = now = self._evaluate(_Choice(frozenset(self.values) & saved, frozenset(self.values) - saved))
        most = float(now.live.max(initial=0))
        least = self._evaluate(_Choice(frozenset(), frozenset(self.values))).live.max(initial=0)
        least = min([least, *(self.problem.quick(schedule).peak_bytes for schedule in chain)])
        for k in range(1, TARGETS + 1):
            target = most - (most - least) * k / TARGETS
            reached = self._polish(self._descend(now, target), target)
            if reached.excess(target) > 0:
                again = self._polish(self._descend(first, target), target)
                reached = min(reached, again, key=lambda found: found.excess(target))
            now = reached
            if self.left <= 0:
                break
        return [found.schedule for found in self.known.values()]

    def _descend(self, now: _Found, target: float) -> _Found:
        """Change one value at a time until the peak is at the target or nothing helps."""
        while self.left > 0 and now.excess(target) > 0:
            better = self._nearer(now, self._neighbours(now), target) or self._nearer(now, self._exchanges(now), target)
            if not better:
                break
            now = min(better, key=lambda found: (max(found.seconds - now.seconds, 0.0) + 1e-12)
                      / (now.excess(target) - found.excess(target)))
        return now

    def _nearer(self, now: _Found, choices: Iterable[_Choice], target: float) -> list[_Found]:
        moves = [self._evaluate(choice) for choice in choices]
        return [found for found in moves if found.excess(target) < now.excess(target)]

    def _exchanges(self, now: _Found) -> Iterator[_Choice]:
        """One value given up for another that is kept again."""
        kept, each = now.choice.kept, now.choice.each
        for e in sorted(kept):
            for other in self.values:
                if other not in kept and self.left > 0:
                    rest = kept - {e} | {other}
                    yield _Choice(rest, each - {other})
                    yield _Choice(rest, each - {other} | {e})

    def _polish(self, now: _Found, target: float) -> _Found:
        """Change one value at a time as long as that saves time within the target."""
        if now.excess(target) > 0:
            return now
        while self.left > 0:
            moves = [self._evaluate(choice) for choice in self._neighbours(now)]
            better = [found for found in moves if found.excess(target) == 0 and found.seconds < now.seconds]
            if not better:
                break
            now = min(better, key=lambda found: found.seconds)
        return now

    def _neighbours(self, now: _Found) -> Iterator[_Choice]:
        kept, each = now.choice.kept, now.choice.each
        for e in self.values:
            if self.left <= 0:
                return
            if e in kept:
                yield _Choice(kept - {e}, each)
                yield _Choice(kept - {e}, each | {e})
            else:
                yield _Choice(kept | {e}, each - {e})
                yield _Choice(kept, each - {e} if e in each else each | {e})

    def _evaluate(self, choice: _Choice) -> _Found:
        found = self.known.get(choice)
        if found is None:
            self.left -= 1
            schedule = _Mixed(self.problem, choice.kept, choice.each).schedule()
            found = self.known[choice] = _Found(choice, schedule, self.problem.live(schedule),
                                                self.problem.quick(schedule).seconds)
        return found


class _Mixed(Recomputation):
    """Values of `each` that were made only to make others are dropped again at once."""

    def __init__(self, problem: Problem, kept: Collection[Entry], each: Collection[Entry]) -> None:
        super().__init__(problem.facts, problem.droppable.difference(kept))
        self.each = each

    def _provide(self, wanted: Iterable[Entry]) -> None:
        wanted = set(wanted)
        again = self._make_again(sorted(wanted))
        if len(self.steps) > MOST_RUNS * len(self.order):
            return
        for entry in again:
            if entry in self.each and entry not in wanted:
                self._drop(entry)
