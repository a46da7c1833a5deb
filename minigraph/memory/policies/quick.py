"""Peak and time of a schedule from arrays alone, without writing the graph again: what searches count with.

It follows the rules of sharing (in place by the last reader of the storage, views, workspaces), so finalists meet no
surprise when the evaluator judges them.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base import Entry, align
from ...graph.graph import FORWARD, Graph
from ...ops.op import Op, only_moves
from ..machine import Machine
from ..schedule import DROP, IN, OUT, RUN, Schedule, root_of
from .problem import Evaluation

END = 1 << 60
_NONE: dict[Entry, int] = {}
Steps = Sequence[tuple[str, int]]


class _Node(NamedTuple):
    """What counting needs of a node: what it reads, (input, output) pairs it may share in place, what it makes, and if
    it only moves a value into a persistent buffer, that value and the buffer's variable."""

    reads: tuple[Entry, ...]
    pairs: tuple[tuple[Entry, Entry], ...]
    outs: tuple[Entry, ...]
    scratch_bytes: int
    moves: tuple[Entry, Entry] | None
    is_forward: bool


_NOTHING = _Node((), (), (), 0, None, True)


class Replayed(NamedTuple):
    """How a node makes its output 0 again from others of its outputs (`Op.replay`): by which op, from which of them,
    and what that takes."""

    op: Op
    kept: tuple[Entry, ...]
    scratch_bytes: int
    seconds: float


