"""Random numbers of whole runs: what repeats them, and what must not."""
from __future__ import annotations

import numpy as np

import minigraph as mx


def masks(executor, runs, is_train=False):
    return [executor.forward(is_train=is_train)[0].asnumpy() for _ in range(runs)]


def bound(mode="always"):
    executor = mx.sym.Dropout(mx.sym.Variable("data"), p=0.5, mode=mode).simple_bind(mx.cpu(), data=(1, 64))
    executor.arg_dict["data"][:] = 1
    return executor


def test_each_evaluation_draws_anew_and_a_seed_repeats_them():
    executor = bound()
    mx.random.seed(3)
    first = masks(executor, 3)
    assert len({mask.tobytes() for mask in first}) == 3
    other = masks(bound(), 1)[0]
    assert not any(np.array_equal(other, mask) for mask in first)
    mx.random.seed(3)
    np.testing.assert_array_equal(masks(executor, 3), first)


def test_a_symbol_evaluated_twice_gives_two_samples():
    samples = [mx.sym.normal(shape=(8,)).eval()[0].asnumpy() for _ in range(2)]
    assert not np.array_equal(*samples)


def test_evaluations_between_training_steps_change_none_of_them():
    found = []
    for evaluations in (0, 2):
        mx.random.seed(3)
        executor, trained = bound(), []
        for _ in range(3):
            trained += masks(executor, 1, is_train=True)
            between = masks(executor, evaluations)
            assert not any(np.array_equal(mask, one) for mask in between for one in trained)
        found.append(trained)
    np.testing.assert_array_equal(*found)
