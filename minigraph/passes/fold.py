"""fold: in evaluation, what follows a layer of weights is put into the weights, where the op says how (`Op.fold`).

It changes how results are rounded, so it is only done when asked for.
"""
from __future__ import annotations

from ..base import Entry
from ..graph import Graph, GraphBuilder
from ..graph.rewrite import reachable, rewrite
from .compilation import CONTROL, Compilation


def fold(state: Compilation) -> None:
    """Rewrite `graph` of the program `eval`."""
    graph = state.graph
    assert graph is not None
    if not state.request.fold or state.request.program != "eval":
        return
    readers, kept = graph.readers(), {*graph.outputs, *graph.heads}
    b = GraphBuilder(Graph())
    made: dict[Entry, Entry] = {}
    for i, op in enumerate(graph.op):
        inputs = tuple(made[e] for e in graph.inputs[i])
        outs = None
        if op is not None and inputs:
            source = graph.inputs[i][0]
            producer = graph.op[graph.node_of[source]]
            if producer is not None and readers[source] == [i] and source not in kept:
                j = graph.node_of[source]
                b.scope = f"{graph.name[j]}+{graph.name[i]}"
                outs = op.fold(b, graph.params[i], inputs, producer, graph.params[j],
                               [made[e] for e in graph.inputs[j]])
        if outs is None:
            outs = b.graph.append(op, graph.params[i], graph.name[i], inputs,
                                  [graph.described(e) for e in graph.entries(i)], graph.phase[i])
            if i in graph.variable_class:
                b.graph.variable_class[len(b.graph) - 1] = graph.variable_class[i]
                if graph.name[i] == CONTROL:
                    b.set_control(outs[0])
        made.update(zip(graph.entries(i), outs, strict=True))
    b.graph.outputs = [made[e] for e in graph.outputs]
    b.graph.heads = [made[e] for e in graph.heads]
    b.graph.output_names = list(graph.output_names)
    state.graph = rewrite(b.graph, reachable(b.graph), {})
