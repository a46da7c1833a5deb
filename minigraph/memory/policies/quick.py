"""Peak and time of a schedule from arrays alone, without writing the graph again: what searches count with.

It follows the rules of sharing (in place by the last reader of the storage, views, workspaces), so finalists meet no
surprise when the evaluator judges them. Nothing but copies is looked at one by one: a graph of hundreds of thousands of
nodes is counted in about a second.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base import Entry, align
from ...graph.graph import FORWARD, Graph
from ...ops.op import Op, only_moves
from ..machine import Machine
from ..schedule import DROP, IN, KINDS, OUT, RUN, Schedule, root_of
from .problem import Evaluation
from .versions import END, Ints, Lists, Versions, follows, repeated

_RUN, _DROP, _OUT, _IN = map(KINDS.index, (RUN, DROP, OUT, IN))
_READ = -1
"""A read is an event of the time count alone: the first one of what was copied back; of one step it comes first."""


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


class _Table:
    """The nodes as columns: for each what it reads, makes and may share, as lists of one long array."""

    def __init__(self, nodes: Sequence[_Node], seconds: Sequence[float]) -> None:
        self.reads = Lists.of(node.reads for node in nodes)
        self.outs = Lists.of(node.outs for node in nodes)
        self.sources = Lists.of([node.reads.index(source) for source, _ in node.pairs] for node in nodes)
        self.targets = Lists.of([out for _, out in node.pairs] for node in nodes)
        self.scratch = np.array([node.scratch_bytes for node in nodes], np.int64)
        self.moved = np.array([node.moves[0] if node.moves else -1 for node in nodes], np.int64)
        self.moved_to = np.array([node.moves[1] if node.moves else -1 for node in nodes], np.int64)
        self.is_forward = np.array([node.is_forward for node in nodes], bool)
        self.seconds = np.array(seconds, np.float64)


class _Trace(NamedTuple):
    """A schedule as arrays: kind and operand of each step, and who meets which version of a value."""

    kinds: NDArray[np.int8]
    operands: Ints
    runs: Ints
    """The steps that run nodes, and the nodes in `nodes`."""
    nodes: Ints
    versions: Versions
    read_at: Ints
    """For each read its step, and the version that it meets in `read`; they stand by step."""
    read: Ints
    releases: Ints
    """The steps that wait for a copy to have left."""
    moves_home: Ints
    """The steps that move a value into a variable that is away, taking it home."""


class QuickCount:
    """Counts what a schedule takes. `held_bytes` are the aligned sizes of entries, 0 for what lies in the persistent
    arena, and `size_bytes` the same without that exception; `seconds` and `scratch_bytes` are those of each node, and
    `replays` those of nodes that run again while what they need for it was kept."""

    def __init__(self, graph: Graph, order: Sequence[int], held_bytes: Sequence[int], size_bytes: Sequence[int],
                 scratch_bytes: Sequence[int], seconds: Sequence[float], machine: Machine,
                 swap_space: str = "host", replays: Mapping[int, Replayed] = MappingProxyType({})) -> None:
        self._bytes = list(size_bytes)
        self.size = np.array(size_bytes, np.int64)
        self.machine, self.swap_space = machine, swap_space
        self.inputs = np.array([e for e in map(graph.first.__getitem__, graph.variables()) if held_bytes[e]], np.int64)
        outputs = {root_of(graph, e) for e in graph.outputs}
        self.outputs = np.array(sorted(e for e in outputs if held_bytes[e]), np.int64)
        self.entries = graph.num_entries
        nodes = [_node(graph, op, i, graph.inputs[i], graph.entries(i), held_bytes, scratch_bytes[i])
                 if op is not None and not op.view(graph.params[i]) else _NOTHING
                 for i, op in enumerate(graph.op)]
        self.own = len(nodes)
        self.replays = replays
        self.kept = np.zeros(self.entries, bool)
        self.replaying = np.full(self.own, -1)
        for k, (i, found) in enumerate(replays.items()):
            self.kept[list(found.kept)] = True
            self.replaying[i] = self.own + k
            nodes.append(_node(graph, found.op, i, (*graph.inputs[i], *found.kept), graph.entries(i)[:1], held_bytes,
                               found.scratch_bytes))
        self.table = _Table(nodes, [*seconds, *(found.seconds for found in replays.values())])

    def evaluate(self, schedule: Schedule) -> Evaluation:
        """Peak transient bytes, modelled seconds with the stalls for copies, and peak host bytes but for homes."""
        kinds, operands = self._resolved(schedule)
        if not schedule.away and not (kinds >= _OUT).any():
            operands = operands[kinds == _RUN]
            trace = self._trace(np.zeros(len(operands), np.int8), operands, schedule.away)
            return Evaluation(self._peak(trace), sum(self.table.seconds[operands].tolist()))
        trace = self._trace(kinds, operands, schedule.away)
        return Evaluation(self._peak(trace), self._seconds(trace), self._host_bytes(trace, schedule.away))

    def live_bytes(self, schedule: Schedule) -> NDArray[np.int64]:
        """Live transient bytes at each step, with its workspace."""
        return self._live_bytes(self._trace(*self._resolved(schedule), schedule.away))

    def _peak(self, trace: _Trace) -> int:
        return int(self._live_bytes(trace).max(initial=0))

    def _resolved(self, schedule: Schedule) -> tuple[NDArray[np.int8], Ints]:
        """Kinds and operands, with replays in the place of nodes that run again, where what they need is kept."""
        kinds, operands = schedule.columns
        operands = operands.copy()
        if self.replays and self.kept[operands[(kinds == _DROP) | (kinds == _OUT)]].any():
            self._replay_kept(kinds, operands)
        elif self.replays:
            runs = np.flatnonzero(kinds == _RUN)
            again = runs[repeated(operands[runs])]
            again = again[self.replaying[operands[again]] >= 0]
            operands[again] = self.replaying[operands[again]]
        return kinds, operands

    def _replay_kept(self, kinds: NDArray[np.int8], operands: Ints) -> None:
        """The same where some of what replays need is dropped or swapped out, step by step."""
        ran: set[int] = set()
        dropped: set[Entry] = set()
        swapped: set[Entry] = set()
        for t, (kind, operand) in enumerate(zip(kinds.tolist(), operands.tolist(), strict=True)):
            if kind == _RUN and operand in self.replays:
                kept = self.replays[operand].kept
                if operand in ran and dropped.isdisjoint(kept) and swapped.isdisjoint(kept):
                    operands[t] = self.replaying[operand]
                else:
                    ran.add(operand)
                    dropped.difference_update(kept)
            elif kind == _DROP:
                dropped.add(operand)
            elif kind == _OUT:
                swapped.add(operand)

    def _trace(self, kinds: NDArray[np.int8], operands: Ints, away: Collection[Entry]) -> _Trace:
        table = self.table
        runs = np.flatnonzero(kinds == _RUN)
        nodes = operands[runs]
        is_away = _marked(self.entries + 1, list(away))  # with one for what no node moves
        home = runs[is_away[table.moved_to[nodes]]]
        ins, outs, drops = (np.flatnonzero(kinds == kind) for kind in (_IN, _OUT, _DROP))
        made, entry = table.outs.gather(nodes)
        versions = Versions(self.entries, len(kinds), self.inputs, np.concatenate((runs[made], ins)),
                            np.concatenate((entry, operands[ins])))
        versions.rename(home, table.moved[operands[home]], table.moved_to[operands[home]])
        reader, entry = table.reads.gather(nodes)
        read_at = runs[reader]
        read = versions.met(read_at, entry)
        events = np.concatenate((outs, home, drops))
        what = np.concatenate((operands[outs], table.moved_to[operands[home]], operands[drops]))
        leaves = np.arange(len(events)) < len(outs) + len(home)
        releases = np.sort(events[follows(events, what, leaves) & ~leaves])
        for when, what in ((read_at, read), (outs, versions.met(outs, operands[outs])),
                           (releases, versions.met(releases, operands[releases]))):
            versions.use(when, what)
        versions.keep(self.outputs)
        return _Trace(kinds, operands, runs, nodes, versions, read_at, read, releases, home)

    def _live_bytes(self, trace: _Trace) -> NDArray[np.int64]:
        versions, length = trace.versions, len(trace.kinds)
        size = self.size[versions.entry]
        began = np.maximum(versions.made_at, 0)
        until = np.maximum(versions.last, began)
        taken, in_buffers = self._sharing(trace)
        size[in_buffers] = 0
        began[taken >= 0] += 1  # until then the bytes are those of what is taken over
        change = np.zeros(length + 2, np.int64)
        np.add.at(change, began, size)
        np.subtract.at(change, np.minimum(until, length) + 1, size)
        live = np.cumsum(change)[:max(length, 1)]
        live[trace.runs] += self.table.scratch[trace.nodes]
        return live

    def _sharing(self, trace: _Trace) -> tuple[Ints, list[int]]:
        """For each version the one whose bytes it takes over, or -1; and those that lie in persistent buffers.

        Nobody takes over what lies there. Whoever would have takes over another value, if it can, so the choice is made
        again without those that were found.
        """
        settled = np.zeros(len(trace.versions), bool)
        while True:
            taken = self._taken_over(trace, settled)
            chains = list(self._in_buffers(trace, taken))
            is_taken = _marked(len(taken) + 1, taken)  # with one for -1
            over = [chain[0] for chain in chains if is_taken[chain[0]]]
            if not over:
                return taken, [version for chain in chains for version in chain]
            settled[over] = True

    def _taken_over(self, trace: _Trace, settled: NDArray[np.bool_]) -> Ints:
        """For each version the one whose bytes it takes over in place, or -1: a value that the node reads last, not
        settled, of the same size, the first pair first."""
        table, versions = self.table, trace.versions
        taken = np.full(len(versions), -1)
        run, source = table.sources.gather(trace.nodes)
        target = table.targets.gather(trace.nodes)[1]
        count = table.reads.count[trace.nodes]
        version = trace.read[(np.cumsum(count) - count)[run] + source]
        at = trace.runs[run]
        fits = (version >= 0) & (versions.last[version] == at) & ~settled[version]
        fits &= self.size[versions.entry[version]] == self.size[target]
        run, version = run[fits], version[fits]
        made = versions.met(at[fits] + 1, target[fits])
        alone = np.bincount(run, minlength=len(trace.nodes))[run] == 1
        taken[made[alone]] = version[alone]
        used: set[int] = set()
        for new, old in zip(made[~alone].tolist(), version[~alone].tolist(), strict=True):
            if taken[new] < 0 and old not in used:
                taken[new] = old
                used.add(old)
        return taken

    def _in_buffers(self, trace: _Trace, taken: Ints) -> Iterator[list[int]]:
        """Versions that are computed in a persistent buffer, since a node only moves them there, each with all whose
        bytes it takes over."""
        versions = trace.versions
        moving = trace.runs[self.table.moved[trace.nodes] >= 0]
        moving = moving[~_marked(len(trace.kinds), trace.moves_home)[moving]]
        if not len(moving):
            return
        start = self._backward_start(trace)
        for version in versions.met(moving, self.table.moved[trace.operands[moving]]).tolist():
            if version < 0 or versions.last[version] == END:
                continue
            chain = [version]
            while taken[chain[-1]] >= 0:
                chain.append(int(taken[chain[-1]]))
            if versions.made_at[chain[-1]] >= start:
                yield chain

    def _backward_start(self, trace: _Trace) -> int:
        """The first step at which a node runs again, or one of backward."""
        nodes = trace.nodes
        begun = np.flatnonzero((nodes >= self.own) | ~self.table.is_forward[nodes] | repeated(nodes))
        return int(trace.runs[begun[0]]) if len(begun) else len(trace.kinds)

    def _first_reads(self, trace: _Trace, steps: Ints) -> Ints:
        """For each step that copies a value back the first step that reads it, or END."""
        first = np.full(len(trace.versions) + 1, END)
        first[trace.read[::-1]] = trace.read_at[::-1]
        first[-1] = END
        return first[trace.versions.met(steps + 1, trace.operands[steps])]

    def _seconds(self, trace: _Trace) -> float:
        """Time on a compute stream and two copy streams, each in order, with the waits between them."""
        own = np.zeros(len(trace.kinds) + 1)
        own[trace.runs + 1] = self.table.seconds[trace.nodes]
        clock = np.cumsum(own).tolist()
        waited = leaving = arriving = 0.0
        left: dict[Entry, float] = {}
        there: dict[int, float] = {}
        for t, kind, operand in self._events(trace):
            if kind == _READ:
                waited = max(waited, there[operand] - clock[t])
            elif kind == _OUT:
                left[operand] = leaving = max(leaving, clock[t + 1] + waited) + self._out_seconds(operand)
            elif kind == _IN:
                there[t] = arriving = max(arriving, clock[t] + waited) + self._in_seconds(operand)
            elif operand in left:
                waited = max(waited, left.pop(operand) - clock[t])
        return float(clock[-1] + waited)

    def _events(self, trace: _Trace) -> Iterator[tuple[int, int, int]]:
        """The steps that copy, release or wait, in order: (step, kind, entry; of a read the step of the copy)."""
        ins = np.flatnonzero(trace.kinds == _IN)
        reads = self._first_reads(trace, ins)
        outs = np.flatnonzero(trace.kinds == _OUT)
        home = trace.moves_home
        steps = np.concatenate((reads[reads < END], outs, ins, trace.releases, home))
        kinds = np.repeat([_READ, _OUT, _IN, _DROP, _OUT],
                          [int((reads < END).sum()), len(outs), len(ins), len(trace.releases), len(home)])
        operands = np.concatenate((ins[reads < END], trace.operands[outs], trace.operands[ins],
                                   trace.operands[trace.releases], self.table.moved_to[trace.operands[home]]))
        order = np.lexsort((kinds, steps))
        return zip(steps[order].tolist(), kinds[order].tolist(), operands[order].tolist(), strict=True)

    def _out_seconds(self, entry: Entry) -> float:
        return self.machine.copy_out_seconds(self._bytes[entry], self.swap_space)

    def _in_seconds(self, entry: Entry) -> float:
        return self.machine.copy_in_seconds(self._bytes[entry], self.swap_space)

    def _host_bytes(self, trace: _Trace, away: Collection[Entry]) -> int:
        """The most bytes that are away at one step but for homes, counting each from its way out until a reader has
        met it again for the last time."""
        steps = np.flatnonzero(trace.kinds >= _OUT)
        steps = steps[~_marked(self.entries, list(away))[trace.operands[steps]]]
        back = trace.kinds[steps] == _IN
        again = follows(-steps, trace.operands[steps], back)  # seen from its end: a copy back comes next
        final = steps[back & ~again]
        met = self._first_reads(trace, final)
        change = np.zeros(len(trace.kinds) + 1, np.int64)
        outs = steps[~back]
        change[outs] += self.size[trace.operands[outs]]
        np.subtract.at(change, met[met < END], self.size[trace.operands[final[met < END]]])
        return int(np.cumsum(change).max(initial=0))


def _marked(length: int, positions: Ints | list[int]) -> NDArray[np.bool_]:
    """A mask of a length that is set at some positions."""
    mask = np.zeros(length, bool)
    mask[positions] = True
    return mask


def _node(graph: Graph, op: Op, i: int, inputs: Sequence[Entry], made: Sequence[Entry], size: Sequence[int],
          scratch_bytes: int) -> _Node:
    """What counting needs of node `i`, or of what runs in its place, with these inputs and outputs."""
    params, first = graph.params[i], graph.first[i]
    unread = op.unread(params)
    roots = [root_of(graph, e) for e in inputs]
    changed = {first + out for _, out in op.mutates(params)}
    outs = tuple(e for e in made if e not in changed)
    declared = op.inplace(params)
    pairs = []
    for source, out in declared:
        root = roots[source]
        alone = all(k in unread or roots[k] != root or (k, out) in declared for k in range(len(roots)))
        if source not in unread and alone and size[root] and size[first + out] and first + out in outs:
            pairs.append((root, first + out))
    moves = (roots[1], inputs[0]) if only_moves(op, params) and graph.op[graph.node_of[inputs[0]]] is None else None
    reads = tuple(dict.fromkeys(root for k, root in enumerate(roots) if k not in unread))
    return _Node(reads, tuple(pairs), outs, align(scratch_bytes), moves,
                 graph.phase[i] == FORWARD)
