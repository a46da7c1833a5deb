"""A schedule: what runs when, and when values are dropped to be computed again. Policies make schedules; rewriting,
simulator and verifier see nothing else of a policy."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Entry
from ..graph.graph import Graph

RUN, DROP, OUT, IN = KINDS = "run", "drop", "out", "in"
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Schedule:
    """`steps` are (RUN, node), (DROP, entry), (OUT, entry) and (IN, entry) in order.

    A node may run several times; each run makes its outputs anew, and a reader sees the latest ones. A dropped entry
    must be made again, or brought in, before anybody reads it. OUT begins to copy an entry to host memory; the DROP
    after it waits for the copy to have left. IN begins to copy it back; its first reader waits. Views and variables do
    not run and are not listed.

    `away` are variables whose home is outside the device. They begin there: IN brings one to the device, OUT begins to
    take its present value home (a node that only moves a value into such a variable takes it home by itself), and
    DROP lets go of it on the device.
    """

    steps: tuple[tuple[str, int], ...]
    away: frozenset[Entry] = frozenset()

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def columns(self) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """The kind of each step, as its position in KINDS, and its node or entry; not to be written to."""
        flat: list[Any] = list(chain.from_iterable(self.steps))
        kinds = np.fromiter(map(_NUMBER.__getitem__, flat[::2]), np.int8, len(self.steps))
        return kinds, np.array(flat[1::2], np.int64)

    def at(self, kind: str) -> NDArray[np.int64]:
        """The positions of the steps of a kind."""
        return np.flatnonzero(self.columns[0] == _NUMBER[kind])

    def operands(self, kind: str) -> NDArray[np.int64]:
        """The nodes or entries of the steps of a kind, in order."""
        kinds, operands = self.columns
        return operands[kinds == _NUMBER[kind]]

    @property
    def order(self) -> tuple[int, ...]:
        """The nodes in the order in which they run, with repetitions."""
        return tuple(self.operands(RUN).tolist())


def from_order(order: Sequence[int]) -> Schedule:
    """A schedule that runs each node once, in the given order."""
    if len(set(order)) != len(order):
        raise ValueError("a node is listed twice in a plain order")
    return Schedule(tuple((RUN, node) for node in order))


class Facts:
    """What all schedules of an ordered graph go by, worked out once: what each node reads, when forward uses each of
    its values last, and which of them stay since nodes make others again from them (`Op.replay`)."""

    def __init__(self, graph: Graph, order: Sequence[int], backward_start: int,
                 reads: Mapping[int, Sequence[Entry]] | None = None) -> None:
        self.graph, self.order, self.backward_start = graph, order, backward_start
        self.reads = {node: read_roots(graph, node) for node in order} if reads is None else reads
        self.made = {node: tuple(graph.entries(node)) for node in order[:backward_start]}
        """The values that each forward node makes, in order."""
        self.last = self._last_uses()
        self.forward = [step for node, entries in zip(order, self.last, strict=False)
                        for step in ((RUN, node), *((DROP, entry) for entry in entries))]
        """The steps of forward when each value is dropped once it was used last there."""
        self.replayed = replayed(graph, [e for made in self.made.values() for e in made])

    def _last_uses(self) -> list[list[Entry]]:
        """For each forward position the values that forward makes and uses for the last time there."""
        last: dict[Entry, int] = {}
        for t, (node, made) in enumerate(self.made.items()):
            last.update((e, t) for e in self.reads[node] if e in last)
            last.update(dict.fromkeys(made, t))
        result: list[list[Entry]] = [[] for _ in range(self.backward_start)]
        for entry, t in last.items():
            result[t].append(entry)
        return result


class Recomputation:
    """Writes a schedule by the standard rule: dropped values are made again as late as possible, once for all their
    backward readers, and what a repeated node reads is repeated too where it was dropped.

    Outputs from which a node makes its first one again (`Op.replay`) stay. `checkpoints` are sets of entries in forward
    order, each with a level, at which a repeated stretch of forward may begin. Values of `recompute` are dropped in
    forward, except for checkpoints of level 0. When backward needs a value, the stretch before it is run from the
    nearest checkpoint there is: first only to set the checkpoints of level 1 in it, then of level 2 between those, and
    at last to give the values. One level is Chen et al. 2016 (sublinear); each further one trades another forward run
    for memory of a smaller order.
    """

    def __init__(self, facts: Facts, recompute: Collection[Entry],
                 checkpoints: Sequence[tuple[int, frozenset[Entry]]] = ()) -> None:
        self.facts = facts
        self.graph, self.order, self.reads = facts.graph, facts.order, facts.reads
        self.depth = max((level for level, _ in checkpoints), default=0)
        self.checkpoints = checkpoints
        kept = {entry for level, entries in checkpoints if level == 0 for entry in entries}
        self.recompute = frozenset(recompute) - kept - facts.replayed
        self.dropped: set[Entry] = set()
        self.steps: list[tuple[str, int]] = []
        self.before = self._checkpoints_before() if self.depth else {}
        self.position = 0
        """The position in `order` that the schedule has come to."""

    def schedule(self) -> Schedule:
        """The schedule."""
        order, start = self.order, self.facts.backward_start
        steps, dropped, reads, leaving = self.steps, self.dropped, self.reads, self._leaving()
        steps += [step for step in self.facts.forward if step[0] == RUN or step[1] in leaving]
        dropped.update(entry for kind, entry in steps if kind == DROP)
        for t in range(start, len(order)):
            self.position, node = t, order[t]
            if not dropped.isdisjoint(reads[node]):
                self._provide(reads[node])
            steps.append((RUN, node))
        return Schedule(tuple(steps))

    def _leaving(self) -> frozenset[Entry]:
        """The values that are dropped when forward has used them last."""
        return self.recompute

    def _checkpoints_before(self) -> dict[int, int]:
        """For each forward node the number of checkpoints that lie wholly before or at it."""
        position = {node: t for t, node in enumerate(self.order[:self.facts.backward_start])}
        ends = [max((position.get(self.graph.node_of[e], 0) for e in entries), default=0)
                for _, entries in self.checkpoints]
        result, passed = {}, 0
        for node, t in position.items():
            while passed < len(ends) and ends[passed] <= t:
                passed += 1
            result[node] = passed
        return result

    def _provide(self, wanted: Iterable[Entry]) -> None:
        missing = [entry for entry in wanted if entry in self.dropped]
        if not missing:
            return
        for level in range(1, self.depth + 1):
            self._set_checkpoints(level, max(self.before[self.graph.node_of[e]] for e in missing))
        self._make_again(missing)

    def _set_checkpoints(self, level: int, upto: int) -> None:
        """Make the checkpoints of a level in the stretch that ends at checkpoint number `upto`, and drop the rest."""
        stretch: list[frozenset[Entry]] = []
        for own_level, entries in reversed(self.checkpoints[:upto]):
            if own_level < level:
                break
            if own_level == level:
                if not any(e in self.dropped for e in entries):
                    break
                stretch.append(entries)
        for entries in reversed(stretch):
            passing = [e for e in self._make_again(entries) if e not in entries and e in self.recompute]
            for entry in passing:
                if not any(entry in later for later in stretch):
                    self._drop(entry)

    def _make_again(self, wanted: Iterable[Entry]) -> list[Entry]:
        """Run the producers of dropped entries, after whatever they read themselves; return the entries made."""
        node_of, outputs, reads, dropped = self.graph.node_of, self.facts.made, self.reads, self.dropped
        made: list[Entry] = []
        stack = [entry for entry in wanted if entry in dropped]
        while stack:
            entry = stack[-1]
            if entry not in dropped:
                stack.pop()
                continue
            node = node_of[entry]
            if not dropped.isdisjoint(reads[node]):
                stack.extend([e for e in reads[node] if e in dropped])
                continue
            self.steps.append((RUN, node))
            dropped.difference_update(outputs[node])
            made.extend(outputs[node])
            stack.pop()
        return made

    def _drop(self, entry: Entry) -> None:
        self.steps.append((DROP, entry))
        self.dropped.add(entry)


def replayed(graph: Graph, recompute: Collection[Entry]) -> frozenset[Entry]:
    """Those of the entries from which their nodes make their first outputs again; they are small, and kept."""
    found: set[Entry] = set()
    for node in {graph.node_of[e] for e in recompute}:
        op = graph.op[node]
        replay = op.replay(graph.params[node]) if op is not None else None
        if replay is not None:
            found.update(graph.first[node] + k for k in replay[1])
    return frozenset(found)


def read_roots(graph: Graph, node: int) -> list[Entry]:
    """The entries whose contents a node reads, each as the entry that a view shows, in order, each once."""
    op = graph.op[node]
    assert op is not None
    unread = op.unread(graph.params[node])
    return list(dict.fromkeys(root_of(graph, e) for k, e in enumerate(graph.inputs[node]) if k not in unread))


def root_of(graph: Graph, entry: Entry) -> Entry:
    """The entry that a chain of views shows; other entries are their own root."""
    while True:
        node = graph.node_of[entry]
        op = graph.op[node]
        if op is None or not op.view(graph.params[node]):
            return entry
        entry = graph.inputs[node][0]
