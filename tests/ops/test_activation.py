"""Activation functions, LeakyReLU and its relatives."""
from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op

from .harness import EagerBuilder, expand_and_run, gradients, numeric_gradient, parsed, run

X = np.array([[-3.0, -0.7, -0.01], [0.02, 0.8, 5.0]])
G = np.array([[1.0, -2.0, 3.0], [0.5, 2.0, -1.0]])
ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign")


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_gradients_from_the_output_are_those_of_the_function(kind):
    params = {"act_type": kind}
    (found,) = gradients("Activation", params, [X], [G])
    np.testing.assert_allclose(found, numeric_gradient("Activation", params, [X], 0, G), rtol=1e-6)


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh", "softsign"])
def test_named_activations_equal_activation(kind):
    assert run(kind, {}, [X])[0].tobytes() == run("Activation", {"act_type": kind}, [X])[0].tobytes()
    assert gradients(kind, {}, [X], [G])[0].tobytes() == gradients(
        "Activation", {"act_type": kind}, [X], [G])[0].tobytes()


@pytest.mark.parametrize("kind, ends", [
    ("relu", [0, 1000]), ("sigmoid", [0, 1]), ("tanh", [-1, 1]), ("softrelu", [0, 1000]),
    ("softsign", [-1000 / 1001, 1000 / 1001])])
def test_far_ends_are_exact_without_warnings(kind, ends):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float32, np.float64):
            (out,) = run("Activation", {"act_type": kind}, [np.array([-1000, 1000], dtype)])
            np.testing.assert_allclose(out, ends, rtol=1e-6)


def test_sigmoid_keeps_relative_precision_in_its_tail():
    (out,) = run("sigmoid", {}, [np.array([-50.0], np.float32)])
    np.testing.assert_allclose(out, np.exp(-50.0), rtol=1e-6)


def test_relu_gradient_is_zero_at_zero_and_nan_stays():
    assert gradients("relu", {}, [np.array([0.0, 1.0])], [np.ones(2)])[0].tolist() == [0, 1]
    assert np.isnan(run("relu", {}, [np.array([np.nan])])[0][0])


@pytest.mark.parametrize("params", [
    {}, {"slope": 0.1}, {"slope": -0.5}, {"act_type": "elu", "slope": 1.0}, {"act_type": "selu"},
    {"act_type": "gelu"}])
def test_leaky_functions_equal_torch(params):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    slope = params.get("slope", 0.25)
    function = {"leaky": lambda x: functional.leaky_relu(x, slope), "elu": lambda x: functional.elu(x, slope),
                "selu": torch.selu, "gelu": functional.gelu}[params.get("act_type", "leaky")]
    x = np.linspace(-6, 6, 41).reshape(1, 41)
    g = np.cos(x)
    t = torch.tensor(x, requires_grad=True)
    want = function(t)
    want.backward(torch.tensor(g))
    b = EagerBuilder()
    (out,) = expand_and_run("LeakyReLU", params, [x], builder=b)
    np.testing.assert_allclose(out, want.detach().numpy(), rtol=1e-13, atol=1e-15)
    node = b.ops[0]
    op = get_op(node)
    entries = [b.add(x)]
    p = parsed(op, _node_params(params))
    outs = b.node(node, entries, **vars(p))
    (found,) = op.gradient(b, p, entries, outs, [b.add(g)], [True])
    np.testing.assert_allclose(b.values[found], t.grad.numpy(), rtol=1e-12, atol=1e-14)
    (single,) = expand_and_run("LeakyReLU", params, [x.astype(np.float32)])
    np.testing.assert_allclose(single, out, rtol=2e-6, atol=1e-6)


def _node_params(params):
    kind, slope = params.get("act_type", "leaky"), params.get("slope", 0.25)
    return {"leaky": {"slope": slope}, "elu": {"below": slope, "above": 1.0},
            "selu": {"below": 1.6732632423543772 * 1.0507009873554805, "above": 1.0507009873554805},
            "gelu": {}}[kind]


def test_leaky_gradient_reads_the_output_unless_a_negative_slope_hides_the_sign():
    for slope, saved in ((0.25, 1), (-0.25, 0)):
        b = EagerBuilder()
        op = get_op("_leaky")
        p = parsed(op, {"slope": slope})
        ins = [b.add(X)]
        outs = b.node("_leaky", ins, slope=slope)
        seen = []
        b.node = lambda name, inputs, seen=seen, **kw: seen.extend(inputs) or (0,)
        op.gradient(b, p, ins, outs, [b.add(G)], [True])
        assert seen[1] == (outs[0] if saved else ins[0])


@pytest.mark.parametrize("gamma", [[0.1, -0.2, 0.3], [0.25]])
def test_prelu_equals_torch_with_both_gradients(gamma):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, g, slope = rng.normal(size=(5, 3, 4)), rng.normal(size=(5, 3, 4)), np.array(gamma)
    t, w = torch.tensor(x, requires_grad=True), torch.tensor(slope, requires_grad=True)
    want = torch.nn.functional.prelu(t, w)
    want.backward(torch.tensor(g))
    np.testing.assert_allclose(run("_prelu", {}, [x, slope])[0], want.detach().numpy(), rtol=1e-14)
    found = gradients("_prelu", {}, [x, slope], [g])
    np.testing.assert_allclose(found[0], t.grad.numpy(), rtol=1e-13)
    np.testing.assert_allclose(found[1], w.grad.numpy(), rtol=1e-13)


def test_prelu_infers_one_slope_a_channel_and_initialises_it():
    op = get_op("LeakyReLU")
    p = parsed(op, {"act_type": "prelu"})
    assert op.infer_shape(p, [(2, 7, 4), None], [None]) == ([(2, 7, 4), (7,)], [(2, 7, 4)])
    assert op.variable_attrs(p) == {"gamma": {"__init__": '["Constant", {"value": 0.25}]'}}
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        op.infer_shape(p, [(2, 7, 4), (3,)], [None])


def test_rrelu_draws_slopes_in_training_and_takes_their_mean_in_evaluation():
    x = np.full((40, 50), -1.0)
    params = {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.5}
    b = EagerBuilder()
    out = -expand_and_run("LeakyReLU", params, [x], builder=b)[0]
    assert out.min() >= 0.1 and out.max() < 0.5 and len(np.unique(out)) > 1900
    assert abs(out.mean() - 0.3) < 0.01
    evaluated = expand_and_run("LeakyReLU", params, [x], train=False)
    np.testing.assert_allclose(evaluated[0], -0.3)


def test_rrelu_gradient_uses_the_slopes_of_forward():
    rng = np.random.default_rng(3)
    x, key = rng.normal(size=(30, 5)), np.arange(8, dtype=np.float32)
    params = {"lower_bound": 0.1, "upper_bound": 0.5, "ordinal": 2}
    (out,) = run("_rrelu", params, [x, key])
    found = gradients("_rrelu", params, [x, key], [np.full_like(x, 2.0)])
    np.testing.assert_allclose(found[0], 2 * out / x)
    assert found[1] is None


@pytest.mark.parametrize("params", [{"act_type": "elu", "slope": -1},
                                    {"act_type": "rrelu", "lower_bound": -1},
                                    {"act_type": "rrelu", "lower_bound": 0.5, "upper_bound": 0.1}])
def test_slopes_that_hide_the_sign_are_refused(params):
    op = get_op("LeakyReLU")
    p = parsed(op, params)
    with pytest.raises(MXNetError, match="needs"):
        op.infer_shape(p, [(2, 3)], [None] * len(op.outputs(p)))
