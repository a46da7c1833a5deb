"""fuse: an operator takes over what the only reader of its output does, where it can: one pass over memory for two.

Which ones go together the operators say (`Op.absorb`); here is decided where that neither moves nor keeps bytes longer
than before. What is fused in forward is differentiated as one, so the pass runs before the gradient is added. `fuse
backward` runs after it: over the nodes that it has added, and for what has no gradient of its own, which may only join
values that backward does not read.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from ..base import Entry
from ..graph.graph import FORWARD, Graph
from ..graph.reorder import Member, assemble
from ..ops.op import Op
from ..ops.registry import get_op
from .compilation import Compilation


def fuse(state: Compilation) -> None:
    """Rewrite the forward part of `graph`."""
    _rewrite(state, backward=False)


def fuse_backward(state: Compilation) -> None:
    """Rewrite `graph` once its gradient is there."""
    _rewrite(state, backward=True)


def _rewrite(state: Compilation, backward: bool) -> None:
    assert state.graph is not None
    if state.request.fuse:
        fuser = _Fuser(state, backward)
        if fuser.run():
            state.graph = assemble(state.graph, fuser.members)


class _Fuser:
    """Members are the nodes of the new graph by the node that they grew from; None for one that another took over."""

    def __init__(self, state: Compilation, backward: bool) -> None:
        assert state.graph is not None
        self.graph: Graph = state.graph
        self.accepts = state.request.fuses
        self.differentiated = state.request.program != "eval"
        self.backward = backward
        graph = self.graph
        self.members: list[Member | None] = [
            Member(graph.op[i], graph.params[i], graph.name[i], graph.inputs[i], tuple(graph.entries(i)), graph.mark[i])
            for i in range(len(graph))]
        self.uses = Counter(chain.from_iterable(graph.inputs))
        """How many inputs take each entry, those that ask for its shape only among them."""
        self.readers = _content_readers(graph)
        self.kept = {*graph.outputs, *graph.heads}
        self.maker = list(graph.node_of)
        """The member that makes an entry now."""

    def run(self) -> bool:
        """Fuse what can be, in order; return whether anything was."""
        changed = False
        for i, op in enumerate(self.graph.op):
            if op is not None and (self.backward or self.graph.phase[i] == FORWARD):
                changed |= self._into_producer(i, op)
        return changed

    def _into_producer(self, i: int, op: Op) -> bool:
        """Let the latest producer that can take node i over."""
        graph = self.graph
        inputs, params = graph.inputs[i], graph.params[i]
        if len(graph.entries(i)) != 1 or op.mutates(params) or op.view(params):
            return False
        read = set(range(len(inputs))).difference(op.unread(params))
        producers = sorted(read, key=lambda k: (-self.maker[inputs[k]], k))
        return any(self._absorbed(i, op, k) for k in producers)

    def _absorbed(self, i: int, op: Op, position: int) -> bool:
        graph = self.graph
        entry, j = graph.inputs[i][position], self.maker[graph.inputs[i][position]]
        member = self.members[j]
        assert member is not None
        if member.op is None or entry != member.outputs[0] or self.uses[entry] != 1 or entry in self.kept \
                or graph.phase[j] != graph.phase[i]:
            return False
        found = member.op.absorb(member.params, op, graph.params[i], position)
        if found is None or not self._may_be(member.op.name, *found):
            return False
        others = [e for k, e in enumerate(graph.inputs[i]) if k != position]
        if not self._may_wait(j, i, entry, others) or not self._keeps_sums(j, i, others):
            return False
        out = graph.first[i]
        self.members[j] = Member(get_op(found[0]), found[1], f"{member.name}+{graph.name[i]}",
                                 (*member.inputs, *others), (out, *member.outputs[1:]),
                                 _joined(member.mark, graph.mark[i]))
        self.members[i] = None
        self.maker[out] = j
        return True

    def _may_be(self, before: str, name: str, params: Any) -> bool:
        """Whether op `before` may become one that does more: one that has a gradient, if that is still to come, and in
        a form that the device has."""
        if not self.backward and self.differentiated and type(get_op(name)).gradient is Op.gradient:
            return False
        return self.accepts is None or self.accepts(before, name, params)

    def _may_wait(self, j: int, i: int, entry: Entry, others: Sequence[Entry]) -> bool:
        """Whether member j can run when the others are there, at node i, without more bytes being live until then: they
        are there already, or what nobody else reads so late is no more than its output."""
        if all(self.maker[e] < j for e in others):
            return True
        member = self.members[j]
        assert member is not None and member.op is not None
        unread = member.op.unread(member.params)
        waiting = {e for k, e in enumerate(member.inputs) if k not in unread and self._dies_before(e, i)}
        return sum(self._bytes(e) for e in waiting) <= self._bytes(entry)

    def _keeps_sums(self, j: int, i: int, others: Sequence[Entry]) -> bool:
        """Whether gradients are added up in the order that they would have without fusion. Readers add in the reverse
        of their order, and to a sum of two terms that makes no difference."""
        member = self.members[j]
        assert member is not None
        return self.backward or not any(self._is_read_between(e, j, i) for e in (*member.inputs, *others)
                                        if len(self.readers[e]) > 2)

    def _is_read_between(self, entry: Entry, j: int, i: int) -> bool:
        """Whether a node after j and before i reads an entry."""
        readers = self.readers[entry]
        return bisect_right(readers, j) < bisect_left(readers, i)

    def _dies_before(self, entry: Entry, i: int) -> bool:
        """Whether a value that a node makes has its last reader before node i."""
        if self.graph.op[self.graph.node_of[entry]] is None or entry in self.kept:
            return False
        return not self.readers[entry] or self.readers[entry][-1] < i

    def _bytes(self, entry: Entry) -> int:
        return self.graph.type_of(entry).nbytes


def _content_readers(graph: Graph) -> list[list[int]]:
    """For each entry the nodes that read more than its shape, ascending."""
    readers: list[list[int]] = [[] for _ in graph.node_of]
    for i, op in enumerate(graph.op):
        if op is not None:
            unread = op.unread(graph.params[i])
            for entry in {e for k, e in enumerate(graph.inputs[i]) if k not in unread}:
                readers[entry].append(i)
    return readers


def _joined(first: bool | None, second: bool | None) -> bool | None:
    """The mark of two nodes as one: it runs again only where both are to, for the value between them is gone."""
    return first if first == second else False if False in (first, second) else None
