"""Reductions."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op
from minigraph.ops.chunks import chunk_rows

from .harness import gradients, numeric_gradient, parsed, run

X = np.random.default_rng(0).normal(size=(4, 3, 5))
CASES = [({}, None, False), ({"axis": 1}, (1,), False), ({"axis": "(0, 2)"}, (0, 2), False),
         ({"axis": -1, "keepdims": True}, (2,), True), ({"axis": 1, "exclude": True}, (0, 2), False),
         ({"axis": (), "keepdims": True}, None, True)]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("params, axis, keepdims", CASES)
def test_reductions_equal_numpy_with_their_gradients(name, params, axis, keepdims):
    want = np.atleast_1d(getattr(np, name)(X, axis=axis, keepdims=keepdims))
    (out,) = run(name, params, [X])
    assert out.shape == want.shape
    np.testing.assert_allclose(out, want, rtol=1e-13, atol=1e-14)
    g = np.random.default_rng(1).normal(size=out.shape)
    (found,) = gradients(name, params, [X], [g])
    np.testing.assert_allclose(found, numeric_gradient(name, params, [X], 0, g), rtol=1e-6, atol=1e-8)


def test_every_element_equal_to_the_extremum_gets_the_gradient():
    (found,) = gradients("max", {"axis": 1}, [np.array([[2.0, 1.0, 2.0]])], [np.array([3.0])])
    assert found.tolist() == [[3, 0, 3]]


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_do_not_lose_small_terms(axis):
    x = np.full((1 << 18, 2), 0.1, np.float32)
    x = x if axis == 0 else np.ascontiguousarray(x.T).reshape(1, 2, -1).transpose(0, 2, 1).copy()
    (out,) = run("sum", {"axis": axis}, [x])
    np.testing.assert_allclose(out, np.float64(np.float32(0.1)) * (1 << 18), rtol=2e-6)


def test_a_batch_sum_is_its_canonical_chunks_added_in_order():
    x = np.random.default_rng(2).random((1000, 7), np.float32)
    rows = chunk_rows(x[0].nbytes)
    total = np.zeros(7)
    for start in range(0, 1000, rows):
        total += run("sum", {"axis": 0}, [x[start:start + rows]])[0]
    assert run("sum", {"axis": 0}, [x])[0].tobytes() == total.astype(np.float32).tobytes()


def test_wrong_axes_are_named():
    op = get_op("sum")
    for axis, message in ((3, "axis 3"), ((1, -1), "twice")):
        with pytest.raises(ShapeError, match=message):
            op.infer_shape(parsed(op, {"axis": axis}), [(2, 3)], [None])


def test_empty_batches_sum_to_zero_and_have_no_maximum():
    empty = np.zeros((0, 3), np.float32)
    assert run("sum", {"axis": 0}, [empty])[0].tolist() == [0, 0, 0]
    assert run("sum", {"axis": 1}, [empty])[0].shape == (0,)
    with pytest.raises(MXNetError, match="no elements"):
        run("max", {"axis": 0}, [empty])
