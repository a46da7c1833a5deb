"""Samples as NDArrays: the mean and variance of each distribution's formula, and MXNet's shapes and dtypes."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph import nd, random

MANY = 40000
MOMENTS = [
    ("uniform", {"low": -1, "high": 3}, 1, 16 / 12), ("normal", {"loc": 2, "scale": 3}, 2, 9),
    ("exponential", {"scale": 2}, 2, 4), ("gamma", {"alpha": 3, "beta": 2}, 6, 12), ("poisson", {"lam": 4}, 4, 4),
    ("negative_binomial", {"k": 3, "p": 0.4}, 3 * 0.6 / 0.4, 3 * 0.6 / 0.4 ** 2),
    ("generalized_negative_binomial", {"mu": 2, "alpha": 0.5}, 2, 2 + 0.5 * 4),
    ("generalized_negative_binomial", {"mu": 2, "alpha": 0}, 2, 2),
    ("randint", {"low": 0, "high": 5}, 2, 2),
]


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(7)


@pytest.mark.parametrize("name,parameters,mean,variance", MOMENTS)
def test_samples_have_the_mean_and_variance_of_the_distribution(name, parameters, mean, variance):
    drawn = getattr(random, name)(**parameters, shape=(MANY,))
    assert drawn.dtype == (np.int32 if name == "randint" else np.float32)
    values = drawn.asnumpy().astype(np.float64)
    assert values.mean() == pytest.approx(mean, abs=6 * (variance / MANY) ** 0.5)
    assert values.var() == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("name,parameters,mean,variance", MOMENTS[:-1])
def test_arrays_as_parameters_give_samples_for_each_element(name, parameters, mean, variance):
    arrays = {key: nd.array([value, value]) for key, value in parameters.items()}
    function = getattr(random, name)
    assert function(**arrays).shape == (2,)
    drawn = function(**arrays, shape=(MANY // 4, 2))
    assert drawn.shape == (2, MANY // 4, 2)
    assert drawn.asnumpy().mean() == pytest.approx(mean, abs=6 * (variance / MANY) ** 0.5)


def test_each_element_has_its_own_parameters():
    values = random.normal(nd.array([0, 100]), nd.array([1, 2]), shape=500).asnumpy()
    assert values.shape == (2, 500) and abs(values[0]).max() < 10 and abs(values[1] - 100).max() < 20


def test_shapes_dtypes_and_out():
    assert random.uniform().shape == (1,) and random.randn(2, 3).shape == (2, 3)
    assert random.gamma(2, 1, shape=4, dtype="float64").dtype == np.float64
    out = nd.zeros((2, 2), dtype="int64")
    assert random.poisson(50, out=out) is out and (out.asnumpy() > 10).all()
    assert random.poisson(1, shape=2, ctx=mx.gpu(1)).context == mx.gpu(1)


def test_a_seed_repeats_all_of_them():
    def drawn():
        return [getattr(random, name)(**parameters, shape=(5,)).asnumpy() for name, parameters, _, _ in MOMENTS]

    first = drawn()
    mx.random.seed(7)
    assert all((a == b).all() for a, b in zip(first, drawn(), strict=True))


def test_classes_are_drawn_by_their_probabilities():
    chances = nd.array([[0, 1, 0], [0.5, 0, 0.5]])
    picked, logs = random.multinomial(chances, shape=(400,), get_prob=True)
    assert picked.dtype == np.int32 and picked.shape == logs.shape == (2, 400)
    assert (picked.asnumpy()[0] == 1).all() and (logs.asnumpy()[0] == 0).all()
    assert set(picked.asnumpy()[1]) == {0, 2} and abs(picked.asnumpy()[1].mean() - 1) < 0.3
    np.testing.assert_allclose(logs.asnumpy()[1], np.log(0.5), rtol=1e-6)
    assert random.multinomial(chances).shape == (2,) and random.multinomial(nd.array([0, 1])).asnumpy().tolist() == [1]
    assert random.multinomial(chances, shape=(2, 3), dtype="float32").shape == (2, 2, 3)
    with pytest.raises(ValueError, match="probabilities"):
        random.multinomial(nd.array([1, 1]))


def test_shuffle_keeps_the_rows():
    rows = nd.arange(40).reshape((20, 2))
    mixed = random.shuffle(rows)
    assert (mixed.asnumpy() != rows.asnumpy()).any()
    assert sorted(map(tuple, mixed.asnumpy())) == sorted(map(tuple, rows.asnumpy()))
    assert random.shuffle(rows, out=rows) is rows


def test_the_functions_of_arrays_go_by_their_names_too():
    for name in ("random_gamma", "sample_gamma", "random_randint", "sample_multinomial", "shuffle", "sample_normal"):
        assert callable(getattr(nd, name)) and name in dir(nd)
    assert nd.random is mx.random
    assert nd.sample_normal(mu=nd.array([0, 1]), sigma=nd.array([1, 1]), shape=(3,)).shape == (2, 3)
    rates = nd.sample_exponential(lam=nd.array([0.1, 100]), shape=500).asnumpy().mean(1)
    assert rates[0] == pytest.approx(10, rel=0.3) and rates[1] == pytest.approx(0.01, rel=0.3)
    assert nd.random_exponential(lam=4, shape=(2000,)).asnumpy().mean() == pytest.approx(0.25, rel=0.2)
