"""`auto` over budgets: its default search beside the full one, and larger budgets of the device and of the host."""
from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace

import pytest

import minigraph as mx
from minigraph.memory.policies import POLICIES, Candidate, Evaluation, Problem
from minigraph.memory.policies.parameters import FORMS, Homes, _by_traffic
from minigraph.memory.schedule import Schedule, from_order
from tests.memory.problems import problem_of
from tests.memory.test_policies import chain
from zoo import lenet, resnet, squeezenet

BUDGETS = 20
MOST_OVER_FULL = 1.03
HOST_SHARES = (0.0, 0.02, 0.1, 0.5, 2.0)
"""Host budgets over the peak of the plain order."""
NETWORKS = {"residual": (lambda: resnet.get_symbol(num_classes=10, depth=14, image_shape=(3, 16, 16)), (64, 3, 16, 16)),
            "lenet": (lambda: lenet.get_symbol(num_classes=10), (64, 1, 28, 28))}


def seconds(candidates: Sequence[Candidate], budget: float) -> float:
    """Those of the fastest candidate within a budget, or infinity."""
    return min((c.seconds for c in candidates if c.peak_bytes <= budget), default=float("inf"))


def budgets(problem: Problem, candidates: Sequence[Candidate]) -> list[float]:
    """Evenly from the least that a candidate takes to what plain takes."""
    least, most = min(c.peak_bytes for c in candidates), problem.quick(from_order(problem.order)).peak_bytes
    return [least + (most - least) * k / (BUDGETS - 1) for k in range(BUDGETS)]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_default_search_is_within_three_hundredths_of_the_full_one(network: str) -> None:
    build, shape = NETWORKS[network]
    problem = problem_of(build(), {"data": shape}, host_budget="1TiB", machine="V100")
    default, full = (POLICIES["auto"].offer(problem, True, search) for search in ("default", "full"))
    ratios = [seconds(default, budget) / seconds(full, budget) for budget in budgets(problem, full)]
    assert 1.0 <= max(ratios) <= MOST_OVER_FULL, ratios


def test_the_default_search_swaps_what_the_links_hide_before_it_computes_anything_again() -> None:
    symbol = squeezenet.get_symbol(num_classes=1000, version="1.1")
    problem = problem_of(symbol, {"data": (32, 3, 224, 224)}, host_budget="1TiB", machine="V100")
    default, capuchin = (POLICIES[policy].offer(problem, False) for policy in ("auto", "capuchin"))
    ratios = [seconds(default, budget) / seconds(capuchin, budget) for budget in budgets(problem, capuchin)]
    assert max(ratios) <= 1.001, ratios


def test_the_schedules_of_a_graph_four_times_as_large_have_hardly_more_steps(monkeypatch) -> None:
    """From where only a part of all choices is tried on, and without what is only for small graphs."""
    monkeypatch.setattr(importlib.import_module("minigraph.memory.policies.problem"), "WORK", 800)
    for module, name in (("hybrid", "WORK"), ("search", "WORK"), ("search", "LARGE"), ("auto", "COLLECTIVE_WORK")):
        monkeypatch.setattr(importlib.import_module(f"minigraph.memory.policies.{module}"), name, 1)
    steps = []
    for depth in (150, 600):
        problem, seen = problem_of(chain(depth, width=16), {"data": (256, 16)}, host_budget="1GiB"), list[int]()

        def counted(schedule: Schedule, problem: Problem = problem, seen: list[int] = seen) -> Evaluation:
            seen.append(len(schedule))
            return problem.quick(schedule)
        POLICIES["auto"].candidates(replace(problem, quick=counted))
        steps.append(sum(seen))
    assert steps[1] < 2 * steps[0]


def test_a_larger_host_budget_is_never_slower_and_never_needs_more_of_the_device() -> None:
    build, shape = NETWORKS["residual"]
    plain = problem_of(build(), {"data": shape}, machine="V100")
    most = plain.quick(from_order(plain.order)).peak_bytes
    given = [replace(plain, host_budget_bytes=int(share * most)) for share in HOST_SHARES]
    offered = [POLICIES["auto"].offer(problem, True) for problem in given]
    for smaller, larger in zip(offered, offered[1:], strict=False):
        assert min(c.peak_bytes for c in larger) <= min(c.peak_bytes for c in smaller)
        for budget in budgets(plain, smaller):
            assert seconds(larger, budget) <= seconds(smaller, budget)


def test_variables_read_all_along_a_recurrence_are_sent_away_late_by_short_stays_alone() -> None:
    h = mx.sym.Variable("data")
    turns = [mx.sym.Variable(name) for name in ("a_weight", "b_weight", "c_weight")]
    for k in range(12):
        h = mx.sym.FullyConnected(h, weight=turns[k % 3], num_hidden=64, no_bias=True, name=f"step{k}")
    h = mx.sym.FullyConnected(h, num_hidden=64, no_bias=True, name="own")
    problem = problem_of(mx.sym.MakeLoss(mx.sym.sum(h)), {"data": (8, 64)}, host_budget="1GiB")
    own = problem.graph.first[problem.graph.variable("own_weight")]
    read = [problem.graph.first[problem.graph.variable(name)] for name in ("a_weight", "b_weight", "c_weight")]
    homes, plain = Homes(problem), from_order(problem.order)
    short, long = (_by_traffic(problem, homes, plain, form.hold) for form in (FORMS[0], FORMS[-1]))
    assert all(short.index(own) < short.index(entry) for entry in read)
    assert any(long.index(own) > long.index(entry) for entry in read)
