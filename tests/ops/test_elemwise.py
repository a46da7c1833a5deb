"""Elementwise, scalar, unary and broadcasting arithmetic."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401  (fills the registry)
from minigraph.ops import ShapeError, get_op

from .harness import execute_by_name, gradients, numeric_gradient, run

A = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([[2.0, 2.0, -1.0], [0.5, 8.0, 2.0]], np.float32)
G = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


@pytest.mark.parametrize("alias, name", [
    ("_Plus", "elemwise_add"), ("_minus", "elemwise_sub"), ("_Mul", "elemwise_mul"), ("_div", "elemwise_div"),
    ("_PlusScalar", "_plus_scalar"), ("_RDivScalar", "_rdiv_scalar"), ("ElementWiseSum", "add_n"),
    ("broadcast_plus", "broadcast_add"), ("broadcast_minus", "broadcast_sub")])
def test_old_spellings_name_the_same_op(alias, name):
    assert get_op(alias) is get_op(name)


@pytest.mark.parametrize("name, function", [
    ("elemwise_add", np.add), ("elemwise_sub", np.subtract), ("elemwise_mul", np.multiply),
    ("elemwise_div", np.divide), ("_maximum", np.maximum), ("_minimum", np.minimum)])
def test_binary_ops_equal_numpy(name, function):
    np.testing.assert_array_equal(run(name, {}, [A, B])[0], function(A, B))


def test_power_and_its_gradients():
    base, exponent = np.abs(A.astype(np.float64)) + 0.5, B.astype(np.float64)
    np.testing.assert_allclose(run("_power", {}, [base, exponent])[0], base ** exponent)
    found = gradients("_power", {}, [base, exponent], [G])
    np.testing.assert_allclose(found[0], G * exponent * base ** (exponent - 1))
    np.testing.assert_allclose(found[1], G * base ** exponent * np.log(base))


def test_division_gradients_read_the_output():
    found = gradients("elemwise_div", {}, [A, B], [G])
    np.testing.assert_allclose(found[0], G / B, rtol=1e-6)
    np.testing.assert_allclose(found[1], -G * A / B ** 2, rtol=1e-6)


def test_unwanted_gradients_add_no_nodes():
    assert gradients("elemwise_mul", {}, [A, B], [G], wanted=[False, False]) == [None, None]
    assert gradients("exp", {}, [A], [None]) == [None]


def test_integers_are_divided_towards_zero():
    lhs, rhs = np.array([7, -7, 9], np.int32), np.array([2, 2, -4], np.int32)
    np.testing.assert_array_equal(run("elemwise_div", {}, [lhs, rhs])[0], [3, -3, -2])


def test_extremum_ties_give_lhs_the_gradient():
    lhs, rhs = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    g = np.array([10.0, 20.0, 30.0])
    for name, want in (("_maximum", [[10, 0, 30], [0, 20, 0]]), ("_minimum", [[10, 20, 0], [0, 0, 30]])):
        np.testing.assert_array_equal(gradients(name, {}, [lhs, rhs], [g]), want)


@pytest.mark.parametrize("name, function", [
    ("_equal", np.equal), ("_not_equal", np.not_equal), ("_greater", np.greater),
    ("_greater_equal", np.greater_equal), ("_lesser", np.less), ("_lesser_equal", np.less_equal)])
def test_comparisons_give_ones_and_zeros_of_the_operands_dtype_and_no_gradient(name, function):
    (out,) = run(name, {}, [A, B])
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, function(A, B))
    (out,) = run(name + "_scalar", {"scalar": 0.5}, [A])
    np.testing.assert_array_equal(out, function(A, np.float32(0.5)))
    assert gradients(name, {}, [A, B], [G]) == [None, None]


@pytest.mark.parametrize("name, function", [
    ("_plus_scalar", lambda x, s: x + s), ("_minus_scalar", lambda x, s: x - s),
    ("_rminus_scalar", lambda x, s: s - x), ("_mul_scalar", lambda x, s: x * s),
    ("_div_scalar", lambda x, s: x / s), ("_rdiv_scalar", lambda x, s: s / x),
    ("_power_scalar", lambda x, s: x ** s), ("_rpower_scalar", lambda x, s: s ** x),
    ("_maximum_scalar", np.maximum), ("_minimum_scalar", np.minimum)])
def test_scalar_ops_equal_numpy_with_their_gradients(name, function):
    x = np.array([0.3, 1.1, 2.5, 0.9])
    g = np.array([1.0, -2.0, 3.0, 0.5])
    for scalar in (1.5, 2.0):
        np.testing.assert_allclose(run(name, {"scalar": scalar}, [x])[0], function(x, scalar))
        (found,) = gradients(name, {"scalar": scalar}, [x], [g])
        np.testing.assert_allclose(found, numeric_gradient(name, {"scalar": scalar}, [x], 0, g), rtol=1e-7)


def test_scalars_may_be_texts_and_take_the_tensors_dtype():
    (out,) = run("_plus_scalar", {"scalar": "2"}, [np.array([1, 2], np.int32)])
    assert out.dtype == np.int32 and out.tolist() == [3, 4]


def test_power_scalar_zero_has_a_zero_gradient_at_zero():
    (found,) = gradients("_power_scalar", {"scalar": 0.0}, [np.zeros(2)], [np.ones(2)])
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize("name, function", [
    ("exp", np.exp), ("log", np.log), ("sqrt", np.sqrt), ("square", np.square), ("abs", np.abs),
    ("negative", np.negative), ("reciprocal", np.reciprocal), ("sign", np.sign)])
def test_unary_functions_equal_numpy_with_their_gradients(name, function):
    x = np.array([0.3, 1.1, 2.5])
    g = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(run(name, {}, [x])[0], function(x))
    (found,) = gradients(name, {}, [x], [g])
    if name == "sign":
        assert found is None
    else:
        np.testing.assert_allclose(found, numeric_gradient(name, {}, [x], 0, g), rtol=1e-7)


def test_abs_has_no_gradient_at_zero():
    (found,) = gradients("abs", {}, [np.array([-2.0, 0.0, 3.0])], [np.ones(3)])
    assert found.tolist() == [-1, 0, 1]


def test_add_n_adds_in_ascending_order():
    terms = [np.array([v], np.float32) for v in (1e8, 1.0, -1e8, 1.0)]
    assert run("add_n", {"num_args": 4}, terms)[0].tolist() == [1.0]
    assert [g.tolist() for g in gradients("add_n", {"num_args": 4}, terms, [np.ones(1)])] == [[1.0]] * 4


def test_blocks_give_the_bits_of_one_block():
    rng = np.random.default_rng(0)
    x, g = rng.random(100_003, np.float32), rng.random(100_003, np.float32)
    (whole,) = run("_sqrt_backward", {}, [g, x])
    parts = [execute_by_name("_sqrt_backward", {}, [g[i:i + 1000], x[i:i + 1000]])[0]
             for i in range(0, x.size, 1000)]
    assert whole.tobytes() == np.concatenate(parts).tobytes()


@pytest.mark.parametrize("name", ["broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (1, 3, 1)), ((2, 1, 2), (1, 3, 2)), ((3,), (2, 3)),
                                    ((2, 3), (2, 3))])
def test_broadcast_gradients_sum_back_to_the_operands(name, shapes):
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.5, 1.5, s) for s in shapes]
    g = rng.uniform(-1, 1, np.broadcast_shapes(*shapes))
    for i, found in enumerate(gradients(name, {}, arrays, [g])):
        np.testing.assert_allclose(found, numeric_gradient(name, {}, arrays, i, g), rtol=1e-6, atol=1e-8)


def test_shapes_that_do_not_broadcast_are_named():
    op = get_op("broadcast_add")
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 4\)"):
        op.infer_shape(None, [(2, 3), (2, 4)], [None])
    assert op.infer_shape(None, [(None, 3), (1, 3)], [(5, None)])[1] == [(5, 3)]


def test_zero_size_batches_pass_through():
    empty = np.zeros((0, 3), np.float32)
    assert run("elemwise_add", {}, [empty, empty])[0].shape == (0, 3)
    assert run("_sum_like", {}, [empty, np.zeros((1, 3), np.float32)])[0].tolist() == [[0, 0, 0]]
