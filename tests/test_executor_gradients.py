"""The executor's gradients: requests, many uses of a value, parts that nobody writes; memory is poisoned."""
from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import executor, linear

REQUESTS = ("null", "write", "add")


@pytest.mark.parametrize("first, second", list(product(REQUESTS, REQUESTS)))
def test_every_pair_of_requests_of_a_sum(first, second):
    exe = executor(mx.sym.Variable("a") + mx.sym.Variable("b"), {"a": (2,), "b": (2,)},
                   {"a": first, "b": second})
    gradients = {name: array for name, array in exe.grad_dict.items() if array is not None}
    assert set(gradients) == {name for name, request in (("a", first), ("b", second)) if request != "null"}
    for array in gradients.values():
        array[:] = 5
    exe.forward(is_train=True, a=np.array([1, 2]), b=np.array([10, 20]))
    exe.backward(np.array([2021, -3]))
    expected = {"write": [2021, -3], "add": [2026, 2]}
    for name, array in gradients.items():
        assert array.asnumpy().tolist() == expected[exe.requests[name]]
    assert exe.outputs[0].asnumpy().tolist() == [11, 22]


@pytest.mark.parametrize("grad_req, message", [
    ("sum", "must be write, add or null"), (["write"], "1 words for 2 arguments"), ({"z": "write"}, "'z'")])
def test_bad_requests_are_refused(grad_req, message):
    with pytest.raises(MXNetError, match=message):
        executor(linear(), {"a": (2,), "b": (2,)}, grad_req)


def powers_of_weight(uses):
    """y <- y W^T, `uses` times."""
    weight, y = mx.sym.Variable("weight"), mx.sym.Variable("x")
    for step in range(uses):
        y = mx.sym.FullyConnected(y, weight, num_hidden=2, no_bias=True, name=f"use{step}")
    return y


@pytest.mark.parametrize("uses", [1, 2, 3, 4, 5, 6, 8, 9])
def test_a_weight_used_many_times_gets_the_sum_of_its_gradients(uses):
    weight, x = np.array([[1, .5], [.25, 1]]), np.array([[1.0, 2.0]])
    ys = [x]
    for _ in range(uses):
        ys.append(ys[-1] @ weight.T)
    expected, head = np.zeros((2, 2)), np.ones((1, 2))
    for y in reversed(ys[:-1]):
        expected += head.T @ y
        head = head @ weight
    known = {1: 6, 2: 16.75, 3: 34.6875, 4: 63.4375, 5: 108.328125, 6: 177.12890625}
    assert expected.sum() == known.get(uses, expected.sum())
    for request in ("write", "add"):
        exe = executor(powers_of_weight(uses), {"x": (1, 2), "weight": (2, 2)}, {"weight": request})
        gradient = exe.grad_dict["weight"]
        gradient[:] = 1
        for run in range(2):
            exe.forward(is_train=True, x=x, weight=weight)
            exe.backward(np.ones((1, 2)))
            wanted = expected if request == "write" else 1 + (run + 1) * expected
            np.testing.assert_allclose(gradient.asnumpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("terms", [2, 3, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_a_value_added_to_itself_many_times(terms, inner, request_):
    x = mx.sym.Variable("x")
    term = mx.sym.relu(x) if inner else x
    chain = term
    for _ in range(terms - 1):
        chain = chain + term
    for symbol in (chain, mx.sym.add_n(*[term] * terms)):
        exe = executor(symbol, {"x": (1,)}, request_)
        exe.grad_dict["x"][:] = 1
        exe.forward(is_train=True, x=np.array([3]))
        exe.backward(np.ones(1))
        assert exe.outputs[0].asnumpy().tolist() == [3 * terms]
        assert exe.grad_dict["x"].asnumpy().tolist() == [terms + (request_ == "add")]


@pytest.mark.parametrize("request_", ["write", "add"])
def test_a_tied_embedding_gets_both_of_its_contributions(request_):
    ids, weight = mx.sym.Variable("ids"), mx.sym.Variable("weight")
    hidden = mx.sym.Embedding(ids, weight, input_dim=7, output_dim=3, name="embed")
    scores = mx.sym.FullyConnected(hidden, weight, num_hidden=7, no_bias=True, flatten=False, name="scores")
    draw = np.random.RandomState(0)
    table, head, rows = draw.randn(7, 3), draw.randn(3, 7), np.array([0, 3, 3])
    expected = head.T @ table[rows]
    np.add.at(expected, rows, head @ table)
    exe = executor(scores, {"ids": (3,), "weight": (7, 3)}, {"weight": request_})
    exe.grad_dict["weight"][:] = 0.5
    exe.forward(is_train=True, ids=rows, weight=table)
    exe.backward(head)
    expected += 0.5 * (request_ == "add")
    np.testing.assert_allclose(exe.grad_dict["weight"].asnumpy(), expected, rtol=1e-4, atol=1e-5)


# -- memory that nobody writes -------------------------------------------------------------------------------


def gradient_of(symbol, head, **arguments):
    exe = executor(symbol, {name: np.shape(value) for name, value in arguments.items()})
    exe.forward(is_train=True, **arguments)
    exe.backward(head)
    return {name: array.asnumpy() for name, array in exe.grad_dict.items()}


def test_the_part_of_a_gradient_outside_a_slice_is_zero():
    part = mx.sym.slice(mx.sym.Variable("x"), begin=(1,), end=(3,))
    assert gradient_of(part, np.ones(2), x=np.arange(5.0))["x"].tolist() == [0, 1, 1, 0, 0]


def test_unused_rows_of_an_embedding_have_gradient_zero():
    rows = mx.sym.Embedding(mx.sym.Variable("ids"), mx.sym.Variable("w"), input_dim=5, output_dim=2)
    gradient = gradient_of(rows, np.ones((2, 2)), ids=np.array([1.0, 1.0]), w=np.ones((5, 2)))["w"]
    assert gradient.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [0, 0]]


def test_values_that_max_pooling_drops_have_gradient_zero():
    pooled = mx.sym.Pooling(mx.sym.Variable("x"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    gradient = gradient_of(pooled, np.ones((1, 1, 1, 1)), x=np.array([[[[1.0, 4], [3, 2]]]]))["x"]
    assert gradient.tolist() == [[[[0, 1], [0, 0]]]]


@pytest.mark.parametrize("request_, expected", [("write", 0), ("add", 5)])
def test_a_variable_that_no_gradient_reaches_gets_zero(request_, expected):
    blocked = mx.sym.Variable("x") + mx.sym.BlockGrad(mx.sym.Variable("unused"))
    exe = executor(blocked, {"x": (2,), "unused": (2,)}, request_)
    if exe.grad_dict["unused"] is not None:
        exe.grad_dict["unused"][:] = 5
    exe.forward(is_train=True)
    exe.backward(np.ones(2))
    assert exe.grad_dict["unused"].asnumpy().tolist() == [expected] * 2


def test_a_head_gradient_that_an_integer_output_cannot_hold_is_refused_naming_both_types():
    exe = mx.sym.Cast(mx.sym.Variable("a"), dtype="int32", name="whole").simple_bind(mx.cpu(), a=(2,), poison=True)
    exe.forward(is_train=True, a=np.array([1, 2], np.float32))
    with pytest.raises(MXNetError, match="whole_output is of float32, and the output of int32.* out_grads in int32"):
        exe.backward(mx.nd.ones(2))
    exe.backward(mx.nd.array([3, 4], dtype="int32"))
    assert exe.grad_dict["a"].asnumpy().tolist() == [3, 4]
