"""Random plans: the verifier agrees with a judge that looks at every byte and every pair of instructions."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.plan.verify import VerificationError, verify

from .oracle import faults, play
from .random_plans import corruption, random_plan

seeds = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_random_right_plans_are_verified_and_run_right_in_any_interleaving(seed: int) -> None:
    plan = random_plan(seed)
    assert faults(plan) == []
    verify(plan)
    assert [play(plan, k) for k in range(3)] == [0, 0, 0]


@settings(max_examples=300, deadline=None)
@given(seeds, seeds)
def test_a_corruption_is_caught_exactly_when_it_matters(seed: int, change: int) -> None:
    plan = corruption(random_plan(seed), change)
    wrong = faults(plan)
    try:
        verify(plan)
    except VerificationError as error:
        assert wrong, f"refused without a reason: {error}"
    else:
        assert wrong == []
        assert [play(plan, k) for k in range(3)] == [0, 0, 0]


def test_corruptions_of_every_kind_are_both_caught_and_let_pass() -> None:
    """The property above is not empty: many corruptions matter, and some do not."""
    caught = [bool(faults(corruption(random_plan(seed), seed))) for seed in range(80)]
    assert 20 < sum(caught) < 80


def test_the_judge_sees_a_race_in_some_interleaving() -> None:
    """The player is not blind: plans with unordered accesses do go wrong in it."""
    wrong = 0
    for seed in range(200):
        plan = corruption(random_plan(seed), seed)
        found = faults(plan)
        if found and all("not ordered" in fault for fault in found):
            wrong += any(play(plan, k) for k in range(10))
    assert wrong > 0
