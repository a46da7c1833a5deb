"""What a policy is given: an ordered graph with sizes and times, and a quick count that judges schedules."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...base import Entry
from ...graph.graph import Graph
from ..machine import Machine
from ..schedule import RUN, Facts, Schedule, read_roots, root_of

WORK = 20_000
"""Nodes of a graph up to which all that policies list is tried; of larger ones a part, so that the schedules together
have about as many steps as those of a graph of this size, and planning takes longer by what each pass takes alone."""


@dataclass(frozen=True)
class Evaluation:
    """What a schedule takes: peak live bytes of both arenas, and seconds of a step on the machine asked for."""

    peak_bytes: int
    seconds: float
    host_bytes: int = 0


@dataclass(frozen=True)
class Slicing:
    """How a graph is cut along the batch: into about `slices`, where a tensor of a node has `least_bytes` or more.

    `together` lets backward nodes of a slice run before forward nodes of the next one; else forward comes first.
    """

    slices: int
    least_bytes: int = 0
    together: bool = False


@dataclass(frozen=True)
class Problem:
    """An ordered graph. `order` lists the nodes that run, forward before `backward_start`; `seconds` are those of each
    node, `size_bytes` those of each entry, aligned. `quick` gives peak and time of a schedule for searches, and `live`
    the live bytes of both arenas at each of its steps; whoever asked for the schedules judges the finalists by the
    passes that carry them out. `variables` outlive the program, and `settled` are those of them whose home is outside
    the device already. Copies go to `swap_space`: "host" or "file".
    """

    graph: Graph
    order: Sequence[int]
    backward_start: int
    seconds: Sequence[float]
    size_bytes: Sequence[int]
    quick: Callable[[Schedule], Evaluation]
    live: Callable[[Schedule], NDArray[np.int64]]
    machine: Machine
    host_budget_bytes: int = 0
    variables: Sequence[Entry] = ()
    settled: frozenset[Entry] = frozenset()
    swap_space: str = "host"
    sliced: Callable[[Slicing], Problem | None] = lambda slicing: None
    """The same program in slices of the batch; None where nothing in it can be cut so."""

    def copy_out_seconds(self, entry: Entry) -> float:
        """Time of a copy of a value to host memory."""
        return self.copy_seconds[0][self.size_bytes[entry]]

    def copy_in_seconds(self, entry: Entry) -> float:
        """Time of a copy of a value back."""
        return self.copy_seconds[1][self.size_bytes[entry]]

    @cached_property
    def copy_seconds(self) -> tuple[dict[int, float], dict[int, float]]:
        """Times of copies out and in by their bytes: policies ask for them at each step, and sizes are few."""
        sizes, machine, space = set(self.size_bytes), self.machine, self.swap_space
        return ({nbytes: machine.copy_out_seconds(nbytes, space) for nbytes in sizes},
                {nbytes: machine.copy_in_seconds(nbytes, space) for nbytes in sizes})

    def is_costly(self, entry: Entry) -> bool:
        """Whether the op that makes an entry is costly to run again."""
        op = self.graph.op[self.graph.node_of[entry]]
        return op is not None and op.recompute == "costly"

    @property
    def part(self) -> float:
        """The part of each list of choices that is tried on a graph of this size."""
        return min(WORK / max(len(self.order), 1), 1.0)

    def few(self, most: int, least: int = 0) -> int:
        """So many of `most` choices, and no fewer than `least` of them."""
        return min(max(int(self.part * most), least), most)

    @cached_property
    def host_bytes_beside_homes(self) -> int:
        """What the host budget leaves for swapped values when all variables are at home there."""
        return self.host_budget_bytes - sum(self.size_bytes[e] for e in self.variables if e not in self.settled)

    @cached_property
    def forward(self) -> tuple[int, ...]:
        """The forward nodes in order."""
        return tuple(self.order[:self.backward_start])

    @cached_property
    def reads(self) -> dict[int, tuple[Entry, ...]]:
        """For each node that runs the entries whose contents it reads, as the entries that views show."""
        return {node: tuple(read_roots(self.graph, node)) for node in self.order}

    def changes(self, node: int) -> set[Entry]:
        """The variables that a node changes."""
        graph, op = self.graph, self.graph.op[node]
        assert op is not None
        return {root_of(graph, graph.inputs[node][source]) for source, _ in op.mutates(graph.params[node])}

    @cached_property
    def changed_for(self) -> NDArray[np.int64]:
        """Rows (node that changes a variable, another node that reads the variable)."""
        readers: dict[Entry, list[int]] = {}
        for node in self.order:
            for entry in self.reads[node]:
                readers.setdefault(entry, []).append(node)
        pairs = [(node, reader) for node in self.order for entry in self.changes(node)
                 for reader in readers.get(entry, ()) if reader != node]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @cached_property
    def facts(self) -> Facts:
        """What all schedules that recompute go by."""
        return Facts(self.graph, self.order, self.backward_start, self.reads)

    @cached_property
    def alike(self) -> dict[tuple[Slicing, bool], list[Candidate]]:
        """Candidates in slices that somebody asked for alone, by how they are cut and whether homes may move."""
        return {}

    @cached_property
    def saved(self) -> tuple[Entry, ...]:
        """Forward values that backward reads, in order: what there is to decide about."""
        read = {e for node in self.order[self.backward_start:] for e in self.reads[node]}
        return tuple(e for node in self.forward for e in self.graph.entries(node) if e in read)

    @cached_property
    def droppable(self) -> frozenset[Entry]:
        """Forward values that may be dropped and made again: no outputs, no states, nothing that never runs twice."""
        graph = self.graph
        kept = {root_of(graph, e) for e in (*graph.outputs, *graph.heads)}
        result: set[Entry] = set()
        for node in self.forward:
            op, params = graph.op[node], graph.params[node]
            if op is not None and op.recompute != "never" and not op.mutates(params):
                result.update(e for e in graph.entries(node) if e not in kept)
        return frozenset(result)


@dataclass(frozen=True)
class Candidate:
    """A schedule that a policy offers, and what it takes. `graph` is the one that it orders, where that is not the
    graph that the policy was asked about but one in slices, and `slicing` how that is cut."""

    schedule: Schedule
    peak_bytes: int
    seconds: float
    host_bytes: int = 0
    graph: Graph | None = None
    slicing: Slicing | None = None


Policy = Callable[[Problem], "list[Candidate]"]
"""From a problem to candidate schedules. The list does not depend on a budget: the fastest that fits is taken, so time
never rises with the budget, and memory never with its falling."""


def repeats_alike(problem: Problem, schedule: Schedule) -> bool:
    """Whether no node runs again after something that it reads was changed."""
    order = schedule.operands(RUN)
    last, runs = np.zeros(len(problem.graph), np.int64), np.bincount(order, minlength=len(problem.graph))
    last[order] = np.arange(len(order))
    changers, readers = problem.changed_for.T
    return not bool(((runs[readers] > 1) & (last[readers] > last[changers])).any())


def judge(problem: Problem, schedules: Iterable[Schedule]) -> list[Candidate]:
    """Candidates from schedules, by the quick count: those within the host budget that no other one beats in both peak
    and time. Schedules that make a value again from a variable's new value are none."""
    left: list[Candidate] = []
    for schedule in schedules:
        if not repeats_alike(problem, schedule):
            continue
        found = problem.quick(schedule)
        if found.host_bytes <= problem.host_budget_bytes:
            _join(left, Candidate(schedule, found.peak_bytes, found.seconds, found.host_bytes))
    return left


