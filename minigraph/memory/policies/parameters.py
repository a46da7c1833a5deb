"""Homes outside the device: parameters, states and visible gradients that come to the device for those who use them.

A *stay* is a stretch of a schedule in which a variable is on the device: it comes in just before its first reader, and
leaves after its last one, in a copy where it was changed. Copies run on their two streams beside the computation, each
as late as it can still be in time. Those variables are sent away first whose copies cost least for the bytes that
they free; an optimizer's states come in for the update alone, so they mostly go before the parameters.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from ...base import Entry
from ...ops.op import only_moves
from ..schedule import DROP, IN, OUT, RUN, Schedule
from .problem import Candidate, Problem, front, judge
from .swapping import border_seconds

SHARES = (1.0, 0.9, 0.5, 0.75, 0.99, 0.25)
"""Shares of the bytes of all variables that are tried away from the device, those first that tell most."""

@dataclass(frozen=True)
class Form:
    """How stays are made: readers at most `hold` steps apart share one, a copy in begins at most `lead` steps before
    it, and with `eager` the computation waits for a copy home rather than keep its source."""

    hold: int
    lead: int | None
    eager: bool


FORMS = (Form(2, 2, True), Form(2, None, False), Form(64, None, False))
"""Those that are tried, the last one first."""
FEWEST_CHOICES, CHOICES_WORK = 2, 50_000
"""Pairs of a share and a form that are tried on each schedule of the computation: at least so many, and as long as they
are no more than this over the steps of the plain order; some 4 microseconds each and for each step."""
MOST_CHOICES = len(SHARES) * len(FORMS)
BASES, BASES_WORK = 6, 200_000
"""Schedules of the computation that they are tried on: so many, or more while no more steps than this are looked at."""


@dataclass
class Stay:
    """A variable on the device from before the step `first` until after the step `last`.

    `changed` is the last step that changes it, or -1; `arrives` is false where its old value is not needed.
    """

    variable: Entry
    first: int
    last: int
    changed: int
    arrives: bool


class Homes:
    """What a graph's nodes do to its variables, and schedules in which some of these are away."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.touches = _touches(problem)
        self.is_touching = np.zeros(len(problem.graph), bool)
        self.is_touching[list(self.touches)] = True

    def schedule(self, base: Schedule, away: Collection[Entry], form: Form) -> Schedule:
        """The schedule with the variables at home outside the device, brought in for each stay."""
        variables = frozenset(away)
        stays = self.stays(base, variables, form.hold)
        starts = border_seconds(self.problem, base)
        before: list[tuple[int, int, int, str, Entry]] = []
        releases = self._releases(base, stays, starts, form.eager)
        for number, (stay, release) in enumerate(zip(stays, releases, strict=True)):
            before.append((release, 1, number, DROP, stay.variable))
            if stay.changed >= 0 and stay.arrives:
                before.append((stay.changed + 1, 0, number, OUT, stay.variable))
        before += self._arrivals(base, stays, releases, starts, form.lead)
        return Schedule(_merged(base.steps, sorted(before)), variables)

    def stays(self, base: Schedule, variables: Collection[Entry], hold: int) -> list[Stay]:
        """The stays of variables, in the order of their first steps."""
        current: dict[Entry, Stay] = {}
        result: list[Stay] = []
        steps, nodes = base.at(RUN), base.operands(RUN)
        touching = self.is_touching[nodes]
        for k, node in zip(steps[touching].tolist(), nodes[touching].tolist(), strict=True):
            for variable, read, changed in self.touches[node]:
                if variable not in variables:
                    continue
                stay = current.get(variable)
                if stay is None or k - stay.last > hold or (changed and not read) or not stay.arrives:
                    stay = current[variable] = Stay(variable, k, k, -1, read)
                    result.append(stay)
                stay.last = k
                if changed:
                    stay.changed = k
        return result

    def _releases(self, base: Schedule, stays: Sequence[Stay], starts: Sequence[float], eager: bool) -> list[int]:
        """The step before which each stay has ended: where the modelled copy home has left, if there is one."""
        problem, end = self.problem, len(base.steps)
        releases = [stay.last + 1 for stay in stays]
        if eager:
            return releases
        leaving = [(stay.changed, number) for number, stay in enumerate(stays) if stay.changed >= 0]
        leaving += [(k, -1) for k in base.at(OUT).tolist()]
        clock = 0.0
        for k, number in sorted(leaving):
            entry = stays[number].variable if number >= 0 else base.steps[k][1]
            clock = max(clock, starts[k + 1]) + problem.copy_out_seconds(entry)
            if number >= 0:
                releases[number] = min(max(bisect_left(starts, clock, 0, end), releases[number]), end)
        return releases

    def _arrivals(self, base: Schedule, stays: Sequence[Stay], releases: Sequence[int], starts: Sequence[float],
                  lead: int | None) -> Iterator[tuple[int, int, int, str, Entry]]:
        """Where each copy in begins: as late as those behind it allow, and never before the stay before has ended."""
        problem = self.problem
        earliest, ended = [0] * len(stays), dict[Entry, int]()
        for number, stay in enumerate(stays):
            earliest[number] = ended.get(stay.variable, 0)
            ended[stay.variable] = releases[number]
        arriving = [(stay.first, number) for number, stay in enumerate(stays) if stay.arrives]
        arriving += [(k, -1) for k in base.at(IN).tolist()]
        next_in = float("inf")
        for k, number in sorted(arriving, reverse=True):
            entry = stays[number].variable if number >= 0 else base.steps[k][1]
            next_in = min(starts[k], next_in) - problem.copy_in_seconds(entry)
            if number >= 0:
                first = earliest[number] if lead is None else max(earliest[number], k - lead)
                yield min(max(bisect_right(starts, next_in) - 1, first), k), 2, number, IN, entry


