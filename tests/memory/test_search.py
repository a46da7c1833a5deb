"""The search entry by entry, and what a full search of `auto` promises."""
from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import minigraph as mx
from minigraph.memory.policies import POLICIES, judge
from minigraph.memory.policies.auto import auto
from minigraph.memory.policies.search import MOST_RUNS, WORK, _by_worth, _values, candidates
from minigraph.memory.schedule import Recomputation
from minigraph.planning import plan
from tests.memory.problems import problem_of
from tests.memory.test_policies import chain, convolutional


def small() -> mx.sym.Symbol:
    """A block that parts and joins, with layers of different sizes."""
    h = mx.sym.Variable("data")
    for k, width in enumerate((96, 32, 128)):
        h = mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=width, name=f"fc{k}"), act_type="tanh")
    left, right = mx.sym.sigmoid(h), mx.sym.tanh(h)
    return mx.sym.MakeLoss(mx.sym.sum(left * right + h))


def test_no_set_of_values_made_again_once_beats_the_search() -> None:
    problem = problem_of(small(), {"data": (64, 48)})
    found = judge(problem, candidates(problem))
    values = _values(problem)
    assert 4 <= len(values) <= 10
    for count in range(len(values) + 1):
        for kept in combinations(values, count):
            schedule = Recomputation(problem.facts, problem.droppable - set(kept)).schedule()
            other = problem.quick(schedule)
            within = [each.seconds for each in found if each.peak_bytes <= other.peak_bytes]
            assert within and min(within) <= other.seconds * 1.02


def test_the_search_keeps_to_its_work() -> None:
    problem = problem_of(convolutional(6), {"data": (4, 3, 8, 8)})
    assert sum(len(schedule) for schedule in candidates(problem)) <= 3 * WORK


def test_giving_up_by_worth_takes_steps_in_proportion_to_depth() -> None:
    problem = problem_of(chain(60, width=64), {"data": (256, 64)})
    lengths = [len(schedule) for schedule in _by_worth(problem)]
    assert lengths and max(lengths) <= MOST_RUNS * len(problem.order)


@pytest.mark.parametrize("host", [None, "1GiB"])
def test_a_full_search_is_slower_than_no_policy_at_any_budget(host: str | None) -> None:
    symbol, shapes = convolutional(3), {"data": (8, 3, 16, 16)}

    def seconds(memory: str, budget: int, **options: str) -> float:
        try:
            made = plan(symbol, shapes, "sgd", "step", memory, budget=budget, host_budget=host, verify=False, **options)
        except mx.MXNetError:  # it does not fit, or has no room to swap to
            return float("inf")
        return made.figures.step_seconds
    plain = plan(symbol, shapes, "sgd", "step", "plain").planned_bytes
    for budget in np.linspace(0.55 * plain, plain, 3)[:2].astype(int).tolist():
        best = min(seconds(memory, budget) for memory in POLICIES)
        assert seconds("auto", budget, search="full") <= best


def test_the_default_search_is_near_the_full_one() -> None:
    problem = problem_of(chain(6, width=64), {"data": (256, 64)})
    default = auto(problem)
    full = POLICIES["auto"].offer(problem, free=False, search="full")
    least, most = (limit(c.peak_bytes for c in default) for limit in (min, max))
    ratios = []
    for budget in np.linspace(least, most, 8):
        taken = [min(c.seconds for c in found if c.peak_bytes <= budget) for found in (default, full)]
        assert taken[1] <= taken[0]
        ratios.append(taken[0] / taken[1])
    assert np.mean(ratios) <= 1.03


def test_an_unknown_search_is_refused_by_name() -> None:
    with pytest.raises(mx.MXNetError, match="there is no search 'wide'; choose from default, full"):
        plan(chain(2), {"data": (4, 8)}, "sgd", "step", "auto", budget="1GiB", search="wide")


def test_executors_and_modules_hand_the_search_on() -> None:
    executor = convolutional(2).simple_bind(mx.cpu(), budget="1GiB", search="full", data=(2, 3, 8, 8))
    assert executor.options.memory.search == "full"
    larger = executor.reshape(partial_shaping=True, allow_up_sizing=True, data=(4, 3, 8, 8), softmax_label=(4,))
    assert larger.options.memory.search == "full"
    module = mx.mod.Module(convolutional(2), budget="1GiB", search="full")
    module.bind([("data", (2, 3, 8, 8))], [("softmax_label", (2,))])
    module.init_params()
    assert all(each.options.memory.search == "full" for each in module._executors.values())


def test_auto_holds_the_searched_schedules() -> None:
    problem = problem_of(small(), {"data": (64, 48)})
    found = auto(problem)
    for other in judge(problem, candidates(problem)):
        assert min(c.seconds for c in found if c.peak_bytes <= other.peak_bytes) <= other.seconds
