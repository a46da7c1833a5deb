"""share: which values live in the same bytes. Views and state changes must; outputs take over dying inputs where
their op allows it; a gradient is computed straight into its persistent buffer.

The question is always asked of the *storage*: its last reader, through whatever name, decides.
"""
from __future__ import annotations

from ..base import Entry, MXNetError
from ..graph.graph import Graph
from ..ops.op import only_moves
from ..plan.plan import PERSISTENT_CLASSES
from .compilation import Compilation, Sharing

END = 1 << 60
"""Position of readers after the program's end."""


def share(state: Compilation) -> None:
    """Provide `sharing` from `graph` and `schedule`."""
    assert state.graph is not None and state.schedule is not None and state.backward_start is not None
    sharer = _Sharer(state.graph, state.schedule.order, state.backward_start, state.request.memory != "naive")
    sharer.run()
    state.sharing = sharer.result()


class _Sharer:
    def __init__(self, graph: Graph, order: tuple[int, ...], backward_start: int, inplace: bool) -> None:
        self.graph = graph
        self.order = order
        self.backward_start = backward_start
        self.inplace = inplace
        self.last_read = _last_reads(graph, order)
        count = graph.num_entries
        self.storage_of = [-1] * count
        self.shares = [-1] * count
        self.view = [False] * count
        self.offset = [0] * count
        self.bytes: list[int] = []
        self.born: list[int] = []
        self.until: list[int] = []
        """The last position at which any name of the storage is read."""
        self.persistent: list[str | None] = []
        self.on_host: list[bool] = []
        self.holds_input: set[int] = set()
        self.elided: set[int] = set()

    def run(self) -> None:
        """Decide in the order of the schedule; a view joins its source when somebody reads it."""
        for i in self.graph.variables():
            self._variable(i)
        for t, i in enumerate(self.order):
            for entry in self.graph.inputs[i]:
                self._resolve(entry)
            self._node(i, t)
        for entry in range(self.graph.num_entries):
            self._resolve(entry)

    def _resolve(self, entry: Entry) -> None:
        """Give a view, and the views it looks through, the storage of what they show."""
        graph, chain = self.graph, []
        while self.storage_of[entry] < 0:
            node = graph.node_of[entry]
            op = graph.op[node]
            if op is None or not op.view(graph.params[node]):
                raise MXNetError(f"{graph.entry_name(entry)} is needed before the schedule runs {graph.name[node]}, "
                                 f"which makes it; a schedule runs every node before its readers")
            chain.append(node)
            entry = graph.inputs[node][0]
        for node in reversed(chain):
            source = graph.inputs[node][0]
            self._take(graph.first[node], source, view=True)
            begin = graph.op[node].view_offset(graph.params[node], graph.type_of(source))  # type: ignore[union-attr]
            self.offset[graph.first[node]] = self.offset[source] + begin

    def result(self) -> Sharing:
        dies = [min(until, END) + 1 for until in self.until]
        return Sharing(self.storage_of, self.bytes, self.born, dies, self.persistent, self.on_host, self.shares,
                       self.view, self.offset, frozenset(self.elided))

    def _variable(self, i: int) -> None:
        entry = self.graph.first[i]
        storage = self._new(entry, -1)
        if self.graph.variable_class[i] in PERSISTENT_CLASSES:
            self.persistent[storage] = self.graph.name[i]
        else:
            self.holds_input.add(storage)

    def _node(self, i: int, t: int) -> None:
        graph = self.graph
        op, params, inputs, first = graph.op[i], graph.params[i], graph.inputs[i], graph.first[i]
        assert op is not None
        mutated = op.mutates(params)
        for source, out in mutated:
            self._take(first + out, inputs[source], view=False)
        if mutated and self.inplace:
            self._elide_assignment(i, t)
        pairs = op.inplace(params) if self.inplace else ()
        for source, out in pairs:
            if self.storage_of[first + out] < 0 and self._may_overwrite(i, t, source, out, pairs):
                self._take(first + out, inputs[source], view=False)
        for entry in graph.entries(i):
            if self.storage_of[entry] < 0:
                self._new(entry, t)
            self.until[self.storage_of[entry]] = max(self.until[self.storage_of[entry]], self.last_read[entry], t)

    def _may_overwrite(self, i: int, t: int, source: int, out: int, pairs: tuple[tuple[int, int], ...]) -> bool:
        graph = self.graph
        inputs, entry = graph.inputs[i], graph.first[i] + out
        storage = self.storage_of[inputs[source]]
        unread = graph.op[i].unread(graph.params[i])  # type: ignore[union-attr]
        if self.persistent[storage] is not None or self.until[storage] > t or source in unread:
            return False
        if graph.type_of(entry).nbytes != self.bytes[storage] or graph.layout[entry] != graph.layout[inputs[source]]:
            return False
        if any(self.storage_of[e] == storage for e in graph.entries(i)):
            return False
        return all((k, out) in pairs for k, e in enumerate(inputs)
                   if k not in unread and self.storage_of[e] == storage)

    def _elide_assignment(self, i: int, t: int) -> None:
        """Let a value that only moves into a persistent buffer be computed there: then nothing moves.

        The value's bytes must be born in the backward part, so that the old gradient
        stays readable until then, and must be nobody else's.
        """
        graph = self.graph
        op, params, inputs = graph.op[i], graph.params[i], graph.inputs[i]
        assert op is not None
        if not only_moves(op, params):
            return
        buffer, value = self.storage_of[inputs[0]], self.storage_of[inputs[1]]
        movable = (self.persistent[value] is None and value not in self.holds_input
                   and self.until[value] != END and self.born[value] >= self.backward_start
                   and self.bytes[value] == self.bytes[buffer]
                   and graph.op[graph.node_of[inputs[0]]] is None)
        if movable:
            self.persistent[value] = self.persistent[buffer]
            out = graph.first[i]
            self.storage_of[out] = -1
            self._take(out, inputs[1], view=True)
            self.elided.add(i)

    def _new(self, entry: Entry, born: int) -> int:
        self.storage_of[entry] = storage = len(self.bytes)
        self.bytes.append(self.graph.type_of(entry).nbytes)
        self.born.append(born)
        self.until.append(max(self.last_read[entry], born, 0))
        self.persistent.append(None)
        op = self.graph.op[self.graph.node_of[entry]]
        self.on_host.append(op is not None and op.transfer == "out")
        return storage

    def _take(self, entry: Entry, source: Entry, view: bool) -> None:
        storage = self.storage_of[source]
        self.storage_of[entry] = storage
        self.shares[entry] = source
        self.view[entry] = view
        self.until[storage] = max(self.until[storage], self.last_read[entry])


def _last_reads(graph: Graph, order: tuple[int, ...]) -> list[int]:
    """For each entry the last position that reads its contents, under its own name or a view's; -1 for never."""
    last = [-1] * graph.num_entries
    for t, i in enumerate(order):
        unread = graph.op[i].unread(graph.params[i])  # type: ignore[union-attr]
        for k, entry in enumerate(graph.inputs[i]):
            if k not in unread:
                last[entry] = t
    for entry in graph.outputs:
        last[entry] = END
    for i in reversed(range(len(graph))):
        op = graph.op[i]
        if op is not None and op.view(graph.params[i]):
            source, out = graph.inputs[i][0], graph.first[i]
            last[source] = max(last[source], last[out])
    return last
