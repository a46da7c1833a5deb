"""The chain of `rotor` in little memory: its recurrence in fine slots, and over stages within stages.

Over all bytes of a deep chain a slot is larger than a checkpoint, and a stage is many units of the network, so that
what the recurrence takes at least is a matter of rounding. Here the slots hold a few times what the largest unit takes,
and each stage is a chain of its units, solved by the same recurrence. So a deeper network does not need less, and one
that is twice as deep hardly more.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..schedule import Schedule
from .problem import Problem
from .rotor import LONGEST, BestTimes, Chain, Stage, chain

UNITS = 8
"""Times what the largest unit takes that all slots hold."""
MOST_FORWARD, LEAST_FORWARD = 10, 2
"""Times through the forward part that a schedule may take, and on the largest graphs."""


def schedules(problem: Problem, count: int) -> Iterator[Schedule]:
    """The best persistent schedules of the chain of units in little memory, for so many sizes; the first takes the
    least that the number of times through forward allows."""
    units = chain(problem, LONGEST ** 2) if count else []
    if len(units) < 2:
        return
    best, most_forward = best_times(units), max(MOST_FORWARD * problem.part, LEAST_FORWARD)
    for commands in dict.fromkeys(tuple(best.commands(slots)) for slots in best.sizes(count, most_forward)):
        yield Chain(problem, units, commands).schedule()


def best_times(units: Sequence[Stage]) -> BestTimes:
    """The recurrence over stages of about equal bytes, each a chain of its units."""
    most_bytes = UNITS * max(unit.kept_bytes + unit.work_bytes for unit in units)
    known: dict[tuple, BestTimes | None] = {}
    stages, within = [], []
    for own in _in_stages(units):
        alike = tuple((u.seconds, u.kept_bytes, u.output_bytes, u.work_bytes) for u in own)
        if alike not in known:
            known[alike] = BestTimes(own, most_bytes) if len(own) > 1 else None
        stages.append(_joined(own))
        within.append(known[alike])
    return BestTimes(stages, most_bytes, within)


def _in_stages(units: Sequence[Stage]) -> list[list[Stage]]:
    """The units in at most LONGEST stages, of about equal kept bytes; each by itself where they are no more."""
    if len(units) <= LONGEST:
        return [[unit] for unit in units]
    share, passed, numbers = sum(unit.kept_bytes for unit in units) / LONGEST, 0, []
    for unit in units:
        numbers.append(min(int((passed + unit.kept_bytes / 2) / max(share, 1)), LONGEST - 1))
        passed += unit.kept_bytes
    return [[unit for _, unit in found] for _, found in groupby(zip(numbers, units, strict=True), lambda pair: pair[0])]


def _joined(units: Sequence[Stage]) -> Stage:
    """The units as one stage."""
    return Stage(units[0].first, units[-1].last, units[-1].output, sum(unit.seconds for unit in units),
                 sum(unit.kept_bytes for unit in units), units[-1].output_bytes,
                 max(unit.work_bytes for unit in units))
