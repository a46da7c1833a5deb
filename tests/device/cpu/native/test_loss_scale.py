"""Kernels of the loss scale give what NumPy gives: factors, what is not finite, and updates that are left out."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.device.cpu.native.loss_scale import PART
from minigraph.device.cpu.native.optimizer import _RULES
from minigraph.ops.optimizer import Update
from minigraph.ops.registry import get_op

from .harness import check


def control(scale: float = 2.0 ** 16) -> np.ndarray:
    words = np.zeros(12, np.float32)
    words[3], words[4], words[5], words[8], words[9] = scale, 0.5, -1, 0.1, 0.01
    return words


@pytest.mark.parametrize("shape", [(7,), (2, 20, 5, 3), (40_003,), (0,)], ids=str)
@pytest.mark.parametrize("inverse", [False, True])
def test_factors_are_those_of_numpy_to_the_bit_in_every_layout(inverse: bool, shape: tuple[int, ...]) -> None:
    check("_scale_gradient", {"inverse": inverse}, [np.random.default_rng(0).normal(0, 1, shape), control()], rtol=0)


@pytest.mark.parametrize("size", [0, 1, 15, PART, PART + 1, 3 * PART + 5])
@pytest.mark.parametrize("bad", [np.float32(3.4028234e38), np.inf, -np.inf, np.nan, 1e-40])
def test_what_is_not_finite_is_found_as_in_numpy(bad: float, size: int) -> None:
    for place in {0, size // 2, size - 1} if size else {None}:
        array = np.random.default_rng(1).normal(0, 1, size).astype(np.float32)
        if place is not None:
            array[place] = bad
        check("_find_nonfinite", {}, [array], rtol=0)
        for found in (0.0, 1.0):
            check("_find_nonfinite", {"goes_on": True}, [array, np.array([found])], rtol=0)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_the_check_is_that_of_numpy(found: float, scaled: bool) -> None:
    check("_check_finite", {"scaled": scaled}, [np.array([np.nan]), np.array([found]), control()], rtol=0)


@pytest.mark.parametrize("rule", [*_RULES, "nadam"])
@pytest.mark.parametrize("unscale", [0.0, 2.0 ** -16])
def test_updates_undo_the_scale_or_change_nothing(unscale: float, rule: str) -> None:
    op, rng = get_op(f"_{rule}_update"), np.random.default_rng(2)
    assert isinstance(op, Update)
    tensors = [rng.normal(0, 1, 333), rng.normal(0, 1, 333) * 2.0 ** 16,
               *rng.uniform(1.0, 1.2, (min(len(op.states), 1), 333)), *rng.uniform(0.1, 0.5, (len(op.states[1:]), 333))]
    if unscale == 0:
        tensors[1][::5] = np.nan
    params = {"index": 0, "has_scale": True, "has_unscale": True}
    check(op.name, params, [*tensors, control(), np.array([0.75]), np.array([unscale])], rtol=2e-6 if unscale else 0)


def test_the_sum_of_squares_undoes_the_scale() -> None:
    gradient = np.random.default_rng(0).normal(0, 1e15, 100_000)
    check("_sum_squares", {"scaled": True}, [gradient, control(2.0 ** 50)], rtol=1e-7)
