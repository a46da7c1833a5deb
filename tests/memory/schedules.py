"""Schedules made by hand, for tests that must know what is recomputed or swapped."""
from __future__ import annotations

from collections.abc import Callable

from minigraph.base import Entry
from minigraph.memory.policies import Candidate, Problem, Strategy
from minigraph.memory.policies.cuts import find_cuts
from minigraph.memory.policies.swapping import absences, with_swaps
from minigraph.memory.schedule import DROP, RUN, Recomputation, Schedule, from_order, read_roots

Make = Callable[[Problem], Schedule]


def strategy(make: Make) -> Strategy:
    """A policy that always takes this schedule, whatever it costs."""
    def candidates(problem: Problem) -> list[Candidate]:
        schedule = make(problem)
        found = problem.quick(schedule)
        return [Candidate(schedule, found.peak_bytes, found.seconds, found.host_bytes)]
    return Strategy(candidates, "lowest")


def all_recomputed(problem: Problem) -> Schedule:
    """Everything that may be dropped is, and is made again once, from the inputs on."""
    return Recomputation(problem.facts, problem.droppable).schedule()


def in_stretches(count: int) -> Make:
    """Forward cut into so many stretches, as far as it has places to cut, each made again by itself."""
    def make(problem: Problem) -> Schedule:
        cuts = find_cuts(problem)
        chosen = {round((k + 1) * len(cuts) / count) for k in range(count - 1)}
        placed = [(0, cut.entries) for k, cut in enumerate(cuts) if k in chosen]
        return Recomputation(problem.facts, problem.droppable, placed).schedule()
    return make


def made_for_each_reader(problem: Problem) -> Schedule:
    """What may be dropped is made again for each backward node that reads it, and dropped right after."""
    graph, steps = problem.graph, []
    for node in problem.forward:
        steps.append((RUN, node))
    dropped = set(problem.droppable)
    steps += [(DROP, entry) for entry in sorted(dropped)]
    for node in problem.order[problem.backward_start:]:
        made: list[Entry] = []
        stack = [e for e in read_roots(graph, node) if e in dropped]
        while stack:
            missing = [e for e in read_roots(graph, graph.node_of[stack[-1]]) if e in dropped]
            if missing:
                stack += missing
                continue
            maker = graph.node_of[stack[-1]]
            if stack.pop() in dropped:
                steps.append((RUN, maker))
                made += graph.entries(maker)
                dropped.difference_update(graph.entries(maker))
        steps.append((RUN, node))
        again = problem.droppable.intersection(made)
        dropped |= again
        steps += [(DROP, entry) for entry in sorted(again)]
    return Schedule(tuple(steps))


def swapped(wanted: Callable[[str], bool], lead: int | None = None, eager: bool = True) -> Make:
    """Values with names that are wanted are away from their last forward reader to `lead` steps before backward's."""
    def make(problem: Problem) -> Schedule:
        plain = from_order(problem.order)
        chosen = {e for e in problem.droppable if wanted(problem.graph.entry_name(e))}
        return with_swaps(problem, plain, absences(problem, plain, chosen), eager=eager, lead=lead)
    return make
