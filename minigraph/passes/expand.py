"""expand: the symbol's graph becomes the program's forward part, in training or evaluation form.

Every output gets bytes of its own: a value that is a variable, or that two outputs share, is copied. The program
`update` has no forward part: it starts with the control buffer alone.
"""
from __future__ import annotations

import numpy as np

from ..base import Entry
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
    for i in range(len(source)):
        op, params, name = source.op[i], source.params[i], source.name[i]
        if op is None:
            entry = source.first[i]
            entry_of[entry] = b.variable(name, source.shape[entry], source.dtype[entry], _class(state, i))
            continue
        b.scope, b.mark = name, source.mark[i]
        before = len(b.graph)
        params = op.completed(params, [source.type_of(e).shape for e in source.entries(i)])
        outs = op.expand(b, params, [entry_of[e] for e in source.inputs[i]], train)
        if len(b.graph) == before + 1:
            b.graph.name[before] = name
        entry_of.update(zip(source.entries(i), outs, strict=True))
    b.mark = None
    b.graph.output_names = list(source.output_names)
    b.graph.heads = [entry_of[e] for e in source.outputs]
    b.graph.outputs = _own_outputs(b, b.graph.heads, source.output_names)


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
