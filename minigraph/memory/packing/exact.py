"""An exact search: does a problem fit into a capacity? A depth-first search over canonical placements.

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
- a search that has spent its nodes begins anew by other rules: each of the best rules has a short attempt first, since
  on training steps an attempt that succeeds hardly ever turns back, and then all begin again with limits in Luby's
  sequence (Luby, Sinclair and Zuckerman 1993).

Canonical placement, section floors, decomposition and orders by width, area and total are those of Moffitt's MiniMalloc
(ASPLOS 2023). Limits count nodes and never time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from .instance import PLACED, Instance
from .placement import Placer
from .problem import Int64Array

#: Nodes of the shortest attempt in Luby's sequence, beside the one that each buffer takes anyway; most problems that
#: are solved at all are solved within them.
SHORTEST_ATTEMPT = 1_000
#: Nodes of a short attempt, likewise, or the buffers divided by the second where that is more. Measured on a network in
#: slices with 1018 buffers, 0.5 % above the bound: 9 of 30 rules find a placement within 70 nodes, and with 480 nodes
#: no other does.
PROBE, PROBE_PART = 100, 10
#: States that are remembered for one set of buffers.
REMEMBERED = 20
#: Buffers that the search's arrays are made for, of which one has a byte for each pair.
MOST_BUFFERS = 3_000

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


def fit_within(placer: Placer, capacity: int, nodes: int) -> tuple[list[int] | None, bool]:
    """Look for a placement within ``capacity`` units by so many nodes, beside one for each buffer in every attempt.

    Returns:
        Offsets in units by the placer's numbers, or None; and whether the answer is final: a None that is final means
        that there is no such placement.
    """
    instance = Instance(placer, capacity)
    for rules, length in _attempts(instance):
        limit = min(length, nodes)
        search = Search(instance, rules, instance.count + limit)
        found = search.run()
        if found is not None or search.is_proved:
            return _by_number(instance, found), True
        nodes -= limit
        if nodes <= 0:
            break
    return None, False


def _by_number(instance: Instance, found: Int64Array | None) -> list[int] | None:
    if found is None:
        return None
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


def _attempts(instance: Instance) -> Iterator[tuple[Rules, int]]:
    """Rules and nodes of each attempt: the best rules for a short time each, then all of them for longer."""
    short = max(PROBE, instance.count // PROBE_PART)
    for rules in islice(_rules(instance), len(ATTEMPTS)):
        yield rules, short
    for attempt, rules in enumerate(_rules(instance)):
        yield rules, SHORTEST_ATTEMPT * _luby(attempt + 1)


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


class Search:
    """One attempt by one set of rules, within a number of nodes; ``is_proved`` says that it looked everywhere."""

    def __init__(self, instance: Instance, rules: Rules, limit: int) -> None:
        self.instance = instance
        self.rules = rules
        self.limit = limit
        self.nodes = 0
        self.is_proved = False
        self._failed: dict[tuple[int, bytes], list[Int64Array]] = {}

    def run(self) -> Int64Array | None:
        """Offsets of a placement, or None."""
        state, agenda = self._begin()
        if state is None:
            self.is_proved = True
            return None
        branch: _Branch | None
        while True:
            while agenda is not None and state.floor[agenda.first:agenda.last].min() >= PLACED:
                agenda = agenda.rest
            if agenda is None:
                return state.offset
            if self.nodes >= self.limit:
                return None
            self.nodes += 1
            branch = self._branch(state, agenda) or agenda.branch
            step = None
            while branch is not None and step is None:
                if not branch.ways:
                    self._remember(branch)
                    branch = branch.task.branch
                else:
                    step = self._go_on(branch, branch.ways.pop())
            if step is None:
                self.is_proved = True
                return None
            state, agenda = step

    def _begin(self) -> tuple[_State, _Agenda | None] | tuple[None, None]:
        instance = self.instance
        low = np.zeros(instance.count + 1, np.int64)
        low[-1] = PLACED
        spans = instance.spans()
        state = _State(low, np.zeros(instance.sections, np.int64), instance.load, spans,
                       np.full(instance.count, -1))
        if not instance.settle(low, state.floor, 0, instance.sections):
            return None, None
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

    def _go_on(self, branch: _Branch, way: int) -> tuple[_State, _Agenda | None] | None:
        """The state after one more decision and what is to be filled then; None when it cannot be."""
        return self._leave_open(branch) if way == _OPEN else self._place(branch, way)

    def _leave_open(self, branch: _Branch) -> tuple[_State, _Agenda | None] | None:
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

    def _place(self, branch: _Branch, i: int) -> tuple[_State, _Agenda | None] | None:
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
