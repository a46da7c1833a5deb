"""pick, one_hot, take, Embedding."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError

from .harness import gradients, run

TABLE = np.arange(15.0).reshape(5, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_embedding_takes_float_and_integer_ids(dtype):
    ids = np.array([[0, 4], [3, 3]], dtype)
    params = {"input_dim": 5, "output_dim": 3}
    np.testing.assert_array_equal(run("Embedding", params, [ids, TABLE])[0], TABLE[[[0, 4], [3, 3]]])
    g = np.arange(12.0).reshape(2, 2, 3)
    none, found = gradients("Embedding", params, [ids, TABLE], [g])
    want = np.zeros((5, 3))
    np.add.at(want, [[0, 4], [3, 3]], g)
    assert none is None
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("bad", [-1, 5, 2147483647, np.nan, np.inf])
def test_ids_out_of_range_raise_with_position_and_value(bad):
    ids = np.zeros((2, 700))
    ids[1, 333] = bad
    for name, params, arrays in (
            ("Embedding", {"input_dim": 5, "output_dim": 3}, [ids, TABLE]), ("take", {}, [TABLE, ids]),
            ("one_hot", {"depth": 5}, [ids]),
            ("_take_backward", {}, [np.zeros((2, 700, 3)), ids, TABLE])):
        with pytest.raises(MXNetError, match=rf"{bad}.* at position \(1, 333\) is outside \[0, 5\)"):
            run(name, params, arrays)


def test_fractions_of_ids_are_cut_off():
    np.testing.assert_array_equal(run("take", {}, [TABLE, np.array([1.5, 4.9])])[0], TABLE[[1, 4]])


def test_repeated_ids_sum_their_gradients_in_order_of_position():
    ids, g = np.zeros(4), np.array([[1e8], [1.0], [-1e8], [1.0]], np.float32)
    (found, _) = gradients("take", {}, [np.zeros((1, 1), np.float32), ids.astype(np.float32)], [g])
    assert found.tolist() == [[1.0]]


def test_take_along_an_inner_axis():
    x = np.arange(24.0).reshape(2, 4, 3)
    ids = np.array([[3, 0], [0, 1]])
    (out,) = run("take", {"axis": 1}, [x, ids])
    np.testing.assert_array_equal(out, np.take(x, ids, axis=1))
    g = np.random.default_rng(0).normal(size=out.shape)
    want = np.zeros_like(x)
    np.add.at(want, (slice(None), ids), g)
    np.testing.assert_allclose(gradients("take", {"axis": 1}, [x, ids], [g])[0], want)


@pytest.mark.parametrize("axis, keepdims", [(-1, False), (1, True), (0, False)])
def test_pick_takes_one_element_a_place_and_gives_its_gradient_back(axis, keepdims):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 5))
    narrow = tuple(d for i, d in enumerate(x.shape) if i != axis % 3)
    ids = rng.integers(0, x.shape[axis], narrow)
    want = np.take_along_axis(x, np.expand_dims(ids, axis), axis)
    (out,) = run("pick", {"axis": axis, "keepdims": keepdims}, [x, ids])
    np.testing.assert_array_equal(out, want if keepdims else want.squeeze(axis))
    found, _ = gradients("pick", {"axis": axis, "keepdims": keepdims}, [x, ids], [np.full_like(out, 2.0)])
    full = np.zeros_like(x)
    np.put_along_axis(full, np.expand_dims(ids, axis), 2.0, axis)
    np.testing.assert_array_equal(found, full)


def test_one_hot_values():
    (out,) = run("one_hot", {"depth": 3, "on_value": 2, "off_value": -1}, [np.array([2.0, 0.0])])
    assert out.tolist() == [[-1, -1, 2], [2, -1, -1]]
    assert out.dtype == np.float32
