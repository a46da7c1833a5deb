"""How the policy benchmark compares: the fastest that fits, ratios over the best of the others."""
from __future__ import annotations

import math

from benchmarks.policies import CASES, OURS, Curve, front, hard_budgets, measure, ratios, worst
from minigraph.memory.policies import POLICIES, Candidate
from minigraph.memory.schedule import Schedule


def curve(policy: str, *front: tuple[int, float]) -> Curve:
    return Curve("net", policy, list(front), len(front), 0.0)


def test_a_ratio_is_over_the_best_of_the_others_where_one_of_them_fits() -> None:
    curves = [curve(OURS[0], (30, 3.0), (40, 2.0)), curve(OURS[1], (10, 1.0)),
              curve("a", (20, 9.0), (30, 4.0), (40, 2.0)), curve("b", (30, 2.0))]
    assert ratios(curves, OURS[0], [10, 20, 30, 40]) == [math.inf, 1.5, 1.0]


def test_the_fastest_within_a_budget_is_taken_of_the_candidates_that_none_beats() -> None:
    found = front([Candidate(Schedule(()), *c) for c in ((30, 1.0), (20, 2.0), (10, 3.0), (25, 2.5))])
    assert found == [(10, 3.0), (20, 2.0), (30, 1.0)]
    assert [Curve("net", "a", found, 4, 0.0).within(budget) for budget in (5, 10, 25, 40)] == [None, 3.0, 2.0, 1.0]


def test_no_budget_is_harder_than_those_of_the_other_policies_own_peaks() -> None:
    curves = [curve(OURS[0], (15, 4.0), (22, 2.5), (40, 1.0)), curve("a", (20, 3.0), (40, 1.0)), curve("b", (18, 3.5))]
    assert hard_budgets(curves) == [18, 20]
    assert worst(curves, OURS[0]) == max(ratios(curves, OURS[0], range(1, 50))) == 4.0 / 3.0


def test_the_full_search_is_beaten_by_no_policy_on_a_small_network() -> None:
    curves = measure(next(case for case in CASES if case.name == "lenet"))
    assert {c.policy for c in curves} == {*POLICIES, OURS[1]}
    assert worst(curves, OURS[1]) <= 1.0
