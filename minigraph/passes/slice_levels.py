"""On which level each node of a graph in slices runs.

Within a level each slice runs through all nodes that are cut before the next one begins. What reads a whole tensor, or
a sum, that a level makes comes on a later one.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..base import Entry
from ..graph.graph import FORWARD, Graph
from ..memory.schedule import root_of
from ..ops.op import Sliced

ROUNDS = 4
"""Rounds over all nodes in which levels are changed; most end sooner, when a round changes none."""


def levels(graph: Graph, cut: Sequence[Sliced | None], together: bool) -> list[int]:
    """The level of each node. Backward comes behind forward unless they may go `together`.

    A node is first on no earlier level than those before it that are cut, so that the order within levels and from
    level to level is nearly the graph's own; where all of forward comes first, it then goes to an earlier or later
    one for which fewer bytes are held from level to level.
    """
    found = _Levels(graph, cut, together)
    found.place()
    if not together:
        found.move()
    return found.level


class _Levels:
    """Levels of one graph. `floor` is the first one of backward."""

    def __init__(self, graph: Graph, cut: Sequence[Sliced | None], together: bool) -> None:
        self.graph, self.cut, self.together = graph, cut, together
        self.level = [0] * len(graph)
        self.floor = 0
        self.reads: list[list[Entry]] = []
        """The entries that each node reads, each as the one that a view shows."""
        self.before: list[list[tuple[int, int]]] = []
        """The nodes that come before each one, with the least number of levels between them."""
        users: dict[Entry, list[int]] = {}
        for i, op in enumerate(graph.op):
            unread = () if op is None else op.unread(graph.params[i])
            self.reads.append([root_of(graph, e) for k, e in enumerate(graph.inputs[i]) if k not in unread])
            self.before.append([(graph.node_of[e], self._gap(i, k)) for k, e in enumerate(graph.inputs[i])])
            for source, _ in () if op is None else op.mutates(graph.params[i]):
                self.before[i] += ((user, int(cut[user] is not None))
                                   for user in users.get(root_of(graph, graph.inputs[i][source]), ()))
            for root in self.reads[i]:
                users.setdefault(root, []).append(i)

    def _gap(self, i: int, k: int) -> int:
        """Levels between a node and the one that makes its input `k`: none where it may take slice after slice."""
        own = self.cut[i]
        source = self.graph.node_of[self.graph.inputs[i][k]]
        follows = own is not None and own.ins[k] and self._is_cut(self.graph.inputs[i][k])
        return int(self.cut[source] is not None and not follows)

    def _is_cut(self, entry: Entry) -> bool:
        node = self.graph.node_of[entry]
        form = self.cut[node]
        return form is not None and form.outs[entry - self.graph.first[node]]

    def _least(self, i: int) -> int:
        """The level before which a node cannot be, by those that come before it."""
        return max((self.level[j] + gap for j, gap in self.before[i]), default=0)

    def place(self) -> None:
        """Give each node its first level."""
        running = 0
        for i, op in enumerate(self.graph.op):
            if op is None:
                continue
            if self.graph.phase[i] != FORWARD and not self.together and not self.floor:
                self.floor = 1 + max(self.level[:i], default=0)
            self.level[i] = max(self._least(i), running, self.floor)
            if self.cut[i] is not None:
                running = self.level[i]

    # -- fewer bytes from level to level -------------------------------------------------------------------------
    def move(self) -> None:
        """Move nodes that are cut to where least is held and read again, as long as one round after the other does.
        Updates wait behind everything meanwhile, so that they keep nobody from moving."""
        self._find_followers()
        nodes = [i for i, form in enumerate(self.cut) if form is not None]
        updates = [i for i, op in enumerate(self.graph.op) if op is not None and op.mutates(self.graph.params[i])
                   and self.graph.phase[i] != FORWARD and self.cut[i] is None and not self.after[i]]
        end = max(self.level) + 1
        for i in updates:
            self.level[i] = end
        for _ in range(ROUNDS):
            before = list(self.level)
            for i in (*nodes, *reversed(nodes)):
                self._move(i)
            if self.level == before:
                break
        for i in updates:
            self.level[i] = max(self._least(i), self.floor)

    def _find_followers(self) -> None:
        self.after: list[list[tuple[int, int]]] = [[] for _ in self.before]
        """The nodes that come after each one, with the least number of levels between them."""
        self.readers: dict[Entry, list[int]] = {}
        """The nodes that read each entry in slices."""
        for i, before in enumerate(self.before):
            for j, gap in before:
                self.after[j].append((i, gap))
            for root in self.reads[i]:
                if self._is_cut(root):
                    self.readers.setdefault(root, []).append(i)

    def _move(self, i: int) -> None:
        """Move a node to the level where it costs least, if that is less than where it is."""
        least, most = self._range(i)
        if least >= most:
            return
        touched = self._touched(i)
        beside = {self.level[j] for e in touched for j in (self.graph.node_of[e], *self.readers.get(e, ()))}
        now, costs = self.level[i], {}
        for level in sorted({now, least, most, *(k for k in beside if least <= k <= most)}):
            self.level[i] = level
            costs[level] = sum(map(self._cost, touched))
        early = not any(map(self._is_cut, self.graph.entries(i)))  # what follows its sums may then come sooner
        self.level[i] = min(costs, key=lambda level: (costs[level], not early and level != now, level))

    def _touched(self, i: int) -> list[Entry]:
        """The entries in slices that a node makes or reads."""
        return [e for e in dict.fromkeys((*self.graph.entries(i), *self.reads[i])) if self._is_cut(e)]

    def _range(self, i: int) -> tuple[int, int]:
        """The levels between which a node may lie."""
        most = min((self.level[j] - gap for j, gap in self.after[i]), default=self.level[i])
        if self.graph.phase[i] == FORWARD:
            return self._least(i), min(most, max(self.floor - 1, self.level[i]))
        return max(self._least(i), self.floor), most

    def _cost(self, entry: Entry) -> int:
        """Bytes of an entry times the levels over which it is held for its readers, and once more for each level but
        its own on which it is read: between forward and backward it need not be on the device."""
        maker = self.graph.node_of[entry]
        own, at = self.level[maker], {self.level[j] for j in self.readers.get(entry, ())}
        leaves = self.graph.phase[maker] == FORWARD and self.floor
        held = max((k for k in at if not leaves or k < self.floor), default=own) - own
        return self.graph.type_of(entry).nbytes * (held + len(at - {own}))
