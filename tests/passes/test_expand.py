"""States that several operators share are changed by one after the other."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError

MODES: dict[str, dict[str, Any]] = {
    "naive": {}, "plain": {}, "sublinear": {}, "vdnn_all": {"host_budget": "1GiB"}, "auto": {"host_budget": "1GiB"}}


def towers(**options: Any) -> mx.sym.Symbol:
    """Two normalisations, one behind the other, over the same variables."""
    shared = [mx.sym.Variable(name) for name in ("gamma", "beta", "mean", "var")]
    h = mx.sym.BatchNorm(mx.sym.Variable("x"), *shared, name="bn0", **options)
    return mx.sym.BatchNorm(mx.sym.tanh(h) * 3 + 1, *shared, name="bn1", **options)


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = 1e-3) -> np.ndarray:
    return (x - x.mean(0)) / np.sqrt(x.var(0) + eps) * gamma + beta


def loss(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, head: np.ndarray) -> float:
    """The sum of the head gradient times the output, in float64."""
    return float((head * normalised(np.tanh(normalised(x, gamma, beta)) * 3 + 1, gamma, beta)).sum())


def central(value: np.ndarray, of: Any, step: float = 1e-5) -> np.ndarray:
    """The gradient of a function by central differences."""
    found = np.empty_like(value)
    for at in np.ndindex(value.shape):
        high, low = value.copy(), value.copy()
        high[at] += step
        low[at] -= step
        found[at] = (of(high) - of(low)) / (2 * step)
    return found


@pytest.mark.parametrize("memory", MODES)
def test_normalisations_that_share_statistics_train_to_the_right_values(memory: str) -> None:
    draw = np.random.default_rng(0)
    x, head = draw.normal(size=(4, 3)), draw.normal(size=(4, 3))
    gamma, beta = draw.uniform(1, 2, 3), draw.normal(size=3)
    options, budget = MODES[memory], 1 if memory == "auto" else None
    while True:
        try:
            executor = towers(fix_gamma=False).simple_bind(mx.cpu(), x=(4, 3), memory=memory, budget=budget,
                                                           poison=True, **options)
            for name, value in (("x", x), ("gamma", gamma), ("beta", beta)):
                executor.arg_dict[name][:] = value
            executor.aux_dict["var"][:] = 1
            executor.forward(is_train=True)
            break
        except OutOfMemoryError as refused:
            budget = refused.asked_bytes
    between = {name: array.asnumpy() for name, array in executor.aux_dict.items()}
    executor.backward([head])
    mean, var, h = np.zeros(3), np.ones(3), x
    for _ in range(2):
        mean, var = 0.9 * mean + 0.1 * h.mean(0), 0.9 * var + 0.1 * h.var(0)
        h = np.tanh(normalised(h, gamma, beta)) * 3 + 1
    for found in (between, {name: array.asnumpy() for name, array in executor.aux_dict.items()}):
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["var"], var, rtol=1e-5)
    gradients = {"x": central(x, lambda v: loss(v, gamma, beta, head)),
                 "gamma": central(gamma, lambda v: loss(x, v, beta, head)),
                 "beta": central(beta, lambda v: loss(x, gamma, v, head))}
    for name, wanted in gradients.items():
        np.testing.assert_allclose(executor.grad_dict[name].asnumpy(), wanted, rtol=2e-3, atol=2e-4, err_msg=name)


def test_normalisations_that_share_a_fixed_gamma_set_it_once() -> None:
    executor = towers(fix_gamma=True).simple_bind(mx.cpu(), x=(4, 3), poison=True)
    executor.arg_dict["gamma"][:], executor.arg_dict["x"][:] = 5, np.random.default_rng(1).normal(size=(4, 3))
    executor.forward(is_train=True)
    executor.backward([np.ones((4, 3))])
    assert executor.arg_dict["gamma"].asnumpy().tolist() == [1, 1, 1]
    assert executor.grad_dict["gamma"].asnumpy().tolist() == [0, 0, 0]
    assert executor.plan.instructions.op.count("_fill_ones") == 1


def test_a_variable_that_one_operator_sets_and_another_one_reads_is_refused_with_both_names() -> None:
    gamma = mx.sym.Variable("gamma")
    h = mx.sym.BatchNorm(mx.sym.Variable("x"), gamma, name="bn")
    symbol = mx.sym.broadcast_mul(h, mx.sym.Reshape(gamma, shape=(1, 3), name="row"), name="product")
    with pytest.raises(MXNetError, match=r"bn sets gamma, and row reads .*fix_gamma=False"):
        symbol.simple_bind(mx.cpu(), x=(4, 3)).forward(is_train=True)


def test_statistics_that_are_used_as_they_are_behind_their_update_are_the_new_ones() -> None:
    shared = [mx.sym.Variable(name) for name in ("gamma", "beta", "mean", "var")]
    trained = mx.sym.BatchNorm(mx.sym.Variable("x"), *shared, fix_gamma=False, momentum=0.5, name="bn0")
    used = mx.sym.BatchNorm(mx.sym.Variable("y"), *shared, fix_gamma=False, use_global_stats=True, name="bn1")
    executor = mx.sym.Group([trained, used]).simple_bind(mx.cpu(), x=(4, 3), y=(1, 3), poison=True)
    x = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    executor.arg_dict["x"][:], executor.arg_dict["gamma"][:], executor.aux_dict["var"][:] = x, 1, 1
    output = executor.forward(is_train=True)[1].asnumpy()
    mean, var = 0.5 * x.mean(0), 0.5 + 0.5 * x.var(0)
    np.testing.assert_allclose(output[0], -mean / np.sqrt(var + 0.001), rtol=1e-4)
