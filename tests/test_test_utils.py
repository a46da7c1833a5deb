"""The checks of mx.test_utils pass what is right and refuse what is wrong."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph import test_utils
from minigraph.base import MXNetError
from minigraph.test_utils import (
    almost_equal,
    assert_almost_equal,
    check_consistency,
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
    assert almost_equal(a, [1, 2.00001], rtol=1e-5, atol=0) and not almost_equal(a, [1, 2.001], rtol=1e-5, atol=0)
    assert almost_equal([np.nan], [np.nan], equal_nan=True) and not almost_equal([np.nan], [np.nan])
    assert_almost_equal(a, np.array([1.0, 2.0]))


def test_the_worst_element_is_named():
    with pytest.raises(AssertionError, match=r"x and y differ .* at 2 of 3 elements; the worst at \(2,\).*5"):
        assert_almost_equal(np.array([1.0, 2.1, 5.0]), np.array([1.0, 2.0, 3.0]), rtol=1e-3, names=("x", "y"))
    with pytest.raises(AssertionError, match=r"the worst at \(0,\): np.float64\(nan\)|the worst at \(0,\): nan"):
        assert_almost_equal(np.array([np.nan, 1]), np.array([0.0, 2]))
    with pytest.raises(AssertionError, match=r"shape \(3,\) and b \(2,\)"):
        assert_almost_equal([1, 1, 1], [1, 1])
    assert_almost_equal([1], [1, 1])
    with pytest.raises(AssertionError, match=r"shape \(1,\) and b \(2,\)"):
        assert_almost_equal([1], [1, 1], use_broadcast=False)


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


@pytest.mark.parametrize("dtype,near,far", [("float16", 0.05, 0.3), ("float32", 5e-4, 3e-3), ("float64", 5e-6, 2e-5),
                                            ("int32", 0, 1)])
def test_tolerances_are_those_of_the_dtype(dtype, near, far):
    one = np.ones(2, dtype)
    assert_almost_equal(one, (one + near).astype(dtype))
    with pytest.raises(AssertionError):
        assert_almost_equal(one, (one + far).astype(dtype))
    assert_almost_equal(one, (one + far).astype(dtype), rtol={dtype: 1.0}, atol={dtype: 0.0})
    assert test_utils.get_tols(np.float16(1), np.float64(1), None, None) == (1e-2, 1e-1)


def test_a_share_of_the_elements_may_differ():
    a, b = np.zeros(10), np.array([1.0] + [0.0] * 9)
    test_utils.assert_almost_equal_with_err(a, b, etol=0.1)
    with pytest.raises(AssertionError, match="1 of 10"):
        test_utils.assert_almost_equal_with_err(a, b, etol=0.05)
    test_utils.assert_almost_equal_ignore_nan(np.array([np.nan, 1]), np.array([5.0, 1]))
    test_utils.compare_ndarray_tuple((a, (b, None)), (a, (b, a)))
    with pytest.raises(AssertionError):
        test_utils.compare_ndarray_tuple((a, (b,)), (a, (a,)))


def test_one_memory_is_told_from_equal_values():
    a = mx.nd.ones((2, 2))
    assert test_utils.same_array(a, a[:]) and not test_utils.same_array(a, a.copy())
    assert a.asnumpy().tolist() == [[1, 1], [1, 1]]


def test_reductions_and_sums_like_a_shape():
    values = np.arange(24.0).reshape(2, 3, 4)
    whole = values.sum((0, 2), keepdims=True)
    np.testing.assert_array_equal(test_utils.np_reduce(values, (0, -1), True, np.sum), whole)
    np.testing.assert_array_equal(test_utils.np_reduce(values, None, False, np.max), 23)
    np.testing.assert_array_equal(test_utils.collapse_sum_like(values, (3, 1)), whole[0])
    with pytest.raises(ValueError):
        test_utils.collapse_sum_like(values, (2, 4))
    assert test_utils.assign_each(values, lambda x: 2 * x).sum() == 2 * values.sum()
    assert test_utils.assign_each2(values, values, lambda x, y: x - y).sum() == 0


def test_random_things_have_the_shapes_asked_for():
    mx.random.seed(0)
    assert test_utils.random_arrays((2, 3)).dtype == np.float32 and isinstance(test_utils.random_arrays(()), np.float32)
    first, second = test_utils.random_arrays((2,), (3, 1))
    assert first.shape == (2,) and second.shape == (3, 1)
    assert (test_utils.random_uniform_arrays((50,), low=2, high=3)[0] >= 2).all()
    assert len(test_utils.rand_shape_3d(2, 3, 4)) == 3
    assert 0 in {d for _ in range(50) for d in rand_shape_nd(2, 2, allow_zero_size=True)}
    assert test_utils.create_2d_tensor(2, 3).asnumpy().tolist() == [[0, 0, 0], [1, 1, 1]]
    assert test_utils.create_vector(3).dtype == np.int64
    assert sorted(test_utils.random_sample([1, 2, 3], 3)) == [1, 2, 3]
    x, y = test_utils.rand_coord_2d(1, 3, 5, 6)
    assert x in (1, 2) and y == 5
    assert rand_ndarray((2, 2), "default", density=0.5).shape == (2, 2)
    with pytest.raises(MXNetError, match="csr"):
        rand_ndarray((2, 2), "csr")


def test_moments_of_samples_are_checked():
    mx.random.seed(0)
    assert test_utils.mean_check(lambda n: mx.random.normal(1, 2, n), 1, 2, 20000)
    assert not test_utils.mean_check(lambda n: mx.random.normal(1.2, 2, n), 1, 2, 20000)
    assert test_utils.var_check(lambda n: mx.random.normal(1, 2, n), 2, 20000)
    assert not test_utils.var_check(lambda n: mx.random.normal(1, 2.2, n), 2, 20000)


def test_helpers_of_tests(monkeypatch):
    monkeypatch.setenv("A_VARIABLE", "before")
    import os
    with test_utils.environment({"A_VARIABLE": None, "ANOTHER": 1}):
        assert "A_VARIABLE" not in os.environ and os.environ["ANOTHER"] == "1"
    with test_utils.environment("A_VARIABLE", "inside"):
        assert os.environ["A_VARIABLE"] == "inside"
    assert os.environ["A_VARIABLE"] == "before" and "ANOTHER" not in os.environ
    test_utils.assert_exception(int, ValueError, "x")
    with pytest.raises(AssertionError, match="did not raise ValueError"):
        test_utils.assert_exception(int, ValueError, "1")
    runs = []

    @test_utils.retry(3)
    def fails_twice():
        runs.append(1)
        assert len(runs) == 3

    fails_twice()
    with pytest.raises(AssertionError):
        fails_twice()
    assert len(runs) == 6


def test_a_default_context_holds_outside_of_every_with():
    try:
        test_utils.set_default_context(mx.cpu(3))
        assert default_context() == mx.cpu(3) and mx.nd.ones(1).context == mx.cpu(3)
        with mx.cpu(1):
            assert default_context() == mx.cpu(1)
    finally:
        test_utils.set_default_context(mx.cpu(0))


def test_symbols_are_run_and_compared_by_structure():
    x = mx.sym.Variable("x")
    assert test_utils.simple_forward(2 * x, x=np.array([1.0, 2])).tolist() == [2, 4]
    assert [len(v) for v in test_utils.simple_forward(mx.sym.Group([x + 1, x]), x=np.ones(3))] == [3, 3]
    y = mx.sym.Variable("y")
    assert test_utils.same_symbol_structure(mx.sym.exp(x) + x, mx.sym.exp(y, name="e") + y)
    assert not test_utils.same_symbol_structure(mx.sym.exp(x) + x, x + mx.sym.exp(x))


def test_values_are_converted_to_the_dtype_of_the_check():
    x = mx.sym.Variable("x")
    outputs = check_symbolic_forward(x / 2, [np.array([1, 3])], [np.array([0.5, 1.5])])
    assert outputs[0].dtype == np.float32
    outputs = check_symbolic_forward(x * 2, [np.array([1, 3])], [np.array([2, 6])], dtype="asnumpy")
    assert outputs[0].dtype == np.int64
    gradients = check_symbolic_backward(x * 2, [np.array([1, 3])], [np.array([1, 1])], [np.array([2, 2])])
    assert isinstance(gradients, list) and gradients[0].asnumpy().tolist() == [2, 2]


def test_outputs_of_one_name_are_compared_by_position():
    x = mx.sym.Variable("x")
    check_symbolic_forward(mx.sym.Group([mx.sym.exp(x, name="e"), x]), [np.zeros(2)], [np.ones(2), np.zeros(2)])
    with pytest.raises(ValueError, match="expected has 1 values for 2"):
        check_symbolic_forward(mx.sym.Group([x + 1, x]), [np.zeros(2)], [np.ones(2)])


@pytest.mark.parametrize("grad_nodes", [["a"], {"a": "add", "b": "null"}, {"a": "write"}, None])
def test_gradients_of_the_arguments_asked_for_are_checked(grad_nodes):
    a = mx.sym.Variable("a")
    symbol = mx.sym.square(a) * mx.sym.Variable("b")
    where = {"a": np.array([1.0, 2]), "b": np.array([3.0, 4])}
    check_numeric_gradient(symbol, where, grad_nodes=grad_nodes, rtol=1e-5)
    check_numeric_gradient(symbol, where, grad_nodes=grad_nodes, dtype=np.float32, rtol=1e-2)
    wrong = symbol + mx.sym.BlockGrad(a)
    with pytest.raises(AssertionError, match="the gradient of a"):
        check_numeric_gradient(wrong, where, grad_nodes=grad_nodes)
    with pytest.raises(MXNetError, match="dense"):
        check_numeric_gradient(symbol, where, grad_stype_dict={"a": "row_sparse"})


def test_dtypes_and_contexts_are_compared_with_the_widest():
    mx.random.seed(1)
    symbol = mx.sym.tanh(mx.sym.Variable("x"), name="t")
    runs = [{"ctx": mx.cpu(), "x": (3, 4), "type_dict": {"x": np.float64}}, {"ctx": mx.cpu(1), "x": (3, 4)}]
    truth = check_consistency(symbol, runs)
    assert truth["t_output"].dtype == np.float64 and truth["x"].shape == (3, 4)
    np.testing.assert_allclose(truth["x"], truth["t_output"] * (1 - truth["t_output"] ** 2), rtol=1e-12)
    check_consistency([symbol, mx.sym.tanh(mx.sym.Variable("x"), name="t")], runs, grad_req="null", use_uniform=True)
    other = mx.sym.tanh(mx.sym.Variable("x") * 1.1, name="t")
    with pytest.raises(AssertionError, match=r"t_output of ctx_list\[1\]"):
        check_consistency([symbol, other], runs)
    check_consistency([symbol, other], runs, raise_on_err=False)


def test_central_differences_of_an_executor():
    executor = mx.sym.square(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,), type_dict={"x": np.float64})
    found = test_utils.numeric_grad(executor, {"x": np.array([1.0, -2])}, dtype=np.float64)
    np.testing.assert_allclose(found["x"], [2, -4], rtol=1e-6)


def test_two_optimizers_are_compared():
    mx.random.seed(0)
    one, other = (mx.optimizer.SGD(learning_rate=0.1, momentum=m) for m in (0.9, 0.5))
    test_utils.compare_optimizer(one, mx.optimizer.SGD(learning_rate=0.1, momentum=0.9), (3, 4), np.float32)
    test_utils.compare_optimizer(one, other, [(2,), (3,)], np.float32, ntensors=2)    # alike at the first update
    with pytest.raises(AssertionError, match="the weight of opt1"):
        test_utils.compare_optimizer(one, mx.optimizer.SGD(learning_rate=0.2, momentum=0.9), (3,), np.float32,
                                     compare_states=False)


def test_a_distribution_is_parted_into_intervals_of_equal_probability():
    buckets, chances = test_utils.gen_buckets_probs_with_ppf(lambda p: 2 * p, 4)
    assert buckets == [(0, 0.5), (0.5, 1), (1, 1.5), (1.5, 2)] and chances == [0.25] * 4
