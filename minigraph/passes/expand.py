"""expand: the symbol's graph becomes the program's forward part, in training or evaluation form.

Every output gets bytes of its own: a value that is a variable, or that two outputs share, is copied. A state that
several operators change, as the moving statistics of normalisations that share them, is changed by one after the other:
each one reads what the one before left. The program `update` has no forward part: it starts with the control buffer
alone.
"""
from __future__ import annotations

import numpy as np

from ..base import Entry, MXNetError
from ..graph import Graph, GraphBuilder
from ..ops.control import control_size
from .compilation import CONTROL, Compilation


def expand(state: Compilation) -> None:
    """Provide `graph` from `symbol_graph`, whose shapes and dtypes are complete."""
    source, train = state.symbol_graph, state.request.program != "eval"
    b = GraphBuilder(Graph())
    parameters = sum(1 for kind in source.variable_class.values() if kind == "argument")
    b.set_control(b.variable(CONTROL, (control_size(parameters),), np.float32, "input"))
    state.graph = b.graph
    if state.request.program == "update":
        return
    entry_of: dict[Entry, Entry] = {}
    states = _States(source, b, entry_of)
    for i in range(len(source)):
        op, params, name = source.op[i], source.params[i], source.name[i]
        if op is None:
            entry = source.first[i]
            entry_of[entry] = b.variable(name, source.shape[entry], source.dtype[entry], _class(state, i))
            states.add(entry)
            continue
        b.scope, b.mark = name, source.mark[i]
        before = len(b.graph)
        params = op.completed(params, [source.type_of(e).shape for e in source.entries(i)])
        outs = op.expand(b, params, [entry_of[e] for e in source.inputs[i]], train)
        if len(b.graph) == before + 1:
            b.graph.name[before] = name
        entry_of.update(zip(source.entries(i), outs, strict=True))
        states.follow(i, before)
    states.check()
    b.mark = None
    b.graph.output_names = list(source.output_names)
    b.graph.heads = [entry_of[e] for e in source.outputs]
    b.graph.outputs = _own_outputs(b, b.graph.heads, source.output_names)


class _States:
    """The present version of each variable that operators change, which those behind them read."""

    def __init__(self, source: Graph, b: GraphBuilder, entry_of: dict[Entry, Entry]) -> None:
        self.source, self.builder, self.entry_of = source, b, entry_of
        self.variable_of: dict[Entry, Entry] = {}
        """The variable of the symbol's graph of which an entry is a version."""
        self.last_change: dict[Entry, int] = {}
        """The last node of the symbol's graph that changes a variable."""
        self.first_read: dict[Entry, int] = {}
        """The first node of the symbol's graph that reads a variable and does not change it."""

    def add(self, variable: Entry) -> None:
        """Note a variable, of which there is the first version now."""
        self.variable_of[self.entry_of[variable]] = variable

    def follow(self, node: int, first: int) -> None:
        """Note which variables a node changes and which it only reads; it has become the nodes from `first` on."""
        graph = self.builder.graph
        for i in range(first, len(graph)):
            op = graph.op[i]
            assert op is not None
            for k, out in op.mutates(graph.params[i]):
                variable = self.variable_of.get(graph.inputs[i][k])
                if variable is not None:
                    version = self.entry_of[variable] = graph.first[i] + out
                    self.variable_of[version] = variable
                    self.last_change[variable] = node
        for version in self.builder.repeated & self.variable_of.keys():
            self.last_change[self.variable_of[version]] = node
        self.builder.repeated.clear()
        for entry in self.source.inputs[node]:
            if self.source.op[self.source.node_of[entry]] is None and self.last_change.get(entry) != node:
                self.first_read.setdefault(entry, node)

    def check(self) -> None:
        """MXNetError for a variable that one operator sets and another one, or its gradient, reads as it was before."""
        source = self.source
        for variable in self.last_change.keys() & self.first_read.keys():
            setter, reader = self.last_change[variable], self.first_read[variable]
            node = source.node_of[variable]
            if source.variable_class[node] == "auxiliary" and reader > setter:
                continue
            raise MXNetError(f"{source.name[setter]} sets {source.name[node]}, and {source.name[reader]} reads the "
                             f"values that it had before; give them variables of their own (or let no operator set it: "
                             f"fix_gamma=False, use_global_stats=True)")


def _class(state: Compilation, node: int) -> str:
    source = state.symbol_graph
    if source.variable_class[node] == "auxiliary":
        return "auxiliary"
    return "input" if source.name[node] in state.request.inputs else "parameter"


def _own_outputs(b: GraphBuilder, outputs: list[Entry], names: list[str]) -> list[Entry]:
    taken: set[Entry] = set()
    result = []
    for entry, name in zip(outputs, names, strict=True):
        root = _root(b.graph, entry)
        if root in taken or b.graph.op[b.graph.node_of[root]] is None:
            b.scope = name
            entry, = b.node("_copy", (entry,))
            root = entry
        taken.add(root)
        result.append(entry)
    return result


def _root(graph: Graph, entry: Entry) -> Entry:
    """The value whose bytes an entry names, through views and state changes."""
    while True:
        node = graph.node_of[entry]
        op = graph.op[node]
        if op is None:
            return entry
        sources = dict((out, source) for source, out in op.mutates(graph.params[node]))
        if op.view(graph.params[node]):
            sources[0] = 0
        source = sources.get(entry - graph.first[node])
        if source is None:
            return entry
        entry = graph.inputs[node][source]
