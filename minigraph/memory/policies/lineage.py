"""What it takes to compute values again: all their dropped ancestors, from what is there; and the schedule that does
it collectively, with later targets kept while memory allows."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...base import Entry
from ..schedule import Recomputation, Schedule
from .problem import Problem

LONGEST = 256
"""Nodes of the longest lineage that is considered."""
MOST_RUNS = 8
"""Runs of the whole graph, counted in steps, after which nothing more is dropped once it was made again."""


class Lineages:
    """Times of computing values again while more and more are chosen for it.

    A chosen value was perhaps a source of others that were chosen before: it is made again for each of these too.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.saved = frozenset(problem.saved)
        self.chosen: set[Entry] = set()
        self.away = set(problem.droppable - self.saved)
        """What is not there in backward: values that forward alone reads, and chosen ones."""
        self.known: dict[Entry, tuple[float, frozenset[Entry]] | None] = {}
        """For each value that was asked for the time of its lineage and the values that this begins with; None for one
        that is too long. It holds until one of those is chosen, and then the lineage only grows."""
        self.askers: dict[Entry, set[Entry]] = {}
        """For each value those whose known lineage begins with it."""
        self.sources: dict[Entry, set[Entry]] = {}
        """For each chosen value the values that its lineage begins with."""
        self.users: dict[Entry, set[Entry]] = {}
        """For each value the chosen ones whose lineage begins with it."""

    def seconds(self, entry: Entry) -> float:
        """Time to make a value again, as often as it would be; without end if its lineage is too long."""
        found = self._lineage(entry)
        if found is None:
            return float("inf")
        return (1 + len(self.users.get(entry, ()))) * found[0]

    def choose(self, entry: Entry) -> None:
        """Choose a value with a lineage that is not too long."""
        found = self._lineage(entry)
        assert found is not None
        self.chosen.add(entry)
        if entry in self.problem.droppable:
            self.away.add(entry)
            for asker in self.askers.pop(entry, ()):
                self.known.pop(asker, None)
        for user in (entry, *self.users.pop(entry, ())):
            sources = self.sources.setdefault(user, set())
            sources.discard(entry)
            sources |= found[1]
            for source in found[1]:
                self.users.setdefault(source, set()).add(user)

    def _lineage(self, entry: Entry) -> tuple[float, frozenset[Entry]] | None:
        """The time to run all nodes for a value, and the values that are there and read by them."""
        if entry not in self.known:
            found = self.known[entry] = self._walked(entry)
            for source in found[1] if found is not None else ():
                self.askers.setdefault(source, set()).add(entry)
        return self.known[entry]

    def _walked(self, entry: Entry) -> tuple[float, frozenset[Entry]] | None:
        node_of, reads, away, saved = self.problem.graph.node_of, self.problem.reads, self.away, self.saved
        nodes, sources = set[int](), set[Entry]()
        stack = [node_of[entry]]
        while stack:
            node = stack.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if len(nodes) > LONGEST:
                return None
            for read in reads[node]:
                if read in away:
                    stack.append(node_of[read])
                elif read in saved:
                    sources.add(read)
        return sum(map(self.problem.seconds.__getitem__, nodes)), frozenset(sources)


def recomputed(problem: Problem, chosen: Collection[Entry], live_bytes: Sequence[int], target_bytes: int) -> Schedule:
    """The schedule in which chosen values are dropped and made again collectively.

    `live_bytes` are those of each step of the plain order, less what is swapped out. Whatever is made again on the way
    to a value is kept for its own readers as far as `target_bytes` allow; what would be used last is dropped first.
    """
    return _Collective(problem, frozenset(chosen), live_bytes, target_bytes).schedule()


class _Collective(Recomputation):
    def __init__(self, problem: Problem, chosen: frozenset[Entry], live_bytes: Sequence[int], target_bytes: int,
                 ) -> None:
        passing = problem.droppable.difference(problem.saved) if chosen else frozenset()
        super().__init__(problem.facts, chosen | passing)
        self.chosen = chosen
        self.size = problem.size_bytes
        self.live = live_bytes
        self.target_bytes = target_bytes
        self.absent_bytes = sum(self.size[entry] for entry in chosen & self.recompute)
        """What was made in forward, or again, and is dropped."""
        self.next_read: dict[Entry, list[int]] = {}
        for t in reversed(range(problem.backward_start, len(problem.order))):
            for entry in problem.reads[problem.order[t]]:
                if entry in chosen:
                    self.next_read.setdefault(entry, []).append(t)

    def _provide(self, wanted: Iterable[Entry]) -> None:
        now, wanted = self.position, set(wanted)
        made = self._make_again(sorted(wanted))
        for entry in made:
            if entry in self.recompute and entry not in self.chosen and entry not in wanted:
                self._drop(entry)
        made = [entry for entry in made if entry in self.chosen]
        self.absent_bytes -= sum(self.size[entry] for entry in made)
        if len(self.steps) > MOST_RUNS * len(self.order):
            return
        kept = [entry for entry in made if entry not in wanted]
        for entry in sorted(kept, key=lambda e: self._next(e, now), reverse=True):
            if self.live[now] - self.absent_bytes <= self.target_bytes:
                return
            self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        super()._drop(entry)
        if entry in self.chosen:
            self.absent_bytes += self.size[entry]

    def _next(self, entry: Entry, now: int) -> int:
        """The next position of the plain order at which backward reads a value."""
        reads = self.next_read[entry]
        while reads and reads[-1] < now:
            reads.pop()
        return reads[-1] if reads else len(self.order)
