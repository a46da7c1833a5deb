"""Update kernels give what NumPy gives, with and without a bound on the gradient and a scale."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.device.cpu.native.optimizer import _RULES
from minigraph.ops.optimizer import Update
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import check


@pytest.mark.parametrize("shape", [(7,), (3, 40), (40_003,), (0,)], ids=str)
@pytest.mark.parametrize("bound, scaled", [(-1.0, False), (0.3, True)])
@pytest.mark.parametrize("rule", [*_RULES, "nadam", "ftml", "lamb", "lars", "lars_mom"])
def test_updates_agree_with_numpy(rule: str, bound: float, scaled: bool, shape: tuple[int, ...]) -> None:
    name = f"_{rule}_update"
    op = get_op(name)
    assert isinstance(op, Update)
    params: dict[str, Any] = {"index": 1, "has_scale": scaled}
    if rule.startswith("rmsprop") and scaled:
        params["clip_weights"] = 0.8
    rng = np.random.default_rng(2)
    control = np.zeros(12, np.float32)
    control[4], control[5], control[10], control[11] = 0.5, bound, 0.1, 0.01
    # A mean square is at least the square of the mean.
    states = [rng.uniform(1.0, 1.5, shape)] + [rng.uniform(0.1, 0.5, shape) for _ in op.states[1:]]
    arrays = [rng.normal(0, 1, shape), rng.normal(0, 1, shape), *states[:len(op.states)], control]
    assert len(op.inputs(parsed(op, params))) == len(arrays) + scaled
    check(name, params, [*arrays, np.array([0.75])] if scaled else arrays, rtol=2e-6)


@pytest.mark.parametrize("count", [1, 2, 17, 1000, 10**6])
@pytest.mark.parametrize("params", [{}, {"beta1": 0.5, "beta2": 0.9, "schedule_decay": 0.1}], ids=str)
def test_the_schedule_of_nadam_agrees_with_numpy(params: dict[str, Any], count: int) -> None:
    rng, control = np.random.default_rng(3), np.zeros(10, np.float32)
    control[4], control[5], control[7], control[8] = 1, -1, count, 0.1
    arrays = [*rng.normal(0, 1, (3, 50)), rng.uniform(0.1, 0.5, 50), control]
    check("_nadam_update", {"index": 0, **params}, arrays, rtol=2e-6)


@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_the_sum_of_squares_agrees_with_numpy(size: int) -> None:
    check("_sum_squares", {}, [np.random.default_rng(0).normal(0, 1, size)], rtol=1e-7)


@pytest.mark.parametrize("size", [1, 37, 100_000])
@pytest.mark.parametrize("name, params, states", [
    ("_lamb_update", {}, 2), ("_lamb_update", {"bias_correction": False, "lower_bound": 1e6}, 2),
    ("_lamb_update", {"upper_bound": 0.25}, 2), ("_lars_update", {"eta": 0.5, "epsilon": 0.1}, 0),
    ("_lars_mom_update", {"eta": 0.5}, 1), ("_lars_mom_update", {"adapts": False}, 1)])
def test_norms_of_whole_tensors_agree_with_numpy(name: str, params: dict[str, Any], states: int, size: int) -> None:
    rng, control = np.random.default_rng(3), np.zeros(12, np.float32)
    control[4], control[5], control[7], control[10], control[11] = 0.5, 0.3, 3, 0.1, 0.01
    arrays = [*rng.normal(0, 1, (2, size)), *rng.uniform(0.1, 0.5, (states, size)), control]
    check(name, {"index": 1, **params}, arrays, rtol=2e-6)
    zeros = [np.zeros(size), arrays[1], *arrays[2:]]
    check(name, {"index": 1, **params}, zeros, rtol=2e-6)