class QuickCount:
    """Counts what a schedule takes. `held_bytes` are the aligned sizes of entries, 0 for what lies in the persistent
    arena, and `size_bytes` the same without that exception; `seconds` and `scratch_bytes` are those of each node, and
    `replays` those of nodes that run again while what they need for it was kept."""

    def __init__(self, graph: Graph, order: Sequence[int], held_bytes: Sequence[int], size_bytes: Sequence[int],
                 scratch_bytes: Sequence[int], seconds: Sequence[float], machine: Machine,
                 swap_space: str = "host", replays: Mapping[int, Replayed] = MappingProxyType({})) -> None:
        self.size = size_bytes
        self.seconds = seconds
        self.machine, self.swap_space = machine, swap_space
        self.inputs = [graph.first[i] for i in graph.variables() if held_bytes[graph.first[i]]]
        self.outputs = {root_of(graph, e) for e in graph.outputs}
        self.entries = graph.num_entries
        self.nodes = [_node(graph, op, i, graph.inputs[i], graph.entries(i), held_bytes, scratch_bytes[i])
                      if op is not None and not op.view(graph.params[i]) else _NOTHING
                      for i, op in enumerate(graph.op)]
        self.replays = replays
        self._replaying = self._add_replays(graph, held_bytes)

    def _add_replays(self, graph: Graph, held_bytes: Sequence[int]) -> dict[int, int]:
        """Append what counting needs of nodes that are replayed to those of nodes; where it is, by node."""
        places, seconds = {}, list(self.seconds)
        for i, found in self.replays.items():
            places[i] = len(self.nodes)
            self.nodes.append(_node(graph, found.op, i, (*graph.inputs[i], *found.kept), graph.entries(i)[:1],
                                    held_bytes, found.scratch_bytes))
            seconds.append(found.seconds)
        self.seconds = seconds
        return places

    def evaluate(self, schedule: Schedule) -> Evaluation:
        """Peak transient bytes, modelled seconds with the stalls for copies, and peak host bytes but for homes."""
        steps = self._resolved(schedule.steps)
        if not schedule.away and all(kind in (RUN, DROP) for kind, _ in steps):
            order = [node for kind, node in steps if kind == RUN]
            live = self._live_bytes([(RUN, node) for node in order], schedule.away)
            return Evaluation(int(live.max(initial=0)), sum(map(self.seconds.__getitem__, order)))
        return Evaluation(int(self._live_bytes(steps, schedule.away).max(initial=0)),
                          self._seconds(steps, schedule.away), self._host_bytes(schedule))

    def live_bytes(self, schedule: Schedule) -> NDArray[np.int64]:
        """Live transient bytes at each step, with its workspace."""
        return self._live_bytes(self._resolved(schedule.steps), schedule.away)

    def _resolved(self, steps: Steps) -> Steps:
        """The steps with replays in the place of nodes that run again, where what they need is kept."""
        if not self._replaying:
            return steps
        ran: set[int] = set()
        dropped: set[Entry] = set()
        swapped: set[Entry] = set()
        resolved = []
        for kind, operand in steps:
            if kind == RUN and operand in self._replaying:
                kept = self.replays[operand].kept
                if operand in ran and dropped.isdisjoint(kept) and swapped.isdisjoint(kept):
                    operand = self._replaying[operand]
                else:
                    ran.add(operand)
                    dropped.difference_update(kept)
            elif kind == DROP:
                dropped.add(operand)
            elif kind == OUT:
                swapped.add(operand)
            resolved.append((kind, operand))
        return resolved

    def _live_bytes(self, steps: Steps, away: Collection[Entry]) -> NDArray[np.int64]:
        last, nodes, size = self._last_uses(steps, away), self.nodes, self.size
        inputs = len(self.inputs)
        storage, made = [-1] * self.entries, iter(last[inputs:])
        for k, entry in enumerate(self.inputs):
            storage[entry] = k
        born, until, sizes = [0] * inputs, [max(end, 0) for end in last[:inputs]], [size[e] for e in self.inputs]
        scratch: list[tuple[int, int]] = []
        backward_start = self._backward_start(steps)
        for t, (kind, operand) in enumerate(steps):
            if kind == RUN:
                _, pairs, outs, scratch_bytes, moves, _ = nodes[operand]
                if moves is not None and moves[1] not in away:
                    s = storage[moves[0]]
                    if s >= inputs and born[s] >= backward_start and until[s] != END:
                        sizes[s] = 0  # computed where it is to lie
                taken: dict[Entry, int] = {}
                for source, out in pairs:
                    s = storage[source]
                    if s >= 0 and until[s] == t and out not in taken and sizes[s] == size[out] \
                            and s not in taken.values():
                        taken[out] = s
                if scratch_bytes:
                    scratch.append((t, scratch_bytes))
            elif kind == IN:
                outs, taken = (operand,), _NONE
            else:
                continue
            for out in outs:
                end = next(made)
                if out in taken:
                    s = storage[out] = taken[out]
                    until[s] = end if end > t else t
                elif size[out]:
                    storage[out] = len(born)
                    born.append(t)
                    until.append(end if end > t else t)
                    sizes.append(size[out])
        return _live(born, until, sizes, scratch, len(steps))

    def _backward_start(self, steps: Steps) -> int:
        """The first step at which a node runs again, or one of backward."""
        ran = bytearray(len(self.nodes))
        for t, (kind, node) in enumerate(steps):
            if kind == RUN:
                if ran[node] or node >= len(self.nodes) - len(self.replays) or not self.nodes[node].is_forward:
                    return t
                ran[node] = 1
        return len(steps)

    def _last_uses(self, steps: Steps, away: Collection[Entry]) -> list[int]:
        """For the inputs, and then for each value in the order in which it is made, the last step that needs it."""
        nodes = self.nodes
        latest = [-1] * self.entries
        for k, entry in enumerate(self.inputs):
            latest[entry] = k
        last = [-1] * len(self.inputs)
        ends = [k for k, e in enumerate(self.inputs) if e in self.outputs]
        leaving: set[Entry] = set()
        unseen = set(self.outputs)
        for t, (kind, operand) in enumerate(steps):
            if kind == RUN:
                reads, _, outs, _, moves, _ = nodes[operand]
                for entry in reads:
                    k = latest[entry]
                    if k >= 0:
                        last[k] = t
                if moves is not None and moves[1] in away:
                    latest[moves[1]] = latest[moves[0]]
                    leaving.add(moves[1])
                for out in outs:
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

    def _seconds(self, steps: Steps, away: Collection[Entry]) -> float:
        """Time on a compute stream and two copy streams, each in order, with the waits between them."""
        compute = leaving = arriving = 0.0
        left: dict[Entry, float] = {}
        there: dict[Entry, float] = {}
        nodes, seconds = self.nodes, self.seconds
        for kind, operand in steps:
            if kind == RUN:
                if there:
                    for entry in nodes[operand].reads:
                        if entry in there:
                            compute = max(compute, there.pop(entry))
                compute += seconds[operand]
                moves = nodes[operand].moves
                if moves is not None and moves[1] in away:
                    left[moves[1]] = leaving = max(leaving, compute) + self._out_seconds(moves[1])
            elif kind == OUT:
                left[operand] = leaving = max(leaving, compute) + self._out_seconds(operand)
            elif kind == IN:
                there[operand] = arriving = max(arriving, compute) + self._in_seconds(operand)
            elif operand in left:
                compute = max(compute, left.pop(operand))
        return compute

    def _out_seconds(self, entry: Entry) -> float:
        return self.machine.copy_out_seconds(self.size[entry], self.swap_space)

    def _in_seconds(self, entry: Entry) -> float:
        return self.machine.copy_in_seconds(self.size[entry], self.swap_space)

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


def _node(graph: Graph, op: Op, i: int, inputs: Sequence[Entry], made: Sequence[Entry], size: Sequence[int],
          scratch_bytes: int) -> _Node:
    """What counting needs of node `i`, or of what runs in its place, with these inputs and outputs."""
    params, first = graph.params[i], graph.first[i]
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
    outs = tuple(e for e in made if e not in changed)
    moves = (roots[1], inputs[0]) if only_moves(op, params) and graph.op[graph.node_of[inputs[0]]] is None else None
    reads = tuple(dict.fromkeys(root for k, root in enumerate(roots) if k not in unread))
    return _Node(reads, tuple(pairs), outs, align(scratch_bytes), moves,
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
