"""apply schedule: the graph is written again with one node for each run, so that every later pass meets plain nodes in
plain order. A repeated node reads the same params, so it draws the same random numbers and gives the same bits."""
from __future__ import annotations

from ..base import Entry, MXNetError
from ..graph.graph import BACKWARD, FORWARD, Graph
from ..memory.schedule import IN, OUT, RUN, Schedule, from_order
from ..ops.params import NoParams
from ..ops.registry import get_op
from ..plan.plan import AGAIN
from .compilation import Compilation


def apply_schedule(state: Compilation) -> None:
    """Rewrite `graph` by `schedule`, which becomes the new graph's own order."""
    assert state.graph is not None and state.schedule is not None
    order = state.schedule.order
    if len(order) == len(state.schedule) and len(set(order)) == len(order) and order == tuple(sorted(order)):
        return
    state.graph = repeated(state.graph, state.schedule)
    running = [i for i, op in enumerate(state.graph.op) if op is not None and not op.view(state.graph.params[i])]
    state.schedule = from_order(running)
    state.backward_start = sum(1 for node in running if state.graph.phase[node] == FORWARD)


def repeated(graph: Graph, schedule: Schedule) -> Graph:
    """The graph with a node for each run of the schedule; MXNetError when a run reads what was dropped."""
    return _Writer(graph).write(schedule)


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.result = Graph()
        self.latest: dict[Entry, Entry] = {}
        """The latest copy of each entry; that of a dropped one still tells its shape."""
        self.first: dict[Entry, Entry] = {}
        self.dropped: set[Entry] = set()
        self.runs = [0] * len(graph)
        self.made_from: dict[Entry, Entry] = {}
        """For each view the copy of its source that its latest copy shows."""
        self.host: dict[Entry, Entry] = {}
        """The copy in host memory of an entry that was copied out."""
        self.leaving: set[Entry] = set()
        self.arriving: set[Entry] = set()
        self.phase = FORWARD

    def write(self, schedule: Schedule) -> Graph:
        for i in self.source.variables():
            self._append(i, (), self.source.name[i], self.source.phase[i])
        for kind, operand in schedule.steps:
            if kind == RUN:
                self._run(operand)
            elif kind == OUT:
                self._begin_out(operand)
            elif kind == IN:
                self._begin_in(operand)
            else:
                self._drop(operand)
        self._check_complete()
        result = self.result
        result.outputs = [self._final(e) for e in self.source.outputs]
        result.heads = [self._final(e) for e in self.source.heads]
        result.output_names = list(self.source.output_names)
        return result

    def _begin_out(self, entry: Entry) -> None:
        copy = self._read(entry, False, self.source.node_of[entry])
        self.host[entry], = self._transfer("_swap_out", entry, (copy,))
        self.leaving.add(entry)

    def _begin_in(self, entry: Entry) -> None:
        if entry not in self.host or entry not in self.dropped:
            raise MXNetError(f"the schedule brings {self.source.entry_name(entry)} in, but it was not out and dropped")
        self.latest[entry], = self._transfer("_swap_in", entry, (self.host[entry],))
        self.dropped.discard(entry)
        self.arriving.add(entry)

    def _drop(self, entry: Entry) -> None:
        self.dropped.add(entry)
        if entry in self.leaving:
            self.leaving.discard(entry)
            self._transfer("_swap_release", entry, (self.latest[entry], self.host[entry]))

    def _transfer(self, op: str, entry: Entry, inputs: tuple[Entry, ...]) -> tuple[Entry, ...]:
        operator = get_op(op)
        types = [(self.source.shape[entry], self.source.dtype[entry])] * len(operator.outputs(NoParams()))
        name = f"{self.source.entry_name(entry)}{op.removeprefix('_swap')}"
        return self.result.append(operator, NoParams(), name, inputs, types, self.phase)

    def _run(self, node: int) -> None:
        op = self.source.op[node]
        assert op is not None
        unread = op.unread(self.source.params[node])
        inputs = tuple(self._read(e, k in unread, node) for k, e in enumerate(self.source.inputs[node]))
        name, phase = self.source.name[node], self.source.phase[node]
        if self.runs[node]:
            if op.mutates(self.source.params[node]):
                raise MXNetError(f"the schedule runs {name} twice, but it changes a state")
            for entry in (self.leaving | self.arriving).intersection(self.source.entries(node)):
                raise MXNetError(f"the schedule runs {name} again while {self.source.entry_name(entry)}, which it "
                                 f"makes, is being copied")
            name, phase = f"{name}{AGAIN}{self.runs[node]}", BACKWARD
        self.runs[node] += 1
        self.phase = phase
        self._append(node, inputs, name, phase)
        self.dropped.difference_update(self.source.entries(node))

    def _append(self, node: int, inputs: tuple[Entry, ...], name: str, phase: int) -> None:
        source = self.source
        entries = source.entries(node)
        made = self.result.append(source.op[node], source.params[node], name, inputs,
                                  [(source.shape[e], source.dtype[e]) for e in entries], phase)
        if node in source.variable_class:
            self.result.variable_class[len(self.result) - 1] = source.variable_class[node]
        for old, new in zip(entries, made, strict=True):
            self.latest[old] = new
            self.first.setdefault(old, new)

    def _read(self, entry: Entry, shape_only: bool, reader: int) -> Entry:
        """The copy of an entry that a reader gets now; views are made anew over new copies of their source."""
        source = self.source
        if shape_only and entry in self.latest:
            return self.latest[entry]
        chain = []
        while self._is_view(entry):
            chain.append(entry)
            entry = source.inputs[source.node_of[entry]][0]
        if entry not in self.latest or (entry in self.dropped and not shape_only):
            raise MXNetError(f"the schedule runs {source.name[reader]} before {source.entry_name(entry)} is there")
        copy = self.latest[entry]
        if entry in self.arriving and not shape_only:
            self.arriving.discard(entry)
            self._transfer("_swap_arrive", entry, (self.host[entry], copy))
        for view in reversed(chain):
            if self.made_from.get(view) != copy:
                node = source.node_of[view]
                self._append(node, (copy, *self._others(node)), source.name[node], source.phase[node])
                self.made_from[view] = copy
            copy = self.latest[view]
        return copy

    def _others(self, view: int) -> tuple[Entry, ...]:
        """What a view reads besides its source: tensors of which it takes only the shape."""
        return tuple(self._read(e, True, view) for e in self.source.inputs[view][1:])

    def _is_view(self, entry: Entry) -> bool:
        node = self.source.node_of[entry]
        op = self.source.op[node]
        return op is not None and op.view(self.source.params[node])

    def _final(self, entry: Entry) -> Entry:
        """The copy that the outside sees: the first one, made in forward."""
        return self.first[entry] if entry in self.first else self._read(entry, False, self.source.node_of[entry])

    def _check_complete(self) -> None:
        for entry in (*self.leaving, *self.arriving):
            raise MXNetError(f"the schedule ends while {self.source.entry_name(entry)} is still being copied")
        for i, op in enumerate(self.source.op):
            if op is not None and not op.view(self.source.params[i]) and not self.runs[i]:
                raise MXNetError(f"the schedule never runs {self.source.name[i]}")
