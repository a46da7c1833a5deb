"""`capuchin`: Peng, Shi, Dai, Jin, Ma, Xiong, Yang and Qian, "Capuchin: Tensor-based GPU Memory Management for Deep
Learning" (ASPLOS 2020).

Nothing is known of layers; everything is weighed by the times of accesses, modelled or measured. A step is first played
in *passive mode*: what was used longest ago leaves when the device is full. The bytes that leave are what must be
saved, and between the first eviction and the last one lies the peak window. Then, for two accesses of a value on both
sides of it, the *free time* is what remains between them when the copies out and back are done. Values are swapped by
falling free time while copies are hidden; for each further one the cheaper is taken of the stall of a swap and the time
of computing it again, which is that of all its dropped ancestors. A simulation of the step then moves copies back that
came late to an earlier moment, and asks for more where the peak is still above the target.

The target is no budget but one of a row of sizes; a plan takes the fastest candidate that fits its budget.
"""
from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

import numpy as np

from ..schedule import Schedule, from_order
from .cache import Cache
from .lineage import Lineages, recomputed
from .links import Link
from .problem import Candidate, Problem, judge
from .swapping import Absence, start_seconds, uses
from .triggers import triggered

TARGETS = 12
"""Sizes of the device that are planned for, in geometric steps from what nobody evicts to the smallest."""
ROUNDS = 3
"""Times that more is asked for because the simulated peak is above the target."""
MARGIN = 0.02
"""The least share of all that must be saved by which each round asks for more."""


def capuchin(problem: Problem) -> list[Candidate]:
    """Plain, and for each target what swaps and recomputes enough."""
    return judge(problem, _schedules(problem))


def _schedules(problem: Problem) -> Iterator[Schedule]:
    yield from_order(problem.order)
    measured = _Measured(problem)
    for target in measured.passive.capacities(TARGETS):
        yield from _Choice(measured, target, swapping=False).schedules()
        if problem.host_budget_bytes:
            swapping = _Choice(measured, target, swapping=True)
            yield from swapping.schedules()
            if swapping.over_bytes > 0:
                yield from _Choice(measured, target, swapping=True, again=True).schedules()


def collective(problem: Problem, targets: int) -> Iterator[Schedule]:
    """For each of some targets what recomputes enough, with nothing swapped; and with host memory the first choice of
    swaps that cost nothing and of the cheaper way for each further value."""
    if targets:
        measured = _Measured(problem)
        for target in measured.passive.capacities(targets):
            yield from _Choice(measured, target, swapping=False).schedules()
            if problem.host_budget_bytes:
                yield next(_Choice(measured, target, swapping=True).schedules())


