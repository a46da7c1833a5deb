"""Pooling: exact values at odd sizes, conventions, padding, gradients."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops.pool  # noqa: F401
from minigraph.ops.op import ShapeError
from minigraph.ops.registry import get_op

from .harness import EagerBuilder, gradients, numeric_gradient, parsed, run

RNG = np.random.default_rng(3)
OP = get_op("Pooling")
SQUARE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)


def pool(data, kernel, stride, pad=0, **params):
    params = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (pad,) * 2, **params}
    return run("Pooling", params, [data])[0]


def infer(params, data, out=None):
    (data,), (out,) = OP.infer_shape(parsed(OP, params), [data], [out])
    return data, out


def windows(params, data):
    """Each output index with the slices of its window inside the image, and its count."""
    axes = len(params["kernel"])
    stride, pad = params.get("stride", (1,) * axes), params.get("pad", (0,) * axes)
    _, out = infer(params, data.shape)
    for index in np.ndindex(out[2:]):
        begin = [o * s - p for o, s, p in zip(index, stride, pad, strict=True)]
        end = [b + k for b, k in zip(begin, params["kernel"], strict=True)]
        inside = tuple(slice(max(0, b), min(e, x))
                       for b, e, x in zip(begin, end, data.shape[2:], strict=True))
        padded = [min(e, x + p) - b for b, e, x, p in zip(begin, end, data.shape[2:], pad, strict=True)]
        real = [s.stop - s.start for s in inside]
        yield index, inside, np.prod(real if params.get("count_include_pad") is False else padded)


def direct(params, data):
    """Pooling and its gradient for head ones weighted by position, one window at a time."""
    if params.get("global_pool"):
        params = {"kernel": data.shape[2:], "pool_type": params["pool_type"]}
    _, out_shape = infer(params, data.shape)
    out, grad = np.empty(out_shape), np.zeros(data.shape)
    head = np.arange(1.0, out.size + 1).reshape(out_shape)
    for index, inside, count in windows(params, data):
        for n, c in np.ndindex(data.shape[:2]):
            values, g = data[(n, c, *inside)], head[(n, c, *index)]
            share = grad[(n, c, *inside)]
            if params.get("pool_type", "max") == "max":
                out[(n, c, *index)] = values.max()
                share[np.unravel_index(values.argmax(), values.shape)] += g
            else:
                scale = count if params["pool_type"] == "avg" else 1
                out[(n, c, *index)] = values.sum() / scale
                share += g / scale
    return out, head, grad


def test_full_maximum_with_padding_makes_no_window_of_padding_alone():
    out = pool(SQUARE, 2, 2, 1, pooling_convention="full")
    assert out.shape == (1, 1, 3, 3) and out.ravel().tolist() == [1, 3, 5, 11, 13, 15, 21, 23, 25]


def test_full_rounds_up_and_valid_rounds_down():
    full = pool(SQUARE, 2, 2, pooling_convention="full")
    assert full.ravel().tolist() == [7, 9, 10, 17, 19, 20, 22, 24, 25]
    assert pool(SQUARE, 2, 2).ravel().tolist() == [7, 9, 17, 19]
    assert pool(SQUARE, 3, 3, 1, pooling_convention="full").ravel().tolist() == [7, 10, 22, 25]


def test_padding_never_wins_a_maximum():
    assert pool(-SQUARE, 3, 2, 1).ravel().tolist() == [-1, -2, -4, -6, -7, -9, -16, -17, -19]


def test_an_average_counts_padding_unless_told_not_to():
    counting = pool(SQUARE, 5, 1, 2, pool_type="avg")[0, 0, 0]
    np.testing.assert_allclose(counting, [2.52, 3.6, 4.8, 4.08, 3.24], 1e-6)
    without = pool(SQUARE, 5, 1, 2, pool_type="avg", count_include_pad=False)[0, 0, 0]
    np.testing.assert_allclose(without, [7, 7.5, 8, 8.5, 9], 1e-6)


def test_a_full_average_counts_nothing_beyond_the_image():
    out = pool(SQUARE, 2, 2, pool_type="avg", pooling_convention="full")
    assert out.ravel().tolist() == [4, 6, 7.5, 14, 16, 17.5, 21.5, 23.5, 25]


def test_same_gives_one_window_a_stride():
    out = pool(SQUARE, 2, 2, pooling_convention="same")
    assert out.ravel().tolist() == [7, 9, 10, 17, 19, 20, 22, 24, 25]
    assert infer({"kernel": (2,), "stride": (3,), "pooling_convention": "same"}, (1, 1, 7))[1] == (1, 1, 3)


def test_same_with_a_pad_of_ones_own_is_refused_as_in_mxnet():
    with pytest.raises(ShapeError, match='the convention "same" pads by itself; leave pad out'):
        infer({"kernel": (3,), "pad": (1,), "pooling_convention": "same"}, (1, 1, 7))


def test_a_global_pool_ignores_kernel_stride_and_pad():
    for kind, value in (("max", 25), ("avg", 13), ("sum", 325)):
        out = pool(SQUARE, 9, 4, 20, global_pool=True, pool_type=kind, pooling_convention="full")
        assert out.shape == (1, 1, 1, 1) and out.item() == value


@pytest.mark.parametrize("sample", OP.samples(), ids=str)
def test_outputs_and_gradients_are_those_of_one_window_at_a_time(sample):
    data = RNG.integers(-2, 3, sample.shapes[0]).astype(np.float64)     # many ties
    out, head, grad = direct(sample.params, data)
    found, = run("Pooling", sample.params, [data])
    np.testing.assert_allclose(found, out, 1e-12)
    np.testing.assert_allclose(gradients("Pooling", sample.params, [data], [head])[0], grad, 1e-12)


@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_values_and_gradients_are_those_of_torch(kind, convention):
    torch = pytest.importorskip("torch")
    data = RNG.standard_normal((3, 2, 9, 7)).astype(np.float32)
    x = torch.tensor(data, requires_grad=True)
    function = getattr(torch.nn.functional, f"{kind}_pool2d")
    expected = function(x, (3, 2), (2, 2), (1, 1), ceil_mode=convention == "full")
    params = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 1), "pool_type": kind,
              "pooling_convention": convention}
    out, = run("Pooling", params, [data])
    np.testing.assert_allclose(out, expected.detach().numpy(), 1e-6, 1e-6)
    g = RNG.standard_normal(out.shape).astype(np.float32)
    expected.backward(torch.tensor(g))
    np.testing.assert_allclose(gradients("Pooling", params, [data], [g])[0], x.grad.numpy(), 1e-6, 1e-6)


def test_the_gradient_is_that_of_central_differences():
    data = RNG.permutation(24).reshape(1, 2, 4, 3) / 10
    for kind in ("max", "avg", "sum"):
        params = {"kernel": (2, 2), "stride": (1, 2), "pad": (1, 0), "pool_type": kind}
        g = RNG.standard_normal(run("Pooling", params, [data])[0].shape)
        found, = gradients("Pooling", params, [data], [g])
        np.testing.assert_allclose(found, numeric_gradient("Pooling", params, [data], 0, g), 1e-6, 1e-8)


def test_a_tie_gives_the_whole_gradient_to_the_first_element():
    data = np.ones((1, 1, 4, 4), np.float32)
    two = {"kernel": (2, 2), "stride": (2, 2)}
    for params in (two, {**two, "global_pool": True}):
        out, = run("Pooling", params, [data])
        grad, = gradients("Pooling", params, [data], [np.ones_like(out)])
        assert grad.sum() == out.size and grad[0, 0, 0, 0] == 1 and grad[0, 0, 1].sum() == 0


def test_averages_do_not_read_data_backward():
    for params in ({"kernel": (2, 2), "pool_type": "avg"}, {"global_pool": True, "pool_type": "avg"}):
        op = get_op("_pooling_backward")
        p = parsed(op, params)
        assert op.inputs(p) == ("out_grad", "data") and op.unread(p) == (1,)
        out, = run("Pooling", params, [SQUARE])
        grad, = run("_pooling_backward", params, [np.ones_like(out), np.full_like(SQUARE, np.nan)])
        assert np.isfinite(grad).all()


def test_an_empty_batch_gives_empty_outputs_and_gradients():
    for params in ({"kernel": (2, 2)}, {"global_pool": True}, {"global_pool": True, "pool_type": "avg"},
                   {"kernel": (2, 2), "pool_type": "avg", "pad": (1, 1), "count_include_pad": False}):
        data = np.empty((0, 3, 5, 5))
        out, = run("Pooling", params, [data])
        assert out.shape[:2] == (0, 3)
        assert gradients("Pooling", params, [data], [out])[0].shape == data.shape


def test_no_gradient_is_computed_that_nobody_wants():
    b = EagerBuilder()
    assert gradients("Pooling", {"kernel": (2, 2)}, [SQUARE], [np.ones((1, 1, 4, 4))], [False], b) == [None]
    assert gradients("Pooling", {"kernel": (2, 2)}, [SQUARE], [None]) == [None]
    assert "_pooling_backward" not in b.ops


def test_batch_and_channels_follow_from_the_output():
    params = {"kernel": (2, 2), "stride": (2, 2)}
    assert infer(params, (None, None, 6, None), (4, 3, None, 5)) == ((4, 3, 6, None), (4, 3, 3, 5))
    assert infer(params, None) == ((None,) * 4, (None,) * 4)
    assert infer({"global_pool": True}, None) == (None, None)


@pytest.mark.parametrize("params, data, message", [
    ({"kernel": (2, 2), "pad": (2, 0)}, (1, 1, 5, 5), r"pad \(2, 0\) must be smaller than kernel \(2, 2\)"),
    ({"kernel": (6, 2)}, (1, 1, 5, 5), r"kernel \(6, 2\) is larger than data \(1, 1, 5, 5\)"),
    ({"kernel": (2,)}, (1, 1, 5, 5), "of 4 axes; a kernel of 1 axes"),
    ({}, (1, 1, 5, 5), "a window over 0 spatial axes")])
def test_errors_name_what_was_given_and_what_was_expected(params, data, message):
    with pytest.raises(ShapeError, match=message):
        infer(params, data)
