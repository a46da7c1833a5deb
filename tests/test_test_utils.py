"""The checks of mx.test_utils pass what is right and refuse what is wrong."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.test_utils import (
    almost_equal,
    assert_almost_equal,
    check_numeric_gradient,
    check_symbolic_backward,
    check_symbolic_forward,
    default_context,
    rand_ndarray,
    rand_shape_2d,
    rand_shape_nd,
    same,
)


def test_arrays_are_compared_with_tolerances():
    a = mx.nd.array([1, 2])
    assert same(a, [1, 2]) and not same(a, [1, 2.0001]) and not same(a, [[1, 2]])
    assert almost_equal(a, [1, 2.00001], rtol=1e-5) and not almost_equal(a, [1, 2.001], rtol=1e-5)
    assert almost_equal([np.nan], [np.nan], equal_nan=True) and not almost_equal([np.nan], [np.nan])
    assert_almost_equal(a, np.array([1.0, 2.0]))


def test_the_worst_element_is_named():
    with pytest.raises(AssertionError, match=r"x and y differ .* at 2 of 3 elements; the worst at \(2,\).*5"):
        assert_almost_equal(np.array([1.0, 2.1, 5.0]), np.array([1.0, 2.0, 3.0]), rtol=1e-3, names=("x", "y"))
    with pytest.raises(AssertionError, match=r"the worst at \(0,\): np.float64\(nan\)|the worst at \(0,\): nan"):
        assert_almost_equal(np.array([np.nan, 1]), np.array([0.0, 2]))
    with pytest.raises(AssertionError, match=r"shape \(1,\) and b \(2,\)"):
        assert_almost_equal([1], [1, 1])


def test_random_shapes_and_values_lie_in_their_bounds():
    mx.random.seed(0)
    shapes = [rand_shape_nd(3, 4) for _ in range(50)]
    assert {len(shape) for shape in shapes} == {3} and {d for shape in shapes for d in shape} == {1, 2, 3, 4}
    assert len(rand_shape_2d(2, 3)) == 2
    values = rand_ndarray((100, 2))
    assert values.shape == (100, 2) and -1 <= values.asnumpy().min() < -0.5 < 0.5 < values.asnumpy().max() < 1
    assert rand_ndarray((2,), dtype="float64").dtype is np.float64


def test_the_context_of_checks_is_the_present_one():
    assert default_context() == mx.cpu()
    with mx.cpu(1):
        assert default_context() == mx.cpu(1)


def test_forward_is_checked():
    symbol = mx.sym.Variable("a") + 2 * mx.sym.Variable("b")
    check_symbolic_forward(symbol, [np.array([1.0]), np.array([2.0])], [np.array([5.0])])
    check_symbolic_forward(symbol, {"b": np.array([2.0]), "a": np.array([1.0])}, {symbol.list_outputs()[0]: [5.0]})
    with pytest.raises(AssertionError, match="differ"):
        check_symbolic_forward(symbol, [np.array([1.0]), np.array([2.0])], [np.array([6.0])])
    with pytest.raises(ValueError, match="location names c; the symbol has a, b"):
        check_symbolic_forward(symbol, {"c": np.zeros(1)}, [[0.0]])


@pytest.mark.parametrize("grad_req", ["write", "add", {"a": "write", "b": "null"}])
def test_backward_is_checked(grad_req):
    symbol = mx.sym.Variable("a") * mx.sym.Variable("b")
    a, b, head = np.array([1.0, 2]), np.array([3.0, 4]), np.array([1.0, 10])
    expected = {"a": head * b, "b": head * a}
    check_symbolic_backward(symbol, [a, b], [head], expected, grad_req=grad_req)
    check_symbolic_backward(symbol, [a, b], {symbol.list_outputs()[0]: head}, expected, grad_req=grad_req)
    with pytest.raises(AssertionError, match="the gradient of a"):
        check_symbolic_backward(symbol, [a, b], [head], {"a": head}, grad_req=grad_req)


def test_gradients_are_checked_against_central_differences():
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("w")
    symbol = mx.sym.tanh(mx.sym.FullyConnected(data, weight=weight, num_hidden=2, no_bias=True))
    draw = np.random.RandomState(0)
    location = {"data": draw.randn(3, 4), "w": draw.randn(2, 4)}
    check_numeric_gradient(symbol, location, rtol=1e-5)
    norm = mx.sym.BatchNorm(data, fix_gamma=False, name="bn")
    check_numeric_gradient(norm, [draw.randn(5, 2), np.ones(2), np.zeros(2)], [np.zeros(2), np.ones(2)], rtol=1e-4)


def test_a_wrong_gradient_is_refused():
    x = mx.sym.Variable("x")
    blocked = x + mx.sym.BlockGrad(mx.sym.square(x))
    with pytest.raises(AssertionError, match="the gradient of x and central differences differ"):
        check_numeric_gradient(blocked, [np.array([1.0, 2.0])])
