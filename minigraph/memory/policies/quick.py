"""Peak and time of a schedule from arrays alone, without writing the graph again: what searches count with.

It follows the rules of sharing (in place by the last reader of the storage, views, workspaces), so finalists meet no
surprise when the evaluator judges them.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base import Entry
from ...graph.graph import FORWARD, Graph
from ..machine import Machine
from ..schedule import IN, OUT, RUN, Schedule, read_roots, root_of
from .problem import Evaluation

END = 1 << 60


@dataclass(frozen=True)
class _Node:
    """What counting needs of a node: what it reads, (input, output) pairs it may share in place, what it makes, and the
    value that it only moves into a persistent buffer, if that is what it does."""

    reads: tuple[Entry, ...]
    pairs: tuple[tuple[Entry, Entry], ...]
    outs: tuple[Entry, ...]
    scratch_bytes: int
    moves: Entry | None
    is_forward: bool


class QuickCount:
    """Counts what a schedule takes. `size_bytes` are aligned, 0 for what lies in the persistent arena; `seconds` and
    `scratch_bytes` are those of each node."""

    def __init__(self, graph: Graph, order: Sequence[int], size_bytes: Sequence[int], scratch_bytes: Sequence[int],
                 seconds: Sequence[float], machine: Machine) -> None:
        self.size = size_bytes
        self.seconds = seconds
        self.machine = machine
        self.inputs = [graph.first[i] for i in graph.variables() if size_bytes[graph.first[i]]]
        self.outputs = {root_of(graph, e) for e in graph.outputs}
        self.nodes = {i: _node(graph, i, size_bytes, scratch_bytes[i]) for i in order}

    def evaluate(self, schedule: Schedule) -> Evaluation:
        """Peak transient bytes, modelled seconds with the stalls for copies, and peak host bytes."""
        host_bytes = self._host_bytes(schedule)
        return Evaluation(int(self.live_bytes(schedule).max(initial=0)), self._seconds(schedule), host_bytes)

    def live_bytes(self, schedule: Schedule) -> NDArray[np.int64]:
        """Live transient bytes at each step, with its workspace."""
        last = self._last_uses(schedule)
        made = iter(last[len(self.inputs):])
        storage: dict[Entry, int] = {}
        born: list[int] = []
        until: list[int] = []
        sizes: list[int] = []
        scratch: list[tuple[int, int]] = []

        def new(entry: Entry, t: int, end: int) -> None:
            storage[entry] = len(born)
            born.append(t)
            until.append(max(end, t))
            sizes.append(self.size[entry])

        for entry, end in zip(self.inputs, last, strict=False):
            new(entry, 0, end)
        backward_start = self._backward_start(schedule)
        for t, (kind, operand) in enumerate(schedule.steps):
            if kind == IN:
                new(operand, t, next(made))
            if kind != RUN:
                continue
            node = self.nodes[operand]
            if node.moves is not None:
                s = storage.get(node.moves, -1)
                if s >= len(self.inputs) and born[s] >= backward_start and until[s] != END:
                    sizes[s] = 0  # computed where it is to lie
            taken: dict[Entry, int] = {}
            for source, out in node.pairs:
                s = storage.get(source, -1)
                if out not in taken and s >= 0 and until[s] == t and sizes[s] == self.size[out] \
                        and s not in taken.values():
                    taken[out] = s
            for out in node.outs:
                end = next(made)
                if out in taken:
                    storage[out] = taken[out]
                    until[taken[out]] = max(end, t)
                elif self.size[out]:
                    new(out, t, end)
            if node.scratch_bytes:
                scratch.append((t, node.scratch_bytes))
        return _live(born, until, sizes, scratch, len(schedule))

    def _backward_start(self, schedule: Schedule) -> int:
        """The first step at which a node runs again, or one of backward."""
        ran: set[int] = set()
        for t, (kind, node) in enumerate(schedule.steps):
            if kind == RUN:
                if node in ran or not self.nodes[node].is_forward:
                    return t
                ran.add(node)
        return len(schedule)

    def _last_uses(self, schedule: Schedule) -> list[int]:
        """For the inputs, and then for each value in the order in which it is made, the last step that needs it."""
        latest = {entry: k for k, entry in enumerate(self.inputs)}
        last = [-1] * len(self.inputs)
        ends = [k for e, k in latest.items() if e in self.outputs]
        leaving: set[Entry] = set()
        seen: set[Entry] = set()
        for t, (kind, operand) in enumerate(schedule.steps):
            if kind == RUN:
                node = self.nodes[operand]
                for entry in node.reads:
                    k = latest.get(entry)
                    if k is not None:
                        last[k] = t
                for out in node.outs:
                    latest[out] = len(last)
                    last.append(t)
                    if out in self.outputs and out not in seen:
                        seen.add(out)
                        ends.append(latest[out])
            elif kind == IN:
                latest[operand] = len(last)
                last.append(t)
            elif kind == OUT or operand in leaving:
                last[latest[operand]] = t
                (leaving.add if kind == OUT else leaving.discard)(operand)
        for k in ends:
            last[k] = END
        return last

    def _seconds(self, schedule: Schedule) -> float:
        """Time on a compute stream and two copy streams, each in order, with the waits between them."""
        compute = leaving = arriving = 0.0
        left: dict[Entry, float] = {}
        there: dict[Entry, float] = {}
        for kind, operand in schedule.steps:
            if kind == RUN:
                if there:
                    for entry in self.nodes[operand].reads:
                        compute = max(compute, there.pop(entry, 0.0))
                compute += self.seconds[operand]
            elif kind == OUT:
                leaving = max(leaving, compute) + self.machine.copy_out_seconds(self.size[operand])
                left[operand] = leaving
            elif kind == IN:
                arriving = max(arriving, compute) + self.machine.copy_in_seconds(self.size[operand])
                there[operand] = arriving
            else:
                compute = max(compute, left.pop(operand, 0.0))
        return compute

    def _host_bytes(self, schedule: Schedule) -> int:
        """The most bytes that are away at one step, counting each from its way out until a reader has met it again for
        the last time."""
        again = _returns(schedule)
        held = most = 0
        back: set[Entry] = set()
        for k, (kind, operand) in enumerate(schedule.steps):
            if kind == OUT:
                held += self.size[operand]
                most = max(most, held)
            elif kind == IN and k not in again:
                back.add(operand)
            elif kind == RUN and back:
                for entry in back.intersection(self.nodes[operand].reads):
                    back.discard(entry)
                    held -= self.size[entry]
        return most


def _returns(schedule: Schedule) -> set[int]:
    """The positions of copies back whose value is copied back again without having been copied out anew."""
    found: set[int] = set()
    latest: dict[Entry, int] = {}
    for k, (kind, operand) in enumerate(schedule.steps):
        if kind == IN:
            if operand in latest:
                found.add(latest[operand])
            latest[operand] = k
        elif kind == OUT:
            latest.pop(operand, None)
    return found


def _node(graph: Graph, i: int, size: Sequence[int], scratch_bytes: int) -> _Node:
    op, params, inputs, first = graph.op[i], graph.params[i], graph.inputs[i], graph.first[i]
    assert op is not None
    unread = op.unread(params)
    roots = [root_of(graph, e) for e in inputs]
    declared = op.inplace(params)
    pairs = []
    for source, out in declared:
        root = roots[source]
        alone = all(k in unread or roots[k] != root or (k, out) in declared for k in range(len(roots)))
        if source not in unread and alone and size[root] and size[first + out]:
            pairs.append((root, first + out))
    changed = {first + out for _, out in op.mutates(params)}
    outs = tuple(e for e in graph.entries(i) if e not in changed)
    only_moves = op.mutates(params) == ((0, 0),) and 0 in unread and (1, 0) in declared \
        and graph.op[graph.node_of[inputs[0]]] is None
    return _Node(tuple(read_roots(graph, i)), tuple(pairs), outs, scratch_bytes, roots[1] if only_moves else None,
                 graph.phase[i] == FORWARD)


def _live(born: list[int], until: list[int], sizes: list[int], scratch: list[tuple[int, int]], length: int,
          ) -> NDArray[np.int64]:
    change = np.zeros(length + 2, dtype=np.int64)
    amounts = np.array(sizes, dtype=np.int64)
    np.add.at(change, np.array(born, dtype=np.int64), amounts)
    np.subtract.at(change, np.minimum(np.array(until, dtype=np.int64), length) + 1, amounts)
    live = np.cumsum(change)[:max(length, 1)]
    for t, nbytes in scratch:
        live[t] += nbytes
    return live
