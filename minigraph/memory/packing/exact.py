"""An exact search: into how small an arena does a problem fit? A depth-first search over canonical placements.

In a canonical placement every buffer lies on another one, or at the bottom. It is built from the bottom up: the lowest
section of time that is not full is filled at its floor by one of the buffers that can lie there, or left open, where it
can afford to. What is known of buffers that do not lie yet is the least offset that each can have; a section's floor is
the least of those of its buffers. What keeps the search small:

- of the lowest sections one with the fewest ways to go on or the least room to spare is taken, so that dead ends show
  early; in some attempts only of those in which the first candidate lives;
- a section whose buffers no longer fit above their least offsets ends a branch, and where only one of them can be the
  undermost that raises the least offsets of others (:meth:`.Instance.settle`);
- an open section waits for the first offset at which another buffer could carry one of its own;
- where no buffer crosses the border of two sections the sides are solved one after the other, and a failure on one side
  goes back to what both sides have in common;
- a failed state is remembered: the same buffers with the same or greater least offsets fail too;
- an attempt that has turned back too often is given more room and goes on where most buffers lay. It begins at the
  lower bound, whatever capacity is asked for, and ends when more room would be of no use; on training steps an attempt
  hardly ever turns back;
- then a search begins anew by other rules: each of the best rules has a short attempt first, and where there is time
  for long ones all begin again with turns in Luby's sequence (Luby, Sinclair and Zuckerman 1993).

Canonical placement, section floors, decomposition and orders by width, area and total are those of Moffitt's MiniMalloc
(ASPLOS 2023). Limits count turns and nodes, and never time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from .instance import PLACED, Instance
from .placement import Placer
from .problem import Int64Array

#: Turns that an attempt has at one capacity, and by which part of the bound it is raised then. Measured on Inception v3
#: in slices, 2,560 buffers: of 5 to 40 turns and 0.0005 to 0.002 none is better everywhere; 12 attempts reach 1.024 to
#: 1.041, of which those that begin anew at each capacity reach none.
TURNS, RAISE = 20, 0.001
#: Buffers of all short attempts together, and their least and largest number.
SHORT_BUFFERS, FEWEST, MOST = 30_000, 3, 24
#: Turns of the shortest attempt in Luby's sequence; most hard problems that are solved at all are solved within them.
LONG_TURNS = 1_000
#: States that are remembered for one set of buffers.
REMEMBERED = 20
#: Buffers that the search's arrays are made for, of which one has a byte for each pair.
MOST_BUFFERS = 8_000

SectionRule = Callable[[Int64Array, Int64Array], Int64Array]
"""From the number of candidates and the slack of each section to a score, of which the lowest is taken."""

SECTION_RULES: dict[str, SectionRule] = {
    "slack": lambda ways, slack: slack * 100 + ways,
    "ways": lambda ways, slack: (ways + (slack > 0)) * 2000 + slack,
    "last": lambda ways, slack: -np.arange(len(ways)),
    "first": lambda ways, slack: np.arange(len(ways)),
}


#: Candidate orders by letters (Width in sections, Area, Total or largest load on the way, siZe; largest first), each
#: with a way to choose a section and whether it is one of the first candidate's. Those that solved most come first.
ATTEMPTS = (
    ("WAT", "ways", False), ("TWA", "slack", True), ("ZW", "slack", False), ("TAW", "slack", True),
    ("WT", "ways", False), ("TZ", "slack", False), ("TAW", "ways", False), ("WT", "slack", True),
    ("TZ", "ways", False), ("WAT", "slack", False), ("ZW", "slack", True), ("WAT", "first", False),
)


@dataclass(frozen=True)
class Rules:
    """How to search: which section first, and a rank for each buffer, the lowest to be tried first.

    With ``is_led`` only the sections are looked at in which the lowest in rank of all candidates lives.
    """

    section: SectionRule
    rank: Int64Array
    is_led: bool


def is_searchable(placer: Placer) -> bool:
    """Whether the search can be asked: all buffers free and of one alignment, and not too many of them."""
    return not placer.fixed and set(placer.alignments) == {1} and len(placer) <= MOST_BUFFERS


class Attempts:
    """Placements that are looked for by one set of rules after another.

    What an attempt comes to depends on the problem, on its number and on its turns alone: ``most`` ends one that can
    come to nothing of use, and changes no other. So of equal attempts whoever asks for a capacity is given a placement
    if and only if the best of all fits into it.

    Args:
        placer: of a problem that :func:`is_searchable`.

    Attributes:
        nodes: states that all attempts have looked at.
        is_final: whether no placement within the last ``most`` is left to be found.
    """

    def __init__(self, placer: Placer) -> None:
        self.nodes = 0
        self.is_final = False
        self._instance = Instance(placer, placer.bound)
        self._start = placer.bound
        self._step = max(1, int(placer.bound * RAISE))
        self._rules = _rules(self._instance)

    def next(self, turns: int, most: int) -> list[int] | None:
        """One more attempt, with so many turns at each capacity: offsets within ``most`` units by the placer's numbers,
        or None."""
        instance, rules = self._instance, next(self._rules)
        self.is_final = self._start > most
        if self.is_final:
            return None
        instance.capacity = self._start
        search = Search(instance, rules, turns, self._step, most)
        found = search.run()
        self.nodes += search.nodes
        if search.is_proved:
            self._start += self._step
        if found is None:
            return None
        end = found + instance.size[:-1]
        given_up = instance.capacity - self._step if instance.capacity > search.start else -1
        if end.max() <= given_up:
            # Whoever asks for a capacity that was given up is not given this one, so it may not count as less.
            found[end.argmax()] += given_up + 1 - end.max()
            end = found + instance.size[:-1]
        return _by_number(instance, found) if end.max() <= most else None


def _by_number(instance: Instance, found: Int64Array) -> list[int]:
    offsets = np.empty_like(found)
    offsets[instance.number] = found
    result: list[int] = offsets.tolist()
    return result


def _luby(k: int) -> int:
    """The k-th number of the sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., from k = 1."""
    while True:
        bits = k.bit_length()
        if k == (1 << bits) - 1:
            return 1 << (bits - 1)
        k -= (1 << (bits - 1)) - 1


def short_attempts(buffers: int) -> list[int]:
    """Turns of each attempt that a problem of so many buffers is worth in any case."""
    return [TURNS] * min(max(SHORT_BUFFERS // max(buffers, 1), FEWEST), MOST)


def long_attempts(nodes: int, attempts: Attempts) -> Iterator[int]:
    """Turns of each further attempt in Luby's sequence, until they have looked at so many nodes."""
    stop_at = attempts.nodes + nodes
    for attempt in count(1):
        if attempts.nodes >= stop_at:
            return
        yield LONG_TURNS * _luby(attempt)


