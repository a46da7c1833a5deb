"""unify: where two forward nodes compute the same of the same, the readers of the second read the first.

It runs after the gradient, so that every gradient is summed as before, and only where the first value is still there
when the second would be made: no bytes live longer than before. Nodes that change a state or must not run twice stay;
random nodes differ in their params.
"""
from __future__ import annotations

from ..base import Entry
from ..graph.graph import FORWARD, Graph
from ..graph.rewrite import rewrite
from .compilation import Compilation

END = 1 << 60
"""Position of readers after the program's end."""


def unify(state: Compilation) -> None:
    """Rewrite `graph` without forward nodes whose values are there already."""
    graph = state.graph
    assert graph is not None
    if not state.request.fuse:
        return
    keep = bytearray(b"\x01") * len(graph)
    replace: dict[Entry, Entry] = {}
    last = _last_readers(graph)
    kept = {*graph.outputs, *graph.heads}
    first: dict[tuple, int] = {}
    for i, op in enumerate(graph.op):
        params = graph.params[i]
        if op is None or graph.phase[i] != FORWARD or op.recompute == "never" or op.mutates(params) or op.view(params):
            continue
        key = (op.name, params, tuple(replace.get(e, e) for e in graph.inputs[i]))
        before = first.setdefault(key, i)
        pairs = list(zip(graph.entries(i), graph.entries(before), strict=True))
        if before == i or any(e in kept for e, _ in pairs):
            continue
        if any(last[e] >= 0 and last[same] < i for e, same in pairs):
            first[key] = i
            continue
        keep[i] = 0
        replace.update(pairs)
        for e, same in pairs:
            last[same] = max(last[same], last[e])
    if replace:
        state.graph = rewrite(graph, keep, replace)


def _last_readers(graph: Graph) -> list[int]:
    """For each entry the last node that reads it, also by way of views; -1 for none."""
    last = [-1] * graph.num_entries
    for i, inputs in enumerate(graph.inputs):
        for entry in inputs:
            last[entry] = i
    for entry in (*graph.outputs, *graph.heads):
        last[entry] = END
    for i in reversed(range(len(graph))):
        op = graph.op[i]
        if op is not None and op.view(graph.params[i]):
            source = graph.inputs[i][0]
            last[source] = max(last[source], last[graph.first[i]])
    return last
