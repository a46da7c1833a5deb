"""The loss scale's ops: factors of gradients, what is found not to be finite, and updates that are left out."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops import get_op, names
from minigraph.ops.control import LOSS_SCALE, RESCALE, control_size, get_key, set_key
from minigraph.ops.optimizer import Update
from minigraph.ops.pointwise import BLOCK

from .harness import execute, parsed, run


def control(scale):
    words = np.full(control_size(1), np.nan, np.float32)
    words[LOSS_SCALE] = scale
    return words


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaling_and_undoing_it_give_the_gradient_back_bit_for_bit(dtype):
    gradient = np.random.default_rng(0).normal(0, 1, (5, BLOCK // 4 + 1)).astype(dtype)
    op = get_op("_scale_gradient")
    scaled, = execute(op, parsed(op, {}), [gradient, control(2.0 ** 10)])
    back, = execute(op, parsed(op, {"inverse": True}), [scaled, control(2.0 ** 10)])
    assert scaled.dtype == dtype and np.array_equal(back, gradient)
    assert np.array_equal(scaled, gradient * dtype(2.0 ** 10))


def test_a_half_precision_gradient_is_scaled_in_float32():
    # The scale itself is above the largest float16, and the products are not.
    op, small = get_op("_scale_gradient"), np.array([2.0 ** -20, 0.5, 1.0], np.float16)
    with np.errstate(over="ignore"):
        scaled, = execute(op, parsed(op, {}), [small, control(2.0 ** 16)])
    assert scaled.tolist() == [2.0 ** -4, 2.0 ** 15, np.inf]


@pytest.mark.parametrize("size", [1, 7, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_one_number_that_is_not_finite_is_found_wherever_it_is(size, bad):
    array = np.full(size, np.finfo(np.float32).max, np.float32)
    assert run("_find_nonfinite", {}, [array])[0].tolist() == [0]
    for place in {0, size // 2, size - 1}:
        spoiled = array.copy()
        spoiled[place] = bad
        assert run("_find_nonfinite", {}, [spoiled])[0].tolist() == [1], place


def test_what_was_found_before_is_kept():
    for before, bad, after in ((0, 1.0, 0), (1, 1.0, 1), (0, np.nan, 1), (1, np.nan, 1)):
        array = np.array([1, bad, 2])
        assert run("_find_nonfinite", {"goes_on": True}, [array, np.array([before], np.float32)])[0].tolist() == [after]


def test_nothing_is_found_in_an_empty_tensor():
    assert run("_find_nonfinite", {}, [np.zeros((0, 3))])[0].tolist() == [0]


@pytest.mark.parametrize("scaled, found, want", [(True, 0, 2.0 ** -7), (False, 0, 1), (True, 1, 0), (False, 1, 0)])
def test_the_check_says_what_undoes_the_scale_or_0(scaled, found, want):
    state, number = np.array([np.nan], np.float32), np.array([found], np.float32)
    assert run("_check_finite", {"scaled": scaled}, [state, number, control(2.0 ** 7)])[0].tolist() == [want]


UPDATES = [name for name in names() if isinstance(get_op(name), Update)]


@pytest.mark.parametrize("name", UPDATES)
def test_every_update_is_that_of_the_gradient_without_the_scale_and_is_left_out_for_0(name):
    op = get_op(name)
    rng = np.random.default_rng(1)
    tensors = [rng.uniform(0.5, 0.6, (3, 50)).astype(np.float32) for _ in range(2 + len(op.states))]
    words = rng.uniform(0.1, 0.2, control_size(1)).astype(np.float32)
    want = run(name, {"index": 0}, [*tensors, words])
    scaled = [tensors[0], tensors[1] * np.float32(2.0 ** 12), *tensors[2:]]
    got = run(name, {"index": 0, "has_unscale": True}, [*scaled, words, np.array([2.0 ** -12], np.float32)])
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    for number in (np.inf, np.nan):
        scaled[1][1, 3] = number
        kept = run(name, {"index": 0, "has_unscale": True}, [*scaled, words, np.zeros(1, np.float32)])
        changed = [source for source, _ in op.mutates(op.Params(index=0))]
        assert all(np.array_equal(a, scaled[k]) for a, k in zip(kept, changed, strict=True))


def test_the_scale_of_the_norm_and_that_of_the_loss_both_count():
    rng = np.random.default_rng(1)
    words = rng.uniform(0.1, 0.2, control_size(1)).astype(np.float32)
    weight, grad = rng.normal(0, 1, (2, 40)).astype(np.float32)
    factors = [np.array([number], np.float32) for number in (0.75, 2.0 ** -3)]
    clipped = {"index": 0, "has_scale": True}
    both, = run("_sgd_update", {**clipped, "has_unscale": True}, [weight, grad * 8, words, *factors])
    one, = run("_sgd_update", clipped, [weight, grad, words, factors[0]])
    assert np.array_equal(both, one)


def test_a_sum_of_squares_is_that_of_the_gradient_without_the_scale():
    gradient = np.random.default_rng(2).normal(0, 1e-18, (3, BLOCK)).astype(np.float32)
    want, = run("_sum_squares", {}, [gradient])
    got, = run("_sum_squares", {"scaled": True}, [gradient * np.float32(2.0 ** 100), control(2.0 ** 100)])
    assert np.array_equal(want, got)


def test_a_random_key_leaves_the_scale_alone():
    words = control(64.0)
    words[RESCALE] = 3.0
    set_key(words, 0x123456789ABC, 7)
    assert get_key(words) == (0x123456789ABC, 7) and words[LOSS_SCALE] == 64.0 and words[RESCALE] == 3.0
