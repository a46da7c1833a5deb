"""A graph from nodes that were changed or joined, in the order of their readers' needs."""
from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Entry, MXNetError
from ..ops.op import Op
from .graph import Graph


@dataclass(frozen=True)
class Member:
    """A node of the graph to be made; `inputs` and `outputs` are entries of the graph that it is made from."""

    op: Op | None
    params: Any
    name: str
    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    mark: bool | None = None


def assemble(graph: Graph, members: Sequence[Member | None]) -> Graph:
    """A graph of the members, by the node of `graph` whose place each takes; None leaves that node out.

    Each comes at its node's place, or as soon after it as its inputs are there and all earlier readers of what it
    changes have run. Every entry that is read must be made by a member; MXNetError when members read in a circle.
    """
    result = Graph()
    renumbered: dict[Entry, Entry] = {}
    for i in _order(graph, members):
        member = members[i]
        assert member is not None
        types = [graph.described(e) for e in member.outputs]
        made = result.append(member.op, member.params, member.name, tuple(renumbered[e] for e in member.inputs), types,
                             graph.phase[i], member.mark)
        renumbered.update(zip(member.outputs, made, strict=True))
        if i in graph.variable_class:
            result.variable_class[len(result) - 1] = graph.variable_class[i]
    result.outputs = [renumbered[e] for e in graph.outputs]
    result.heads = [renumbered[e] for e in graph.heads]
    result.output_names = list(graph.output_names)
    return result


def _order(graph: Graph, members: Sequence[Member | None]) -> list[int]:
    """The members in topological order, of those that are ready always the first one."""
    missing, after = _dependencies(members)
    ready = [i for i, member in enumerate(members) if member is not None and not missing[i]]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in after[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    waiting = [member.name for i, member in enumerate(members) if member is not None and missing[i]]
    if waiting:
        raise MXNetError(f"{waiting[0]} and {len(waiting) - 1} other nodes wait for each other's outputs; a node reads "
                         f"what earlier nodes make")
    return order


def _dependencies(members: Sequence[Member | None]) -> tuple[list[int], list[list[int]]]:
    """How many members each has to wait for, and which ones wait for it."""
    maker = {e: i for i, member in enumerate(members) if member is not None for e in member.outputs}
    missing, after = [0] * len(members), [[] for _ in members]  # type: tuple[list[int], list[list[int]]]
    readers: dict[Entry, list[int]] = {}
    for i, member in enumerate(members):
        if member is None:
            continue
        before = {maker[e] for e in member.inputs}
        if member.op is not None:
            for source, _ in member.op.mutates(member.params):
                before.update(readers.get(member.inputs[source], ()))
        for e in set(member.inputs):
            readers.setdefault(e, []).append(i)
        before.discard(i)
        missing[i] = len(before)
        for j in before:
            after[j].append(i)
    return missing, after
