"""Peak and time of a schedule from arrays alone, without writing the graph again: what searches count with.

It follows the rules of sharing (in place by the last reader of the storage, views, workspaces), so finalists meet no
surprise when the evaluator judges them.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base import Entry, align
from ...graph.graph import FORWARD, Graph
from ...ops.op import only_moves
from ..machine import Machine
from ..schedule import IN, OUT, RUN, Schedule, read_roots, root_of
from .problem import Evaluation

END = 1 << 60


@dataclass(frozen=True)
class _Node:
    """What counting needs of a node: what it reads, (input, output) pairs it may share in place, what it makes, and if
    it only moves a value into a persistent buffer, that value and the buffer's variable."""

    reads: tuple[Entry, ...]
    pairs: tuple[tuple[Entry, Entry], ...]
    outs: tuple[Entry, ...]
    scratch_bytes: int
    moves: tuple[Entry, Entry] | None
    is_forward: bool


_NOTHING = _Node((), (), (), 0, None, True)


class QuickCount:
    """Counts what a schedule takes. `held_bytes` are the aligned sizes of entries, 0 for what lies in the persistent
    arena, and `size_bytes` the same without that exception; `seconds` and `scratch_bytes` are those of each node."""

    def __init__(self, graph: Graph, order: Sequence[int], held_bytes: Sequence[int], size_bytes: Sequence[int],
                 scratch_bytes: Sequence[int], seconds: Sequence[float], machine: Machine,
                 swap_space: str = "host") -> None:
        self.size = size_bytes
        self.seconds = seconds
        self.machine, self.swap_space = machine, swap_space
        self.inputs = [graph.first[i] for i in graph.variables() if held_bytes[graph.first[i]]]
        self.outputs = {root_of(graph, e) for e in graph.outputs}
        self.entries = graph.num_entries
        self.nodes = [_node(graph, i, held_bytes, scratch_bytes[i]) if op is not None and not op.view(graph.params[i])
                      else _NOTHING for i, op in enumerate(graph.op)]

    def evaluate(self, schedule: Schedule) -> Evaluation:
        """Peak transient bytes, modelled seconds with the stalls for copies, and peak host bytes but for homes."""
        peak_bytes = int(self.live_bytes(schedule).max(initial=0))
        return Evaluation(peak_bytes, self._seconds(schedule), self._host_bytes(schedule))

    def live_bytes(self, schedule: Schedule) -> NDArray[np.int64]:
        """Live transient bytes at each step, with its workspace."""
        last, nodes, size = self._last_uses(schedule), self.nodes, self.size
        next_value = len(self.inputs)
        storage = [-1] * self.entries
        born: list[int] = []
        until: list[int] = []
        sizes: list[int] = []
        scratch: list[tuple[int, int]] = []

        def new(entry: Entry, t: int, end: int) -> None:
            storage[entry] = len(born)
            born.append(t)
            until.append(end if end > t else t)
            sizes.append(size[entry])

        for entry, end in zip(self.inputs, last, strict=False):
            new(entry, 0, end)
        backward_start = self._backward_start(schedule)
        for t, (kind, operand) in enumerate(schedule.steps):
            if kind == IN:
                new(operand, t, last[next_value])
                next_value += 1
            if kind != RUN:
                continue
            node = nodes[operand]
            if node.moves is not None and node.moves[1] not in schedule.away:
                s = storage[node.moves[0]]
                if s >= len(self.inputs) and born[s] >= backward_start and until[s] != END:
                    sizes[s] = 0  # computed where it is to lie
            taken: dict[Entry, int] = {}
            for source, out in node.pairs:
                s = storage[source]
                if s >= 0 and until[s] == t and out not in taken and sizes[s] == size[out] \
                        and s not in taken.values():
                    taken[out] = s
            for out in node.outs:
                end = last[next_value]
                next_value += 1
                if out in taken:
                    storage[out] = taken[out]
                    until[taken[out]] = max(end, t)
                elif size[out]:
                    new(out, t, end)
            if node.scratch_bytes:
                scratch.append((t, node.scratch_bytes))
        return _live(born, until, sizes, scratch, len(schedule))

    def _backward_start(self, schedule: Schedule) -> int:
        """The first step at which a node runs again, or one of backward."""
        ran = bytearray(len(self.nodes))
        for t, (kind, node) in enumerate(schedule.steps):
            if kind == RUN:
                if ran[node] or not self.nodes[node].is_forward:
                    return t
                ran[node] = 1
        return len(schedule)

    def _last_uses(self, schedule: Schedule) -> list[int]:
        """For the inputs, and then for each value in the order in which it is made, the last step that needs it."""
        nodes = self.nodes
        latest = [-1] * self.entries
        for k, entry in enumerate(self.inputs):
            latest[entry] = k
        last = [-1] * len(self.inputs)
        ends = [k for k, e in enumerate(self.inputs) if e in self.outputs]
        leaving: set[Entry] = set()
        unseen = set(self.outputs)
        for t, (kind, operand) in enumerate(schedule.steps):
            if kind == RUN:
                node = nodes[operand]
                for entry in node.reads:
                    k = latest[entry]
                    if k >= 0:
                        last[k] = t
                if node.moves is not None and node.moves[1] in schedule.away:
                    latest[node.moves[1]] = latest[node.moves[0]]
                    leaving.add(node.moves[1])
                for out in node.outs:
                    latest[out] = len(last)
                    last.append(t)
                    if out in unseen:
                        unseen.discard(out)
                        ends.append(latest[out])
            elif kind == IN:
                latest[operand] = len(last)
                last.append(t)
            elif kind == OUT:
                last[latest[operand]] = t
                leaving.add(operand)
            elif operand in leaving:
                leaving.discard(operand)
                if latest[operand] >= 0:
                    last[latest[operand]] = t
        for k in ends:
            last[k] = END
        return last

    def _seconds(self, schedule: Schedule) -> float:
        """Time on a compute stream and two copy streams, each in order, with the waits between them."""
        compute = leaving = arriving = 0.0
        left: dict[Entry, float] = {}
        there: dict[Entry, float] = {}
        machine, space, size, seconds = self.machine, self.swap_space, self.size, self.seconds
        for kind, operand in schedule.steps:
            if kind == RUN:
                node = self.nodes[operand]
                if there:
                    for entry in node.reads:
                        if entry in there:
                            compute = max(compute, there.pop(entry))
                compute += seconds[operand]
                if node.moves is not None and node.moves[1] in schedule.away:
                    leaving = max(leaving, compute) + machine.copy_out_seconds(size[node.moves[1]], space)
                    left[node.moves[1]] = leaving
            elif kind == OUT:
                leaving = max(leaving, compute) + machine.copy_out_seconds(size[operand], space)
                left[operand] = leaving
            elif kind == IN:
                arriving = max(arriving, compute) + machine.copy_in_seconds(size[operand], space)
                there[operand] = arriving
            elif operand in left:
                compute = max(compute, left.pop(operand))
        return compute

    def _host_bytes(self, schedule: Schedule) -> int:
        """The most bytes that are away at one step but for homes, counting each from its way out until a reader has
        met it again for the last time."""
        again = _returns(schedule)
        held = most = 0
        back: set[Entry] = set()
        for k, (kind, operand) in enumerate(schedule.steps):
            if kind == RUN:
                if back:
                    for entry in back.intersection(self.nodes[operand].reads):
                        back.discard(entry)
                        held -= self.size[entry]
            elif operand in schedule.away:
                continue
            elif kind == OUT:
                held += self.size[operand]
                most = max(most, held)
            elif kind == IN and k not in again:
                back.add(operand)
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
    moves = (roots[1], inputs[0]) if only_moves(op, params) and graph.op[graph.node_of[inputs[0]]] is None else None
    return _Node(tuple(read_roots(graph, i)), tuple(pairs), outs, align(scratch_bytes), moves,
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
