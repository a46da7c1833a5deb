"""Which values are given up for so many bytes, and what `auto` makes of it."""
from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from minigraph.memory.policies import POLICIES, Candidate
from minigraph.memory.policies.knapsack import CELLS, cheapest
from minigraph.memory.policies.parameters import spread
from minigraph.memory.schedule import Schedule, from_order
from tests.memory.problems import problem_of
from zoo import mobilenet


@pytest.mark.parametrize("seed", range(5))
def test_a_choice_frees_what_is_asked_for_in_the_least_time(seed: int) -> None:
    r = np.random.default_rng(seed)
    parts = r.multinomial(CELLS, r.dirichlet(np.ones(8))).tolist()
    seconds = r.integers(1, 20, 8).tolist()
    choices = [c for count in range(9) for c in combinations(range(8), count)]
    for step, chosen in enumerate(cheapest([part * 64 for part in parts], seconds, 16), start=1):
        wanted = CELLS * step // 16
        assert sum(parts[k] for k in chosen) >= wanted
        least = min(sum(seconds[k] for k in c) for c in choices if sum(parts[k] for k in c) >= wanted)
        assert sum(seconds[k] for k in chosen) == least


def test_nothing_is_chosen_where_nothing_has_bytes() -> None:
    assert list(cheapest([], [], 2)) == [[], []]
    assert list(cheapest([0, 0], [1.0, 2.0], 2)) == [[], []]


def test_large_values_are_passed_over_where_smaller_ones_free_as_much_in_less_time() -> None:
    symbol = mobilenet.get_symbol(num_classes=1000, version=2)
    problem = problem_of(symbol, {"data": (64, 3, 224, 224)}, machine="P100", optimizer_params={"momentum": 0.9})
    plain = problem.quick(from_order(problem.order))
    found = POLICIES["auto"].offer(problem, True)
    assert min(c.peak_bytes for c in found if c.seconds <= 1.1 * plain.seconds) < 0.54 * plain.peak_bytes


def test_many_schedules_of_nearly_one_peak_do_not_take_the_place_of_others() -> None:
    peaks = [*range(1_000, 950, -1), 100, 10]
    front = [Candidate(Schedule(()), peak, float(k)) for k, peak in enumerate(peaks)]
    found = [c.peak_bytes for c in spread(front, 6)]
    assert found[0] == 1_000 and found[-2:] == [100, 10] and len(found) <= 6
    assert spread(front[:6], 6) == front[:6]
