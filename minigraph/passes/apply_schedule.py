"""apply schedule: the graph is written again with one node for each run, so that every later pass meets plain nodes in
plain order. A repeated node reads the same params, so it draws the same random numbers and gives the same bits."""
from __future__ import annotations

from ..base import Entry, MXNetError, align
from ..graph.graph import BACKWARD, FORWARD, Graph
from ..memory.schedule import IN, OUT, RUN, Schedule, from_order
from ..ops.op import only_moves
from ..ops.params import NoParams
from ..ops.registry import get_op
from ..plan.plan import AGAIN
from .compilation import Compilation


def apply_schedule(state: Compilation) -> None:
    """Rewrite `graph` by `schedule`, which becomes the new graph's own order; provide `ordered`, what it was before."""
    assert state.graph is not None and state.schedule is not None
    state.ordered = state.graph
    _send_away(state, state.graph, state.schedule.away)
    order = state.schedule.order
    if len(order) == len(state.schedule) and len(set(order)) == len(order) and order == tuple(sorted(order)):
        return
    state.graph = repeated(state.graph, state.schedule)
    state.schedule = from_order(running(state.graph))
    state.backward_start = backward_start(state.graph)


def running(graph: Graph) -> list[int]:
    """The nodes that run, in the graph's own order: all but variables and views."""
    return [i for i, op in enumerate(graph.op) if op is not None and not op.view(graph.params[i])]


def backward_start(graph: Graph) -> int:
    """The number of forward nodes that run, which is where backward begins unless slices go through both together."""
    return sum(1 for i in running(graph) if graph.phase[i] == FORWARD)


def _send_away(state: Compilation, graph: Graph, variables: frozenset[Entry]) -> None:
    """Note which variables are at home outside the device, and what that changes in bytes."""
    state.away = frozenset(graph.name[graph.node_of[entry]] for entry in variables)
    moved = sum(align(graph.type_of(entry).nbytes) for entry in variables
                if graph.name[graph.node_of[entry]] not in state.layout.away)
    state.persistent_bytes -= moved
    state.home_bytes += moved


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
        """The copy outside the device of an entry that was copied out, or of a variable whose home is there."""
        self.changed: set[Entry] = set()
        """Variables whose home does not have their present value."""
        self.variable_of: dict[Entry, Entry] = {}
        """For each version of a variable that is away the variable; the present version is the variable's `latest`."""
        self.leaving: set[Entry] = set()
        self.arriving: set[Entry] = set()
        self.phase = FORWARD

    def write(self, schedule: Schedule) -> Graph:
        for i in self.source.variables():
            self._append(i, (), self.source.name[i], self.source.phase[i])
        for entry in schedule.away:
            self.host[entry] = self.latest[entry]
            self.variable_of[entry] = entry
            self.dropped.add(entry)
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
        if entry in self.variable_of:
            self._take_home(entry, copy)
        else:
            self.host[entry], = self._transfer("_swap_out", entry, (copy,))
            self.leaving.add(entry)

    def _take_home(self, variable: Entry, copy: Entry) -> None:
        self.host[variable], = self._transfer("_swap_home", variable, (self.host[variable], copy))
        self.latest[variable] = copy
        self.leaving.add(variable)
        self.changed.discard(variable)

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
        types = [self.source.described(entry)] * len(operator.outputs(NoParams()))
        name = f"{self.source.entry_name(entry)}{op.removeprefix('_swap')}"
        return self.result.append(operator, NoParams(), name, inputs, types, self.phase)

    def _run(self, node: int) -> None:
        op = self.source.op[node]
        assert op is not None
        if only_moves(op, self.source.params[node]) and self.source.inputs[node][0] in self.variable_of:
            self._move_home(node)
            return
        params = self.source.params[node]
        # What a node writes over must be there as much as what it reads.
        unread = set(op.unread(params)).difference(k for k, _ in op.mutates(params))
        inputs = tuple(self._read(e, k in unread, node) for k, e in enumerate(self.source.inputs[node]))
        name, phase = self.source.name[node], self.source.phase[node]
        if self.runs[node]:
            if op.mutates(params):
                raise MXNetError(f"the schedule runs {name} twice, but it changes a state")
            for entry in (self.leaving | self.arriving).intersection(self.source.entries(node)):
                raise MXNetError(f"the schedule runs {name} again while {self.source.entry_name(entry)}, which it "
                                 f"makes, is being copied")
            name, phase = f"{name}{AGAIN}{self.runs[node]}", BACKWARD
        self.runs[node] += 1
        self.phase = phase
        if self.runs[node] > 1 and self._replay(node, inputs, name, phase):
            return
        self._append(node, inputs, name, phase)
        self._note_changes(node)
        self.dropped.difference_update(self.source.entries(node))

    def _move_home(self, node: int) -> None:
        """Instead of a node that moves a value into a variable that is away: the value is taken home at once."""
        buffer, value = self.source.inputs[node]
        self.runs[node] += 1
        self.phase = self.source.phase[node]
        copy = self._read(value, False, node)
        self._take_home(self.variable_of[buffer], copy)
        self.latest[self.source.first[node]] = copy

    def _note_changes(self, node: int) -> None:
        """Variables that are away have a new value on the device once a node has changed them."""
        source, op = self.source, self.source.op[node]
        for k, out in op.mutates(source.params[node]) if self.variable_of and op is not None else ():
            variable = self.variable_of.get(source.inputs[node][k])
            if variable is not None:
                entry = source.first[node] + out
                self.variable_of[entry] = variable
                self.latest[variable] = self.latest[entry]
                self.changed.add(variable)

    def _replay(self, node: int, inputs: tuple[Entry, ...], name: str, phase: int) -> bool:
        """Make a node's output 0 again from the others, where its op can and they were kept."""
        source, params = self.source, self.source.params[node]
        found = source.op[node].replay(params)  # type: ignore[union-attr]
        entries = source.entries(node)
        if found is None or any(entries[k] in self.dropped or entries[k] in self.host for k in found[1]):
            return False
        kept = tuple(self.latest[entries[k]] for k in found[1])
        out = entries[0]
        self.latest[out], = self.result.append(get_op(found[0]), params, name, (*inputs, *kept),
                                               [source.described(out)], phase)
        self.dropped.discard(out)
        return True

    def _append(self, node: int, inputs: tuple[Entry, ...], name: str, phase: int) -> None:
        source = self.source
        entries = source.entries(node)
        made = self.result.append(source.op[node], source.params[node], name, inputs,
                                  [source.described(e) for e in entries], phase)
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
        entry = self.variable_of.get(entry, entry)
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
        for entry in self.changed:
            raise MXNetError(f"the schedule changes {self.source.entry_name(entry)} and never takes it home")
        for i, op in enumerate(self.source.op):
            if op is not None and not op.view(self.source.params[i]) and not self.runs[i]:
                raise MXNetError(f"the schedule never runs {self.source.name[i]}")
