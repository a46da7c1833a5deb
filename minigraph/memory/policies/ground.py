"""What plays of one problem share: live bytes, readers, and which values are dear.

Values are ranked by the bytes that computing them again saves for each second of it, all their dropped ancestors
counted (the measure of Capuchin, Peng et al. 2020).
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

import numpy as np

from ...base import Entry
from ..schedule import from_order, replayed
from .lineage import Lineages
from .problem import Problem
from .versions import Lists

OF_MEMORY = (0.97, 0.9)
"""Shares of the machine's own memory that are the first targets; the rest is for what packing loses."""
LEAST_SHARE = 1 / 65_536
"""Share of the peak below which a value is too small to be worth a decision."""

FEW = 8
"""Values made from one, and values that each of them is made from, up to which they are counted one by one: about so
many cost as much as a column of them, on chains of diamonds and on fans of fans."""


class Ground:
    """What all plays of one problem share: live bytes, readers, and the ranking of values.

    `managed` are the values that may leave; `begins` is the step of plain order that makes each, of an input the first
    that reads it, and `ends` the last one that reads it.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.live = problem.live(from_order(problem.order))
        self.peak_bytes = int(self.live.max(initial=0))
        least = max(self.peak_bytes * LEAST_SHARE, 1)
        managed = {e for e in problem.droppable if problem.size_bytes[e] >= least}
        self.inputs = self._inputs(least)
        """Inputs that wait for backward. Nothing makes one again, so that each leaves by host memory or not at all."""
        self.managed = frozenset(managed - replayed(problem.graph, managed)) | self.inputs
        self.position = {node: t for t, node in enumerate(problem.order)}
        self.readers: dict[Entry, list[int]] = {e: [] for e in self.managed}
        for t, node in enumerate(problem.order):
            for entry in self.managed.intersection(problem.reads[node]):
                self.readers[entry].append(t)
        self.entries = sorted(self.managed)
        self.at = {entry: k for k, entry in enumerate(self.entries)}
        """The place of each managed value among all, by their numbers."""
        sources = [self._sources(e) for e in self.entries]
        self.terms = Lists.of([k, *(len(sources) + source for source in found)] for k, found in enumerate(sources))
        """For each managed value, by its place, that place, and behind all places those of what it is made from."""
        self.users = self._users(sources)
        """For each managed value, by its place, the places of those that are made from it."""
        self.has_few = [max([len(users), *(len(sources[user]) for user in users)]) <= FEW for users in self.users]
        """Whether those are few, and each of them is made from few."""
        self.begins = {e: found[0] if e in self.inputs else self.position[problem.graph.node_of[e]]
                       for e, found in self.readers.items()}
        self.ends = {e: max([self.begins[e], *found]) for e, found in self.readers.items()}
        self.starts = [0.0, *np.cumsum([problem.seconds[node] for node in problem.order]).tolist()]
        self.saved = [e for e in problem.saved if e in self.managed]
        made = Counter(problem.graph.node_of[e] for e in self.managed)
        self.alone = {e for e in self.saved if made[problem.graph.node_of[e]] == 1}
        """Saved values that no other one is made with: only they are copied, as a node may not run again while one that
        it makes is under way."""
        self.again = {e: self.seconds_alone(e) for e in self.managed}
        """Seconds to compute each value again, with what it needs that was ranked before it."""
        self.ranked = self._ranked()

    def seconds_alone(self, entry: Entry) -> float:
        """Seconds to compute a value again from what its node reads; no time is enough for an input."""
        return float("inf") if entry in self.inputs else self.problem.seconds[self.problem.graph.node_of[entry]]

    def _inputs(self, least_bytes: float) -> frozenset[Entry]:
        """The inputs, of so many bytes or more, that both forward and backward read; none where nothing can be copied
        out, for then they cannot leave."""
        problem, graph = self.problem, self.problem.graph
        if not problem.host_budget_bytes:
            return frozenset()
        found = {graph.first[i] for i in graph.variables()}.difference(problem.variables)
        for part in (problem.forward, problem.order[problem.backward_start:]):
            found.intersection_update(e for node in part for e in problem.reads[node])
        return frozenset(e for e in found if problem.size_bytes[e] >= least_bytes)

    def _sources(self, entry: Entry) -> list[int]:
        """The places of what a managed value is made from."""
        if entry in self.inputs:
            return []
        return [self.at[e] for e in self.problem.reads[self.problem.graph.node_of[entry]] if e in self.managed]

    @staticmethod
    def _users(sources: Sequence[Sequence[int]]) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in sources]
        for user, found in enumerate(sources):
            for source in found:
                users[source].append(user)
        return users

    def _ranked(self) -> list[Entry]:
        """Saved values, those first that save most bytes for a second; later ones count what earlier ones leave to be
        done."""
        size, lineages = self.problem.size_bytes, Lineages(self.problem)
        heap = [(lineages.seconds(e) / size[e], e) for e in self.saved]
        heapify(heap)
        ranked = []
        while heap:
            rate, entry = heap[0]
            seconds = lineages.seconds(entry)
            if seconds / size[entry] > rate:
                heapreplace(heap, (seconds / size[entry], entry))
                continue
            heappop(heap)
            if seconds < float("inf"):
                lineages.choose(entry)
                self.again[entry] = seconds
                ranked.append(entry)
        return ranked

    def dear(self, share: float) -> frozenset[Entry]:
        """The values that cost most to compute again, as many as that share of forward's time can copy out."""
        left = share * self.starts[self.problem.backward_start] * self.problem.machine.copy_out
        found = self.alone.difference(self.ranked) if share else set()
        left -= sum(self.problem.size_bytes[e] for e in found)
        for entry in [e for e in reversed(self.ranked) if e in self.alone]:
            left -= self.problem.size_bytes[entry]
            if left < 0:
                break
            found.add(entry)
        return frozenset(found)

    def targets(self, count: int) -> list[int]:
        """Sizes below the plain peak: of the machine's memory first, then `count` geometric steps from what no choice
        goes below upwards."""
        ratio = self._lowest() / max(self.peak_bytes, 1)
        steps = [int(self.peak_bytes * ratio ** (k / count)) for k in range(count, 0, -1)]
        return list(dict.fromkeys([*self.own_targets(OF_MEMORY), *(t for t in steps if t < self.peak_bytes)]))

    def own_targets(self, shares: Sequence[float]) -> list[int]:
        """Shares of the machine's own memory, those that are below the plain peak and that some choice goes below."""
        lowest = self._lowest()
        own = [int(share * self.problem.machine.memory_bytes) for share in shares]
        return [target for target in own if lowest < target < self.peak_bytes]

    def _lowest(self) -> int:
        """The most that lives at a step when every managed value but inputs is away that the step does not use: so
        sizes are the same with host memory and without."""
        away = np.zeros(len(self.live) + 1, dtype=np.int64)
        size = self.problem.size_bytes
        for entry in self.managed - self.inputs:
            end, steps = self.ends[entry], [self.begins[entry], *self.readers[entry]]
            away[steps[0]] += size[entry]
            away[end + 1] -= size[entry]
            for t in set(steps):
                away[t] -= size[entry]
                away[t + 1] += size[entry]
        return int((self.live - np.cumsum(away)[:-1]).max(initial=0))
