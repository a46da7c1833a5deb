"""Problems as policies are given them, of small networks and of graphs made for a test."""
from __future__ import annotations

from typing import Any

from minigraph.graph.graph import Graph
from minigraph.memory.policies import POLICIES, Problem, Strategy, judge
from minigraph.memory.schedule import from_order
from minigraph.planning import plan


def problem_of(symbol: Any, shapes: dict[str, tuple[int, ...]], **options: Any) -> Problem:
    """The problem that compiling a step of a symbol hands to a policy."""
    caught: list[Problem] = []

    def catch(problem: Problem) -> list:
        caught.append(problem)
        return judge(problem, [from_order(problem.order)])
    before = dict(POLICIES)
    POLICIES["caught"] = Strategy(catch, "lowest")
    try:
        plan(symbol, shapes, "sgd", "step", "caught", verify=False, **options)
    finally:
        POLICIES.clear()
        POLICIES.update(before)
    return caught[0]


def node_named(graph: Graph, name: str) -> int:
    """The first node of a name."""
    return graph.name.index(name)
