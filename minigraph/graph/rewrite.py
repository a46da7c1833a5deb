"""Copying a graph with some nodes left out and some entries replaced: the one way in which passes remove nodes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base import Entry
from .graph import Graph


def rewrite(graph: Graph, keep: Sequence[bool] | bytearray, replace: Mapping[Entry, Entry]) -> Graph:
    """A graph of the nodes to `keep`, in order, whose readers of an entry in `replace` read its replacement.

    Replacements may form chains and must lead to entries of kept nodes.
    """
    result = Graph()
    renumbered: dict[Entry, Entry] = {}

    def resolve(entry: Entry) -> Entry:
        while entry in replace:
            entry = replace[entry]
        return renumbered[entry]

    for i, kept in enumerate(keep):
        if not kept:
            continue
        entries = graph.entries(i)
        types = [graph.described(e) for e in entries]
        made = result.append(graph.op[i], graph.params[i], graph.name[i],
                             tuple(resolve(e) for e in graph.inputs[i]), types, graph.phase[i],
                             graph.mark[i])
        renumbered.update(zip(entries, made, strict=True))
        if i in graph.variable_class:
            result.variable_class[len(result) - 1] = graph.variable_class[i]
    result.outputs = [resolve(e) for e in graph.outputs]
    result.heads = [resolve(e) for e in graph.heads]
    result.output_names = list(graph.output_names)
    return result


def reachable(graph: Graph) -> bytearray:
    """For each node whether anything needs it: an output, or a state that it or a later node changes.

    Variables count only if some needed node reads more than their shape.
    """
    needed = bytearray(len(graph))
    for entry in (*graph.outputs, *graph.heads):
        needed[graph.node_of[entry]] = 1
    for i in reversed(range(len(graph))):
        op, params = graph.op[i], graph.params[i]
        if op is None:
            continue
        if not needed[i] and op.mutates(params):
            needed[i] = 1
        if needed[i]:
            for entry in graph.inputs[i]:
                needed[graph.node_of[entry]] = 1
    return needed
