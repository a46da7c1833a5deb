"""fold views: reshapes to the same shape disappear, and a reshape of a reshape reads the first one's input."""
from __future__ import annotations

from ..base import Entry
from ..graph.graph import Graph
from ..graph.rewrite import rewrite
from .compilation import Compilation


def fold_views(state: Compilation) -> None:
    """Rewrite `graph` without views that change nothing; outputs keep theirs."""
    graph = state.graph
    assert graph is not None
    keep = bytearray(b"\x01") * len(graph)
    replace: dict[Entry, Entry] = {}
    outputs = set(graph.outputs)
    for i, op in enumerate(graph.op):
        if op is None or not op.view(graph.params[i]):
            continue
        entry, source = graph.first[i], graph.inputs[i][0]
        if graph.shape[entry] == graph.shape[source] and entry not in outputs and not _is_variable(graph, source):
            keep[i] = 0
            replace[entry] = source
    if replace:
        state.graph = rewrite(graph, keep, replace)


def _is_variable(graph: Graph, entry: Entry) -> bool:
    return graph.op[graph.node_of[entry]] is None
