"""softmax, log_softmax, SoftmaxActivation."""
from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigraph.ops  # noqa: F401

from .harness import execute_by_name, gradients, numeric_gradient, run

X = np.random.default_rng(0).normal(size=(3, 4, 5))


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_softmax_and_its_logarithm_equal_the_formula_with_their_gradients(axis, temperature):
    params = {"axis": axis, "temperature": temperature}
    want = softmax(X / (temperature or 1), axis)
    g = np.random.default_rng(1).normal(size=X.shape)
    for name, value in (("softmax", want), ("log_softmax", np.log(want))):
        np.testing.assert_allclose(run(name, params, [X])[0], value, rtol=1e-13)
        (found,) = gradients(name, params, [X], [g])
        np.testing.assert_allclose(found, numeric_gradient(name, params, [X], 0, g), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mode, axis", [("instance", None), ("channel", 1)])
def test_softmax_activation_modes(mode, axis):
    want = softmax(X, 1) if axis else softmax(X.reshape(3, -1), 1).reshape(X.shape)
    np.testing.assert_allclose(run("SoftmaxActivation", {"mode": mode}, [X])[0], want)
    g = np.random.default_rng(1).normal(size=X.shape)
    (found,) = gradients("SoftmaxActivation", {"mode": mode}, [X], [g])
    numeric = numeric_gradient("SoftmaxActivation", {"mode": mode}, [X], 0, g)
    np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-8)


def test_extreme_logits_give_exact_probabilities_without_warnings():
    logits = np.array([[-1047, -981, 1891], [1e8, 1e8, -1e8], [0, 0, -1e4]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (out,) = run("softmax", {}, [logits])
        (log,) = run("log_softmax", {}, [logits])
    assert out.tolist() == [[0, 0, 1], [0.5, 0.5, 0], [0.5, 0.5, 0]]
    np.testing.assert_allclose(log[0], [-2938, -2872, 0])


def test_rows_have_the_same_bits_in_any_company():
    x = np.random.default_rng(0).normal(size=(301, 37)).astype(np.float32)
    for name, arrays in (("softmax", [x]), ("log_softmax", [x]), ("_softmax_backward", [x, x])):
        (whole,) = execute_by_name(name, {}, arrays)
        rows = [execute_by_name(name, {}, [a[i:i + 1] for a in arrays])[0] for i in range(0, 301, 7)]
        assert whole[::7].tobytes() == np.concatenate(rows).tobytes()
