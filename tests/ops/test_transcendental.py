"""Elementwise functions of the wider set: values at ties, kinks and edges, and MXNet's choices among them."""
from __future__ import annotations

import math

import numpy as np
import pytest

from .harness import gradients, run


def call(name, *arrays, **params):
    out, = run(name, params, [np.asarray(a, np.float64) for a in arrays])
    return out


def test_rounding_is_that_of_mxnet_at_halves():
    data = [-1.5, 1.5, -1.9, 1.9, 2.1, 0.5, -0.5, 2.5]
    np.testing.assert_array_equal(call("rint", data), [-2, 1, -2, 2, 2, 0, -1, 2])
    np.testing.assert_array_equal(call("round", data), [-2, 2, -2, 2, 2, 1, -1, 3])
    np.testing.assert_array_equal(call("fix", data), [-1, 1, -1, 1, 2, 0, 0, 2])
    np.testing.assert_array_equal(call("trunc", data), call("fix", data))
    np.testing.assert_array_equal(call("floor", data), np.floor(data))
    np.testing.assert_array_equal(call("ceil", data), np.ceil(data))


@pytest.mark.parametrize("name", ["rint", "round"])
def test_rounding_keeps_what_has_no_fraction(name):
    data = np.array([np.inf, -np.inf, np.nan, 2.0 ** 23 + 1, -(2.0 ** 24 - 1)], np.float32)
    np.testing.assert_array_equal(run(name, {}, [data])[0], data)
    below = np.nextafter(np.float32(0.5), np.float32(0))
    np.testing.assert_array_equal(run(name, {}, [np.array([below, -below])])[0], [0, 0])


def test_erf_is_precise_in_relative_terms_from_tiny_to_large_arguments():
    data = np.concatenate([np.linspace(-6, 6, 2001), [1e-300, -1e-12, 1e-5, 0.4999, 0.5001]])
    expected = [math.erf(x) for x in data]
    np.testing.assert_allclose(run("erf", {}, [data])[0], expected, rtol=4e-15)
    np.testing.assert_allclose(run("erf", {}, [data.astype(np.float32)])[0],
                               [math.erf(x) for x in data.astype(np.float32)], rtol=1e-6)


def test_a_remainder_has_the_sign_of_the_divisor_and_is_0_for_a_divisor_of_0():
    lhs, rhs = [5.5, -5.5, 5.5, -5.5, 3.0], [2, 2, -2, -2, 0]
    expected = [1.5, 0.5, -0.5, -1.5, 0]
    np.testing.assert_array_equal(call("_mod", lhs, rhs), expected)
    np.testing.assert_array_equal(call("broadcast_mod", [lhs], [rhs])[0], expected)
    np.testing.assert_array_equal(call("broadcast_mod", [[5.5], [-5.5]], [[2, 0]]), [[1.5, 0], [0.5, 0]])
    np.testing.assert_array_equal(call("_mod_scalar", lhs, scalar=-2.0), [-0.5, -1.5, -0.5, -1.5, -1])
    np.testing.assert_array_equal(call("_mod_scalar", lhs, scalar=0.0), [0] * 5)
    np.testing.assert_array_equal(call("_rmod_scalar", rhs, scalar=3.0), [1, 1, -1, -1, 0])


def test_clip_lets_gradients_pass_at_its_bounds():
    data = np.array([-2.0, -1, 0, 1, 2])
    np.testing.assert_array_equal(call("clip", data, a_min=-1, a_max=1), [-1, -1, 0, 1, 1])
    found, = gradients("clip", {"a_min": -1, "a_max": 1}, [data], [np.full(5, 3.0)])
    np.testing.assert_array_equal(found, [0, 3, 3, 3, 0])


def test_smooth_l1_changes_from_square_to_line_at_1_over_sigma_squared():
    data = np.array([-1.0, -0.25, -0.1, 0, 0.2, 0.25, 3])
    np.testing.assert_allclose(call("smooth_l1", data, scalar=2.0),
                               [0.875, 0.125, 0.02, 0, 0.08, 0.125, 2.875])
    found, = gradients("smooth_l1", {"scalar": 2.0}, [data], [np.ones(7)])
    np.testing.assert_allclose(found, [-1, -1, -0.4, 0, 0.8, 1, 1])


def test_hypot_does_not_overflow_on_the_way():
    big = np.array([3e30, 3e30], np.float32)
    np.testing.assert_allclose(run("_hypot", {}, [big, big / 3 * 4])[0], [5e30, 5e30], rtol=1e-6)


def test_ties_of_broadcast_extrema_send_the_gradient_left():
    lhs, rhs = np.array([[1.0, 2, 3]]), np.array([[2.0], [3]])
    for name, left, right in (("broadcast_maximum", [[0, 1, 2]], [[1], [2]]),
                              ("broadcast_minimum", [[2, 2, 1]], [[1], [0]])):
        found = gradients(name, {}, [lhs, rhs], [np.ones((2, 3))])
        np.testing.assert_array_equal(found[0], left)
        np.testing.assert_array_equal(found[1], right)


def test_comparisons_broadcast_to_ones_and_zeros():
    np.testing.assert_array_equal(call("broadcast_lesser", [[1, 2, 3]], [[2], [3]]), [[1, 0, 0], [1, 1, 0]])
    assert gradients("broadcast_equal", {}, [np.ones(2), np.ones(2)], [np.ones(2)]) == [None, None]


def test_erfinv_is_precise_from_tiny_arguments_to_the_last_before_1() -> None:
    wanted = np.concatenate([[1e-300, 1e-9, 0.1], np.linspace(0.3, 5.5, 60), -np.linspace(0.01, 4, 30)])
    data = np.array([math.erf(y) for y in wanted])
    found, = run("erfinv", {}, [data])
    # An error of half a unit in the last place of data is one of that times the slope.
    slack = 1e-15 + np.spacing(np.abs(data)) * np.exp(wanted**2) / np.abs(wanted)
    assert (np.abs(found / wanted - 1) < 4 * slack).all()
    ends, = run("erfinv", {}, [np.array([-1, 1, 0, 1.5, np.nan])])
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, 0, np.nan, np.nan])