def _rules(instance: Instance) -> Iterator[Rules]:
    """The attempts that did best, and then random blends without end."""
    width = instance.dies - instance.born
    size, total = instance.size[:-1], instance.peak_load()
    columns = {"W": width, "Z": size, "T": total, "A": width * size}
    for order, section, is_led in ATTEMPTS:
        keys = np.lexsort([-columns[letter] for letter in reversed(order)])
        yield Rules(SECTION_RULES[section], np.argsort(keys), is_led)
    logs = [np.log(width), np.log(size), 3 * np.log(total), 5 * instance.born / max(instance.sections, 1)]
    draw = random.Random(0)
    while True:
        weights = [draw.expovariate(1) for _ in logs]
        weights[-1] *= draw.choice((1, -1))
        noise = draw.choice((0.0, 0.1, 0.5)) * np.array([draw.gauss(0, 1) for _ in range(instance.count)])
        score = sum(w * column for w, column in zip(weights, logs, strict=True)) / sum(map(abs, weights)) + noise
        rank = np.argsort(np.argsort(-score, kind="stable"))
        yield Rules(draw.choice(list(SECTION_RULES.values())), rank, draw.choice((True, False)))


class _State:
    """A partial placement. ``low`` has the least offset of each buffer, PLACED when it lies, and PLACED for nobody."""

    __slots__ = ("low", "floor", "rest", "spans", "offset")

    def __init__(self, low: Int64Array, floor: Int64Array, rest: Int64Array, spans: Int64Array,
                 offset: Int64Array) -> None:
        self.low, self.floor, self.rest, self.spans, self.offset = low, floor, rest, spans, offset

    def copy(self) -> _State:
        return _State(self.low.copy(), self.floor.copy(), self.rest.copy(), self.spans.copy(), self.offset.copy())


