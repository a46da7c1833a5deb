"""FullyConnected: values, shapes both ways, chunked gradients."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops.dense  # noqa: F401
from minigraph.ops.op import ShapeError
from minigraph.ops.registry import get_op

from .harness import EagerBuilder, gradients, parsed, run

RNG = np.random.default_rng(5)
OP = get_op("FullyConnected")


def infer(params, ins, outs=(None,)):
    return OP.infer_shape(parsed(OP, params), list(ins), list(outs))


@pytest.mark.parametrize("sample", OP.samples(), ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_outputs_and_gradients_are_the_products_written_out(sample, dtype, tolerance):
    arrays = [RNG.standard_normal(s).astype(dtype) for s in sample.shapes]
    x, w = arrays[0].astype(np.float64), arrays[1].astype(np.float64)
    rows = x.reshape(-1, w.shape[1])
    expected = rows @ w.T + (arrays[2] if len(arrays) > 2 else 0)
    out, = run("FullyConnected", sample.params, arrays)
    assert out.dtype == dtype
    np.testing.assert_allclose(out.reshape(expected.shape), expected, tolerance, tolerance)
    g = RNG.standard_normal(out.shape).astype(dtype)
    found = gradients("FullyConnected", sample.params, arrays, [g])
    g64 = g.astype(np.float64).reshape(expected.shape)
    for got, want in zip(found, [(g64 @ w).reshape(x.shape), g64.T @ rows, g64.sum(0)], strict=False):
        np.testing.assert_allclose(got, want, tolerance, tolerance)


def test_flatten_false_keeps_the_leading_axes():
    out, = run("FullyConnected", {"num_hidden": 2, "flatten": False, "no_bias": True},
               [np.ones((2, 3, 4)), np.ones((2, 4))])
    assert out.shape == (2, 3, 2) and (out == 4).all()


def test_weight_and_bias_shapes_follow_from_data():
    assert infer({"num_hidden": 7}, [(3, 4, 5), None, None]) == ([(3, 4, 5), (7, 20), (7,)], [(3, 7)])


def test_batch_and_features_follow_from_output_and_weight():
    assert infer({"num_hidden": 7, "no_bias": True}, [(None, 4, None), (7, 20)], [(3, 7)])[0][0] == (3, 4, 5)
    params = {"num_hidden": 7, "flatten": False, "no_bias": True}
    assert infer(params, [None, (7, 20)], [(3, 2, 7)])[0][0] == (3, 2, 20)


def test_nothing_known_is_no_error():
    ins, outs = infer({"num_hidden": 7}, [None, None, None])
    assert ins == [None, (7, None), (7,)] and outs == [(None, 7)]
    assert infer({"num_hidden": 7, "flatten": False}, [None, None, None])[1] == [None]


def test_a_wrong_weight_is_named_with_both_shapes():
    with pytest.raises(ShapeError, match=r"weight has shape \(7, 19\).*\(3, 4, 5\).*\(7, 20\)"):
        infer({"num_hidden": 7}, [(3, 4, 5), (7, 19), None])


def test_an_empty_batch_gives_empty_outputs_and_zero_parameter_gradients():
    arrays = [np.empty((0, 2, 3)), np.ones((4, 6)), np.ones(4)]
    out, = run("FullyConnected", {"num_hidden": 4}, arrays)
    assert out.shape == (0, 4)
    data, weight, bias = gradients("FullyConnected", {"num_hidden": 4}, arrays, [out])
    assert data.shape == (0, 2, 3) and not weight.any() and not bias.any()


def test_slices_at_chunk_boundaries_have_the_bits_of_the_whole():
    x, w, b = (RNG.standard_normal(s).astype(np.float32) for s in ((300, 37), (11, 37), (11,)))
    whole, = run("FullyConnected", {"num_hidden": 11}, [x, w, b])
    parts = [run("FullyConnected", {"num_hidden": 11}, [x[s:s + 128], w, b])[0] for s in (0, 128, 256)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_only_wanted_gradients_are_computed_parameters_before_data():
    arrays = [np.ones((2, 3)), np.ones((4, 3)), np.ones(4)]
    b = EagerBuilder()
    gradients("FullyConnected", {"num_hidden": 4}, arrays, [np.ones((2, 4))], builder=b)
    assert [op.rsplit("_", 1)[1] for op in b.ops[1:]] == ["bias", "weight", "data"]
    found = gradients("FullyConnected", {"num_hidden": 4}, arrays, [np.ones((2, 4))], [False, True, False])
    assert found[0] is None and found[2] is None and found[1] is not None
    assert gradients("FullyConnected", {"num_hidden": 4}, arrays, [None]) == [None] * 3
