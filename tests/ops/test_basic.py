"""Copies, constants, casts, gradient stops, and the graph builder's own sums."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.ops import get_op

from .harness import gradients, infer, parsed, run

X = np.array([[1.0, -2.0], [3.0, 0.0]], np.float32)


def test_block_grad_passes_data_and_stops_gradients_without_asking_for_one():
    op = get_op("stop_gradient")
    assert op.is_loss(None)
    np.testing.assert_array_equal(run("BlockGrad", {}, [X])[0], X)
    assert gradients("BlockGrad", {}, [X], [X]) == [None]


@pytest.mark.parametrize("params, value", [
    ({"grad_scale": 3.0}, 3.0), ({"grad_scale": 3.0, "normalization": "batch"}, 1.5),
    ({"grad_scale": 3.0, "normalization": "valid"}, 1.5),
    ({"grad_scale": 3.0, "normalization": "valid", "valid_thresh": 10}, 3.0)])
def test_make_loss_has_a_constant_gradient_whatever_comes_from_above(params, value):
    assert get_op("make_loss").is_loss(None)
    for above in (None, 100 * X):
        (found,) = gradients("MakeLoss", params, [X], [above])
        np.testing.assert_allclose(found, np.full_like(X, value))


def test_constants_fill_their_shape_and_dtype():
    assert run("_zeros", {"shape": "(2, 3)"}, [])[0].tolist() == [[0.0] * 3] * 2
    assert run("_ones", {"shape": (2,), "dtype": "int32"}, [])[0].dtype == np.int32
    assert run("_full", {"shape": (2,), "value": 2.5}, [])[0].tolist() == [2.5, 2.5]
    assert run("ones_like", {}, [X])[0].tolist() == [[1, 1], [1, 1]]


def test_a_zero_in_a_constants_shape_is_inferred():
    op = get_op("_zeros")
    assert op.infer_shape(parsed(op, {"shape": (0, 3)}), [], [(4, None)]) == ([], [(4, 3)])


def test_cast_truncates_and_its_gradient_has_the_inputs_dtype():
    (out,) = run("Cast", {"dtype": "int32"}, [np.array([1.7, -1.7], np.float32)])
    assert out.dtype == np.int32 and out.tolist() == [1, -1]
    (found,) = gradients("Cast", {"dtype": "float64"}, [X], [X.astype(np.float64)])
    assert found.dtype == np.float32
    assert infer(get_op("Cast"), parsed(get_op("Cast"), {"dtype": "1"}), [X])[0].dtype == np.float64


def test_accumulate_sums_and_state_writes_land_in_the_old_bytes():
    np.testing.assert_array_equal(run("_accumulate", {}, [X, X])[0], 2 * X)
    np.testing.assert_array_equal(run("_assign", {}, [X, 5 * X])[0], 5 * X)
    np.testing.assert_array_equal(run("_grad_add", {}, [X, 5 * X])[0], 6 * X)
    assert get_op("_assign").recompute == get_op("_grad_add").recompute == "never"


def test_identity_is_a_copy():
    assert get_op("identity") is get_op("_copy")
    np.testing.assert_array_equal(run("_copy", {}, [X])[0], X)
    np.testing.assert_array_equal(gradients("_copy", {}, [X], [3 * X])[0], 3 * X)
