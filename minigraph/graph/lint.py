"""The rules that every graph keeps, checked between passes."""
from __future__ import annotations

from ..base import MXNetError
from ..ops.op import is_complete
from .graph import Graph


def lint(graph: Graph, after: str) -> None:
    """Raise MXNetError naming the pass `after` which the graph breaks a rule, the node, and the rule."""
    changed: dict[int, int] = {}
    for i, op in enumerate(graph.op):
        where = f"after {after}: node {i} ({graph.name[i]})"
        params, inputs = graph.params[i], graph.inputs[i]
        if op is None:
            if i not in graph.variable_class:
                raise MXNetError(f"{where} is a variable of no class")
            continue
        if any(graph.node_of[e] >= i for e in inputs):
            raise MXNetError(f"{where} reads a later node: {inputs}")
        if len(inputs) != len(op.inputs(params)) or len(graph.entries(i)) != len(op.outputs(params)):
            raise MXNetError(f"{where}: {op.name} takes {len(op.inputs(params))} inputs and makes "
                             f"{len(op.outputs(params))} outputs; the node has {len(inputs)} and "
                             f"{len(graph.entries(i))}")
        for entry in inputs:
            if changed.get(entry, i) < i and entry not in _unread(graph, i):
                raise MXNetError(f"{where} reads {graph.entry_name(entry)} after node {changed[entry]} overwrote it")
        for source, _ in op.mutates(params):
            changed[inputs[source]] = i
    for entry, shape in enumerate(graph.shape):
        if not is_complete(shape) or graph.dtype[entry] is None:
            raise MXNetError(f"after {after}: {graph.entry_name(entry)} has shape {shape}, dtype {graph.dtype[entry]}")


def _unread(graph: Graph, i: int) -> set[int]:
    op = graph.op[i]
    assert op is not None
    unread = op.unread(graph.params[i])
    return {graph.inputs[i][k] for k in unread} - {e for k, e in enumerate(graph.inputs[i]) if k not in unread}