class _Agenda:
    """Ranges of sections that are still to be filled, the next one first, each with the branch it came from."""

    __slots__ = ("first", "last", "branch", "rest")

    def __init__(self, first: int, last: int, branch: _Branch | None, rest: _Agenda | None) -> None:
        self.first, self.last, self.branch, self.rest = first, last, branch, rest


class _Branch:
    """A state with the ways to go on that are not tried yet: buffers to place at ``level``, or OPEN."""

    __slots__ = ("state", "task", "level", "section", "ways", "key", "low")

    def __init__(self, state: _State, task: _Agenda, level: int, section: int, ways: list[int],
                 key: tuple[int, bytes], low: Int64Array) -> None:
        self.state, self.task, self.level, self.section = state, task, level, section
        self.ways, self.key, self.low = ways, key, low


_OPEN = -1
_Step = tuple[_State, "_Agenda | None"]
"""A state, and what is to be filled then."""


class Search:
    """One attempt by one set of rules, from the instance's capacity on.

    Args:
        instance: what is placed; its capacity is raised.
        rules: how to choose.
        turns: decisions that may fail at one capacity; then it is raised.
        step: units by which it is raised.
        most: units of the largest arena that is of use.

    Attributes:
        start: the capacity that it begins with.
        nodes: states that were looked at.
        is_proved: whether there is no placement within that capacity.
    """

    def __init__(self, instance: Instance, rules: Rules, turns: int, step: int, most: int) -> None:
        self.instance = instance
        self.rules = rules
        self.turns = turns
        self.step = step
        self.most = most
        self.nodes = 0
        self.is_proved = False
        self.start = instance.capacity
        self._turned = 0
        self._failed: dict[tuple[int, bytes], list[Int64Array]] = {}
        self._furthest: tuple[int, _Step] | None = None

    def run(self) -> Int64Array | None:
        """Offsets of a placement, or None."""
        step = self._begin()
        self.is_proved = step is None
        while step is not None:
            state, agenda = step
            while agenda is not None and state.floor[agenda.first:agenda.last].min() >= PLACED:
                agenda = agenda.rest
            if agenda is None:
                return state.offset
            self.nodes += 1
            lie = int((state.low >= PLACED).sum())
            if self._furthest is None or lie > self._furthest[0]:
                self._furthest = lie, (state, agenda)
            step = self._forward(state, agenda) or self._with_more_room()
        return None

    def _forward(self, state: _State, agenda: _Agenda) -> _Step | None:
        """The first decision that does not fail, of this state or of those before it, the latest first."""
        branch = self._branch(state, agenda)
        if branch is None:
            self._turned += 1
            branch = agenda.branch
        while branch is not None and self._turned < self.turns:
            if not branch.ways:
                self._remember(branch)
                branch = branch.task.branch
                continue
            step = self._go_on(branch, branch.ways.pop())
            if step is not None:
                return step
            self._turned += 1
        self.is_proved = branch is None and self.instance.capacity == self.start
        return None

    def _with_more_room(self) -> _Step | None:
        """The state in which most buffers lie, under a larger capacity; None where that is of no use any more."""
        if self.is_proved or self.instance.capacity >= self.most or self._furthest is None:
            return None
        self.instance.capacity += self.step
        self._turned = 0
        self._failed.clear()
        return self._furthest[1]

    def _begin(self) -> _Step | None:
        instance = self.instance
        low = np.zeros(instance.count + 1, np.int64)
        low[-1] = PLACED
        spans = instance.spans()
        state = _State(low, np.zeros(instance.sections, np.int64), instance.load, spans,
                       np.full(instance.count, -1))
        if not instance.settle(low, state.floor, 0, instance.sections):
            return None
        cuts = [0, *(np.flatnonzero(spans[1:instance.sections] == 0) + 1).tolist(), instance.sections]
        agenda = None
        for first, last in zip(cuts, cuts[1:], strict=False):
            agenda = _Agenda(first, last, None, agenda)
        return state, agenda

    def _branch(self, state: _State, task: _Agenda) -> _Branch | None:
        """The ways to go on in the next range; None when a state like this one has failed before."""
        instance, first, last = self.instance, task.first, task.last
        floor = state.floor[first:last]
        level = int(floor.min())
        begin, end = instance.born.searchsorted((first, last))
        low = state.low[begin:end]
        key = (first, (low < PLACED).tobytes())
        if any((failed <= low).all() for failed in self._failed.get(key, ())):
            return None
        at_level = np.flatnonzero(low == level) + begin
        born, dies = instance.born[at_level], instance.dies[at_level]
        change = np.bincount(born - first, minlength=last - first + 1)
        ways = np.cumsum(change - np.bincount(dies - first, minlength=last - first + 1))[:-1]
        slack = instance.capacity - floor - state.rest[first:last]
        score = np.where(floor > level, PLACED, self.rules.section(ways, slack))
        if self.rules.is_led:
            leader = at_level[self.rules.rank[at_level].argmin()]
            score[:instance.born[leader] - first] = score[instance.dies[leader] - first:] = PLACED
        section = int(score.argmin()) + first
        here = at_level[(born <= section) & (dies > section)]
        order: list[int] = here[np.argsort(-self.rules.rank[here])].tolist()
        if slack[section - first] > 0:
            order.insert(0, _OPEN)
        return _Branch(state, task, level, section, order, key, low)

    def _go_on(self, branch: _Branch, way: int) -> _Step | None:
        """The state after one more decision and what is to be filled then; None when it cannot be."""
        return self._leave_open(branch) if way == _OPEN else self._place(branch, way)

    def _leave_open(self, branch: _Branch) -> _Step | None:
        """Nobody lies at the level in the section: each of its buffers waits for one that may carry it."""
        instance, old, task = self.instance, branch.state, branch.task
        state = _State(old.low.copy(), old.floor.copy(), old.rest, old.spans, old.offset)
        waiting = np.flatnonzero((old.low[:-1] == branch.level) & (instance.born <= branch.section)
                                 & (instance.dies > branch.section))
        end = old.low + instance.size
        for i in waiting.tolist():
            state.low[i] = min(int(end[instance.near[i]].min(initial=PLACED)), instance.capacity + 1)
        first, last = int(instance.born[waiting].min()), int(instance.dies[waiting].max())
        if not instance.settle(state.low, state.floor, first, last):
            return None
        return state, _Agenda(task.first, task.last, branch, task.rest)

    def _place(self, branch: _Branch, i: int) -> _Step | None:
        instance, task, state = self.instance, branch.task, branch.state.copy()
        born, dies, size, near = int(instance.born[i]), int(instance.dies[i]), int(instance.size[i]), instance.near[i]
        state.offset[i] = branch.level
        low = state.low[near]
        if low.min(initial=PLACED) >= PLACED:
            branch.ways.clear()  # nobody is left to lie on it, so nothing else could help what fails
        state.low[i] = PLACED
        lifted = near[low < branch.level + size]
        state.low[lifted] = branch.level + size
        state.rest[born:dies] -= size
        reach = (int(instance.born[lifted].min(initial=born)), int(instance.dies[lifted].max(initial=dies)))
        if not instance.settle(state.low, state.floor, *reach):
            return None
        state.spans[born + 1:dies] -= 1
        inside = (np.flatnonzero(state.spans[born + 1:dies] == 0) + born + 1).tolist()
        cuts = [task.first, *inside, task.last]
        agenda = task.rest
        for first, last in zip(cuts, cuts[1:], strict=False):
            agenda = _Agenda(first, last, branch, agenda)
        return state, agenda

    def _remember(self, branch: _Branch) -> None:
        failed = self._failed.setdefault(branch.key, [])
        if len(failed) < REMEMBERED:
            failed.append(branch.low.copy())