class _Measured:
    """A step in plain order: who uses what, and when."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.schedule = from_order(problem.order)
        self.starts = start_seconds(problem, self.schedule)
        self.passive = Cache(problem, self.schedule)
        self.uses = self.passive.uses
        self.saved = frozenset(problem.saved)
        self.live = np.array(self.passive.live)
        self.peak = int(self.live.argmax())

    def end(self, step: int) -> float:
        """When a step has ended."""
        return self.starts[step] + self.problem.seconds[self.problem.order[step]]

    def free_seconds(self, absence: Absence) -> float:
        """What is left between two accesses when both copies are done; less than none is a stall."""
        copies = self.problem.copy_out_seconds(absence.entry) + self.problem.copy_in_seconds(absence.entry)
        return self.starts[absence.back] - self.end(absence.last) - copies

    def absences(self, first: int, last: int) -> list[Absence]:
        """For each value the two accesses, around some of the steps from `first` to `last`, with most free time; the
        values with most of it first."""
        found = []
        for entry, steps in self.uses.items():
            pairs = [Absence(entry, a, b) for a, b in pairwise(steps) if b - a > 1 and a < last and b > first]
            if pairs:
                found.append(max(pairs, key=self.free_seconds))
        return sorted(found, key=self.free_seconds, reverse=True)


class _Choice:
    """What is swapped, if anything may be, and what is computed again, so that a step fits a target.

    A swapped value may come back early, as a source of others; `again` releases it once more where room is short.
    """

    def __init__(self, measured: _Measured, target_bytes: int, swapping: bool, again: bool = False) -> None:
        self.measured = measured
        self.problem = measured.problem
        self.target_bytes = target_bytes
        self.swapping = swapping
        self.again = again
        self.over_bytes = 0
        """How far the peak of the last schedule is above the target."""
        above = np.flatnonzero(measured.live > target_bytes)
        self.candidates = measured.absences(int(above[0]), int(above[-1]))

    def schedules(self) -> Iterator[Schedule]:
        """One schedule for each round, until its peak is within the target or nothing is left to choose."""
        evicted = self.measured.passive.play(self.target_bytes)
        required = wanted = sum(self.problem.size_bytes[trip.entry] for trip in evicted)
        for _ in range(ROUNDS):
            found = self._made(wanted)
            yield found
            self.over_bytes = self.problem.quick(found).peak_bytes - self.target_bytes
            if self.over_bytes <= 0 or self.saved_bytes < wanted:
                return
            wanted += max(self.over_bytes, round(MARGIN * required))

    def _made(self, wanted_bytes: int) -> Schedule:
        """The schedule of the values chosen to save so many bytes."""
        self._choose(wanted_bytes)
        live = self.measured.live.copy()
        for absence in self.swaps:
            live[absence.last + 1:absence.back] -= self.problem.size_bytes[absence.entry]
        base = recomputed(self.problem, self.lineages.chosen, live.tolist(), self.target_bytes)
        return triggered(self.problem, base, self._in(base), self.target_bytes)

    def _choose(self, wanted_bytes: int) -> None:
        """Free swaps first; then the cheaper way for each value in turn, or by bytes a second where nothing swaps."""
        self.saved_bytes = 0
        self.swaps: list[Absence] = []
        self.lineages = Lineages(self.problem)
        step_seconds = self.measured.starts[-1]
        self.link_out, self.link_in = Link(step_seconds), Link(step_seconds)
        left = self.candidates
        if self.swapping:
            left = [a for a in left if self.saved_bytes >= wanted_bytes or not self._swap_if_free(a)]
        for absence in left if self.swapping else self._by_bytes_a_second():
            if self.saved_bytes >= wanted_bytes:
                return
            self._save(absence)

    def _by_bytes_a_second(self) -> Iterator[Absence]:
        """Values that can be computed again, those first that save most bytes for the time; these fall as more are
        chosen, so whoever is first is asked again."""
        heap = [(-self._bytes_a_second(a), k) for k, a in enumerate(self.candidates)
                if a.entry in self.measured.saved]
        heapify(heap)
        while heap:
            k = heap[0][1]
            now = -self._bytes_a_second(self.candidates[k])
            if now > heap[0][0]:
                heapreplace(heap, (now, k))
            else:
                heappop(heap)
                yield self.candidates[k]

    def _bytes_a_second(self, absence: Absence) -> float:
        return self.problem.size_bytes[absence.entry] / max(self.lineages.seconds(absence.entry), 1e-12)

    def _swap_if_free(self, absence: Absence) -> bool:
        if self.measured.free_seconds(absence) < 0 or self._stall_seconds(absence) > 0:
            return False
        self._swap(absence)
        return True

    def _save(self, absence: Absence) -> None:
        """Swap or recompute a value, whichever costs less, if either can be done."""
        again = self.lineages.seconds(absence.entry) if absence.entry in self.measured.saved else float("inf")
        stall = self._stall_seconds(absence) if self.swapping else float("inf")
        if stall < again:
            self._swap(absence)
        elif again < float("inf"):
            self.lineages.choose(absence.entry)
            self.saved_bytes += self.problem.size_bytes[absence.entry]

    def _stall_seconds(self, absence: Absence) -> float:
        """How long the step would wait for a value's copies, behind those that were chosen before: at the peak for the
        copy out, whose room is needed then, and at the next access for the copy back."""
        left = self.link_out.end_after(self.measured.end(absence.last), self._out_seconds(absence))
        needed, back = self.problem.copy_in_seconds(absence.entry), self.measured.starts[absence.back]
        peak = self.measured.starts[self.measured.peak] if absence.last < self.measured.peak < absence.back else back
        return max(0.0, left - peak) + max(0.0, needed - self.link_in.free_between(left, back))

    def _swap(self, absence: Absence) -> None:
        self.swaps.append(absence)
        self.saved_bytes += self.problem.size_bytes[absence.entry]
        self.link_out.take_after(self.measured.end(absence.last), self._out_seconds(absence))
        self.link_in.take_before(self.measured.starts[absence.back], self.problem.copy_in_seconds(absence.entry))

    def _out_seconds(self, absence: Absence) -> float:
        return self.problem.copy_out_seconds(absence.entry)

    def _in(self, schedule: Schedule) -> list[Absence]:
        """When swapped values are away in a schedule that also computes others again: in the longest stretch between
        two accesses; and again, as a copy is in host memory then, in later ones with too little room."""
        found, starts = uses(self.problem, schedule), start_seconds(self.problem, schedule)
        full = np.append(0, np.cumsum(self.problem.live(schedule) > self.target_bytes))
        result = []
        for entry in (absence.entry for absence in self.swaps if absence.entry in found):
            pairs = list(pairwise(found[entry]))
            longest = max(pairs, key=lambda pair: starts[pair[1]] - starts[pair[0]])
            later = [(a, b) for a, b in pairs if self.again and a >= longest[1] and full[b] > full[a + 1]]
            result += [Absence(entry, a, b) for a, b in (longest, *later)]
        return result
