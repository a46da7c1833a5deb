"""The rules that every graph keeps, checked between passes."""
from __future__ import annotations

from ..base import MXNetError
from ..ops.op import is_complete
from .graph import Graph


def lint(graph: Graph, after: str) -> None:
    """Raise MXNetError naming the pass `after` which the graph breaks a rule, the node, and the rule."""
    def where(i: int) -> str:
        return f"after {after}: node {i} ({graph.name[i]})"

    changed: dict[int, int] = {}
    node_of = graph.node_of
    for i, (op, params, inputs) in enumerate(zip(graph.op, graph.params, graph.inputs, strict=True)):
        if op is None:
            if i not in graph.variable_class:
                raise MXNetError(f"{where(i)} is a variable of no class")
            continue
        takes, makes = len(op.inputs(params)), len(op.outputs(params))
        if len(inputs) != takes or len(graph.entries(i)) != makes:
            raise MXNetError(f"{where(i)}: {op.name} takes {takes} inputs and makes {makes} outputs; the node has "
                             f"{len(inputs)} and {len(graph.entries(i))}")
        for entry in inputs:
            if node_of[entry] >= i:
                raise MXNetError(f"{where(i)} reads a later node: {inputs}")
            if entry in changed and entry not in _unread(graph, i):
                raise MXNetError(f"{where(i)} reads {graph.entry_name(entry)} after node {changed[entry]} overwrote it")
        for source, _ in op.mutates(params):
            changed[inputs[source]] = i
    if all(map(is_complete, set(graph.shape))) and all(dtype is not None for dtype in graph.dtype):
        return
    for entry, shape in enumerate(graph.shape):
        if not is_complete(shape) or graph.dtype[entry] is None:
            raise MXNetError(f"after {after}: {graph.entry_name(entry)} has shape {shape}, dtype {graph.dtype[entry]}")


def _unread(graph: Graph, i: int) -> set[int]:
    op = graph.op[i]
    assert op is not None
    unread = op.unread(graph.params[i])
    return {graph.inputs[i][k] for k in unread} - {e for k, e in enumerate(graph.inputs[i]) if k not in unread}