def judge_beside_homes(problem: Problem, schedules: Iterable[Schedule]) -> list[Candidate]:
    """As `judge`, and besides those that nothing beats which leaves host memory for all variables, and those that
    nothing beats which swaps nothing: a schedule that swaps more may be better in peak and time, and yet have no room
    there for homes."""
    limits = {problem.host_budget_bytes, problem.host_bytes_beside_homes, 0}
    fronts: dict[int, list[Candidate]] = {limit: [] for limit in limits if limit <= problem.host_budget_bytes}
    for schedule in schedules:
        if not repeats_alike(problem, schedule):
            continue
        found = problem.quick(schedule)
        candidate = Candidate(schedule, found.peak_bytes, found.seconds, found.host_bytes)
        for limit, left in fronts.items():
            if found.host_bytes <= limit:
                _join(left, candidate)
    known = {id(candidate): candidate for left in fronts.values() for candidate in left}
    return sorted(known.values(), key=lambda c: (c.seconds, c.peak_bytes, c.host_bytes))


def front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of the candidates that no other one beats in both peak and time, the fastest first."""
    left: list[Candidate] = []
    for candidate in candidates:
        _join(left, candidate)
    return left


def _join(left: list[Candidate], candidate: Candidate) -> None:
    """Put a candidate into a front, by rising time and falling peak, unless one of it is as good in both; those that
    it beats leave. So no more schedules are held than are worth it."""
    at = bisect_right(left, (candidate.seconds, candidate.peak_bytes), key=lambda c: (c.seconds, c.peak_bytes))
    if at and left[at - 1].peak_bytes <= candidate.peak_bytes:
        return
    beaten = at
    while beaten < len(left) and left[beaten].peak_bytes >= candidate.peak_bytes:
        beaten += 1
    left[at:beaten] = [candidate]