def place_homes(problem: Problem, candidates: list[Candidate], free: bool) -> list[Candidate]:
    """Candidates in which the variables that must be away are, and with `free` also some in which others are too."""
    if not problem.settled and not (free and problem.host_budget_bytes):  # no variable is away, and none may go
        return candidates
    homes, plain = Homes(problem), candidates[0].schedule
    ranked = _ranked(max(CHOICES_WORK // max(len(plain), 1), FEWEST_CHOICES))
    choices = _choices(problem, homes, plain, ranked, free)
    bases = _bases(problem, _with_room(problem, candidates) if len(ranked) < MOST_CHOICES else candidates,
                   max(BASES_WORK // max(len(plain) * MOST_CHOICES, 1), BASES)) if free else candidates
    moved = (homes.schedule(base.schedule, away, form) for base in bases for form, away in choices)
    return judge(problem, chain((c.schedule for c in candidates if not problem.settled), moved))


def _ranked(count: int) -> list[tuple[Form, float]]:
    """At most so many pairs of a form and a share, those first that stand at the beginning of both lists. The first two
    have long stays: short ones, which take little memory, make a plan of a deep network several times as long."""
    places = sorted(product(range(len(SHARES)), range(len(FORMS))), key=lambda place: place[0] + 2 * place[1])
    return [(FORMS[-1 - form], SHARES[share]) for share, form in places[:count]]


def _choices(problem: Problem, homes: Homes, plain: Schedule, ranked: Sequence[tuple[Form, float]],
             free: bool) -> list[tuple[Form, frozenset[Entry]]]:
    """The forms with the variables that are away: those that must be, where there are some, and if they are `free` to
    go each share of all."""
    pairs = [(form, problem.settled) for form in dict.fromkeys(form for form, _ in ranked)]
    if free:
        orders = {hold: _by_traffic(problem, homes, plain, hold) for hold in {form.hold for form, _ in ranked}}
        pairs += [(form, _beginning(problem, orders[form.hold], share)) for form, share in ranked]
    return [(form, away) for form, away in dict.fromkeys(pairs) if away]


def _with_room(problem: Problem, candidates: list[Candidate]) -> list[Candidate]:
    """The candidates that the machine has room for once all variables are away; all where there are none: where every
    schedule takes long, none is tried in vain."""
    movable = sum(problem.size_bytes[entry] for entry in _movable(problem))
    return [c for c in candidates if c.peak_bytes - movable <= problem.machine.memory_bytes] or candidates


def _bases(problem: Problem, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Schedules to be tried with variables away: of those that leave host memory for all of them, and of those that
    swap nothing, which a larger host budget must not pass over."""
    chosen: dict[int, Candidate] = {}
    for limit, most in ((max(problem.host_bytes_beside_homes, 0), count), (0, BASES)):
        chosen |= {id(c): c for c in spread(front(c for c in candidates if c.host_bytes <= limit), most)}
    return list(chosen.values()) or spread(front(candidates), count)


def spread(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """At most so many candidates of a front: for geometric steps from the peak of the first to that of the last those
    next below, so that many of nearly one peak do not take the place of others; what is left of the count by number."""
    if len(candidates) <= count:
        return list(candidates)
    most, least = (max(candidates[k].peak_bytes, 1) for k in (0, -1))
    peaks = [-c.peak_bytes for c in candidates]
    chosen = {min(bisect_left(peaks, -most * (least / most) ** (k / (count - 1))), len(candidates) - 1)
              for k in range(count)}
    others, missing = [at for at in range(len(candidates)) if at not in chosen], count - len(chosen)
    chosen.update(others[k * len(others) // missing] for k in range(missing))
    return [candidates[k] for k in sorted(chosen)]


def _beginning(problem: Problem, order: Sequence[Entry], share: float) -> frozenset[Entry]:
    """The beginning of the order that holds a share of all bytes, together with what must be away."""
    passed = np.cumsum([problem.size_bytes[entry] for entry in order])
    count = int(np.searchsorted(passed, share * passed[-1])) + 1 if len(order) else 0
    return problem.settled.union(order[:count])


def _movable(problem: Problem) -> set[Entry]:
    """Variables that may be sent away, and are not yet."""
    return {entry for entry in problem.variables if problem.size_bytes[entry] and entry not in problem.settled}


def _by_traffic(problem: Problem, homes: Homes, schedule: Schedule, hold: int) -> list[Entry]:
    """Variables that may be sent away, those first whose copies take least time for the bytes they free where readers
    at most `hold` steps apart share a stay: one that is read all along a recurrence costs much only by short stays."""
    free = _movable(problem)
    seconds = dict.fromkeys(sorted(free), 0.0)
    for stay in homes.stays(schedule, free, hold):
        seconds[stay.variable] += problem.copy_in_seconds(stay.variable) * stay.arrives
        seconds[stay.variable] += problem.copy_out_seconds(stay.variable) * (stay.changed >= 0)
    return sorted(free, key=lambda entry: (seconds[entry] / problem.size_bytes[entry], entry))


def _touches(problem: Problem) -> dict[int, list[tuple[Entry, bool, bool]]]:
    """For each node that reads or changes variables: (variable, whether its value is read, whether it is changed)."""
    graph = problem.graph
    root = {entry: entry for entry in problem.variables}
    result: dict[int, list[tuple[Entry, bool, bool]]] = {}
    for i in range(len(graph)):
        op, params = graph.op[i], graph.params[i]
        if op is None:
            continue
        inputs = graph.inputs[i]
        if op.view(params):
            if inputs[0] in root:
                root[graph.first[i]] = root[inputs[0]]
            continue
        if not any(entry in root for entry in inputs):
            continue
        unread, changed = op.unread(params), op.mutates(params)
        for source, out in changed:
            if inputs[source] in root:
                root[graph.first[i] + out] = root[inputs[source]]
        positions = {source for source, _ in changed}
        found: dict[Entry, tuple[bool, bool]] = {}
        for k, entry in enumerate(inputs):
            if entry in root:
                read, changes = found.get(root[entry], (False, False))
                moved = k in positions and only_moves(op, params)
                needed = k not in unread or (k in positions and not moved)
                found[root[entry]] = (read or needed, changes or k in positions)
        touched = [(variable, read, changes) for variable, (read, changes) in found.items() if read or changes]
        if touched:
            result[i] = touched
    return result


def _merged(steps: Sequence[tuple[str, int]],
            before: Sequence[tuple[int, int, int, str, Entry]]) -> tuple[tuple[str, int], ...]:
    """The steps with others before them: of those before the same step copies out come first, then drops."""
    result: list[tuple[str, int]] = []
    done = 0
    for k, *_, kind, entry in before:
        result += steps[done:k]
        done = k
        result.append((kind, entry))
    result += steps[done:]
    return tuple(result)
