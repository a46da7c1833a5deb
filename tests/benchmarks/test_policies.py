"""How the policy benchmark compares: the fastest that fits, ratios over the best of the others."""
from __future__ import annotations

import math

from benchmarks.policies import CASES, OURS, Curve, _curve, measure, ratios
from minigraph.memory.policies import POLICIES, Candidate
from minigraph.memory.schedule import Schedule


def curve(policy: str, *seconds: float | None) -> Curve:
    return Curve("net", policy, list(range(len(seconds))), list(seconds), [None] * len(seconds), 1, 0.0)


def test_a_ratio_is_over_the_best_of_the_others_where_one_of_them_fits() -> None:
    curves = [curve(OURS[0], None, None, 3.0, 2.0), curve(OURS[1], 1.0, 1.0, 1.0, 1.0),
              curve("a", None, 9.0, 4.0, 2.0), curve("b", None, None, 2.0, 3.0)]
    assert ratios(curves, OURS[0]) == [math.inf, 1.5, 1.0]


def test_at_each_budget_the_fastest_candidate_that_fits_is_taken() -> None:
    candidates = [Candidate(Schedule(()), 30, 1.0), Candidate(Schedule(()), 20, 2.0), Candidate(Schedule(()), 10, 3.0)]
    found = _curve("net", "a", [5, 10, 25, 40], candidates, 0.0)
    assert found.seconds == [None, 3.0, 2.0, 1.0] and found.peaks == [None, 10, 20, 30]


def test_the_full_search_is_beaten_by_no_policy_on_a_small_network() -> None:
    curves = measure(next(case for case in CASES if case.name == "lenet"))
    assert {c.policy for c in curves} == {*POLICIES, OURS[1]}
    assert max(ratios(curves, OURS[1]), default=1.0) <= 1.0
