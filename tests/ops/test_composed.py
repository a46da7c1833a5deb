"""Operators that are made of others: values in closed form, names, and what is refused."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

V = mx.sym.Variable


def values(symbol: mx.sym.Symbol, **arrays: Any) -> list[np.ndarray]:
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    types = {name: a.dtype if a.dtype == np.uint8 else np.float32 for name, a in arrays.items()}
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", type_dict=types,
                                  **{name: a.shape for name, a in arrays.items()})
    for name, a in arrays.items():
        executor.arg_dict[name][:] = a
    return [out.asnumpy() for out in executor.forward()]


def test_parts_begin_at_0_and_at_each_index():
    parts = mx.sym.split_v2(V("x"), (1, 3), axis=1)
    assert parts.infer_shape(x=(2, 6))[1] == [(2, 1), (2, 2), (2, 3)]
    first, second, third = values(parts, x=np.arange(12).reshape(2, 6))
    assert (first.tolist(), second.tolist(), third.tolist()) == (
        [[0], [6]], [[1, 2], [7, 8]], [[3, 4, 5], [9, 10, 11]])
    assert mx.sym.split_v2(V("x"), 3, squeeze_axis=True).infer_shape(x=(3, 2))[1] == [(2,)] * 3
    with pytest.raises(MXNetError, match="length 6 cannot be cut into 4 equal parts"):
        mx.sym.split_v2(V("x"), 4, axis=1).infer_shape(x=(2, 6))
    with pytest.raises(MXNetError, match="do not ascend within it"):
        mx.sym.split_v2(V("x"), (3, 1), axis=1).infer_shape(x=(2, 6))


def test_a_picture_of_bytes_becomes_a_normalised_tensor():
    picture = np.full((2, 3, 3), 51, np.uint8)
    made = mx.sym.image.normalize(mx.sym.image.to_tensor(V("x")), mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 0.5))
    found, = values(made, x=picture)
    assert found.dtype == np.float32 and found.shape == (3, 2, 3)
    np.testing.assert_allclose(found[:, 0, 0], [0.1, 0.0, -0.2], atol=1e-6)
    with pytest.raises(MXNetError, match="has 2 numbers for 3 channels"):
        mx.sym.image.normalize(V("x"), mean=(0.1, 0.2)).infer_shape(x=(3, 2, 2))


def test_groups_of_channels_have_mean_0_and_deviation_1():
    x = np.random.default_rng(0).uniform(-3, 5, (2, 6, 4, 4))
    made = mx.sym.GroupNorm(V("x"), V("g"), V("b"), num_groups=3, eps=1e-5, output_mean_var=True, name="gn")
    assert made.list_outputs() == ["gn_output", "gn_mean", "gn_std"]
    out, mean, std = values(made, x=x, g=np.ones(3), b=np.zeros(3))
    groups = x.reshape(2, 3, -1)
    np.testing.assert_allclose(mean, groups.mean(2), rtol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(groups.var(2) + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(out.reshape(2, 3, -1).std(2), 1, rtol=1e-4)


def test_a_gradient_multiplier_turns_the_gradient_round():
    executor = mx.sym.contrib.gradientmultiplier(V("x"), scalar=-2.0).simple_bind(mx.cpu(), x=(3,))
    executor.arg_dict["x"][:] = [1, 2, 3]
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [1, 2, 3]
    executor.backward([mx.nd.ones((3,))])
    assert executor.grad_dict["x"].asnumpy().tolist() == [-2, -2, -2]


def test_one_head_of_interleaved_attention_is_plain_attention():
    rng = np.random.default_rng(1)
    q, k, v = rng.uniform(-1, 1, (3, 4, 2, 3))
    packed = np.concatenate([q, k, v], 2)
    x = V("x")
    scores = mx.sym.contrib.interleaved_matmul_selfatt_qk(x, heads=1)
    out = mx.sym.contrib.interleaved_matmul_selfatt_valatt(x, mx.sym.softmax(scores), heads=1)
    found, = values(out, x=packed)
    for n in range(2):
        logits = np.exp(q[:, n] @ k[:, n].T / np.sqrt(3))
        np.testing.assert_allclose(found[:, n], logits / logits.sum(1, keepdims=True) @ v[:, n], rtol=1e-5)


def test_matrices_of_one_rank_multiply_and_others_are_refused():
    made = mx.sym.linalg.gemm(V("a"), V("b"), V("c"), transpose_b=True, alpha=2.0, beta=-1.0)
    a, b, c = np.ones((2, 3)), np.full((4, 3), 2.0), np.full((2, 4), 5.0)
    assert values(made, a=a, b=b, c=c)[0].tolist() == [[7.0] * 4] * 2
    with pytest.raises(MXNetError, match=r"summed over axes of lengths 3 and 2"):
        mx.sym.linalg.gemm2(V("a"), V("b")).infer_shape(a=(2, 3), b=(2, 3))
    with pytest.raises(MXNetError, match="are not square"):
        mx.sym.linalg.sumlogdiag(V("a")).infer_shape(a=(2, 3))
    with pytest.raises(MXNetError, match="transpose the operands"):
        mx.sym.linalg.gemm2(V("a"), V("b"), axis=1).infer_shape(a=(2, 3, 4, 5), b=(2, 3, 5, 4))


def test_images_are_resized_between_centres_or_corners_as_mxnet_does():
    x = np.arange(6.0).reshape(1, 1, 2, 3)
    size = {"height": 3, "width": 4}
    found, = values(mx.sym.contrib.BilinearResize2D(V("x"), **size), x=x)
    np.testing.assert_allclose(found[0, 0], [[0, 2 / 3, 4 / 3, 2], [1.5, 13 / 6, 17 / 6, 3.5], [3, 11 / 3, 13 / 3, 5]],
                               rtol=1e-6)
    found, = values(mx.sym.contrib.BilinearResize2D(V("x"), align_corners=False, **size), x=x)
    np.testing.assert_allclose(found[0, 0], [[0, 0.625, 1.375, 2], [1.5, 2.125, 2.875, 3.5], [3, 3.625, 4.375, 5]],
                               rtol=1e-6)
    with pytest.raises(MXNetError, match="would become 2 x 0 pixels"):
        mx.sym.contrib.BilinearResize2D(V("x"), scale_height=0.5, scale_width=0.1).infer_shape(x=(1, 1, 4, 5))


def test_adaptive_pooling_takes_means_of_overlapping_stretches():
    found, = values(mx.sym.contrib.AdaptiveAvgPooling2D(V("x"), output_size=2), x=np.arange(9.0).reshape(1, 1, 3, 3))
    assert found[0, 0].tolist() == [[2, 3], [5, 6]]
    with pytest.raises(MXNetError, match="give height and width, at least 1 each"):
        mx.sym.contrib.AdaptiveAvgPooling2D(V("x"), output_size=(0, 2)).infer_shape(x=(1, 1, 3, 3))


@pytest.mark.parametrize("axis,temperature", [(1, None), (-1, 2.0), (0, None)])
def test_a_softmax_of_given_lengths_is_that_of_the_numbers_that_count(axis, temperature):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3, 4, 5)).astype(np.float32)
    length = draw.integers(0, x.shape[axis] + 1, np.delete(x.shape, axis))
    length.flat[:2] = 0, x.shape[axis]
    expected = np.zeros_like(x, np.float64)
    for at in np.ndindex(length.shape):
        row = np.moveaxis(x, axis, -1)[at][:length[at]].astype(np.float64) / (temperature or 1)
        if len(row):
            e = np.exp(row - row.max())
            np.moveaxis(expected, axis, -1)[at][:length[at]] = e / e.sum()
    symbol = mx.sym.softmax(V("x"), V("length"), axis=axis, temperature=temperature, use_length=True)
    (found,) = values(symbol, x=x, length=length)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    on_array = mx.nd.softmax(mx.nd.array(x), mx.nd.array(length, dtype="int32"), axis=axis, temperature=temperature,
                             use_length=True)
    np.testing.assert_allclose(on_array.asnumpy(), expected, atol=1e-6)
    mx.test_utils.check_numeric_gradient(symbol, {"x": x.astype(np.float64), "length": length}, rtol=1e-4)
    assert symbol.infer_shape(x=(3, 4, 5))[0][1] == length.shape


def test_positions_and_coordinates_are_each_others_inverse():
    coordinates = np.array([[3, 6, 6], [4, 5, 1]])
    (numbers,) = values(mx.sym.ravel_multi_index(V("x"), shape=(7, 6)), x=coordinates)
    assert numbers.tolist() == [22, 41, 37]
    (again,) = values(mx.sym.unravel_index(V("x"), shape=(-1, 6)), x=numbers)
    assert again.tolist() == coordinates.tolist()
    large = np.array([2**40 + 5, 7])
    on_array = mx.nd.unravel_index(mx.nd.array(large, dtype="int64"), shape=(-1, 2**20, 3))
    assert on_array.dtype == np.int64
    assert on_array.asnumpy().tolist() == [list(a) for a in np.unravel_index(large, (2**21, 2**20, 3))]
    assert mx.nd.ravel_multi_index(on_array, shape=(2**21, 2**20, 3)).asnumpy().tolist() == large.tolist()
    assert mx.sym.unravel_index(V("x"), shape=(2, 3)).infer_shape(x=(4, 5))[1] == [(2, 4, 5)]
    for wrong in ((0, 3), (2, -1), ()):
        with pytest.raises(MXNetError, match="must have dimensions of 1 or more"):
            mx.sym.unravel_index(V("x"), shape=wrong).infer_shape(x=(4,))
    with pytest.raises(MXNetError, match="a row for each axis"):
        mx.sym.ravel_multi_index(V("x"), shape=(2, 3)).infer_shape(x=(3, 4))


def test_one_element_of_each_row_is_taken():
    (found,) = values(mx.sym.batch_take(V("a"), V("i")), a=np.arange(6).reshape(3, 2), i=[1, 0, 1])
    assert found.tolist() == [1, 2, 5]
    assert mx.sym.batch_take(V("a"), V("i")).infer_shape(a=(3, 2))[0] == [(3, 2), (3,)]


def test_what_is_not_finite_is_found():
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    for name, expected in (("isnan", [0, 1, 0, 0]), ("isinf", [0, 0, 1, 1]), ("isfinite", [1, 0, 0, 0])):
        (found,) = values(getattr(mx.sym.contrib, name)(V("x")), x=x)
        assert found.tolist() == getattr(mx.nd.contrib, name)(mx.nd.array(x)).asnumpy().tolist() == expected
    assert mx.nd.contrib.isinf(mx.nd.array([1, 2], dtype="int32")).asnumpy().tolist() == [0, 0]
    for wrong in x[1:]:
        assert values(mx.sym.all_finite(V("x")), x=[0, wrong])[0].tolist() == [0]
        several = mx.nd.multi_all_finite(mx.nd.ones((2, 2)), mx.nd.array([1, wrong]), num_arrays=2)
        assert several.asnumpy().tolist() == [0]
    assert values(mx.sym.all_finite(V("x")), x=[[0, 1e38]])[0].tolist() == [1]
    assert mx.nd.multi_all_finite(mx.nd.ones(2, dtype="float16"), num_arrays=1).dtype == np.float32
    with pytest.raises(MXNetError, match="init_output"):
        mx.nd.all_finite(mx.nd.ones(2), init_output=False)


def test_constant_numbers_are_made_of_others():
    assert values(mx.sym.eye(2, 3, 1))[0].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert values(mx.sym.linspace(1, 2, 5))[0].tolist() == [1, 1.25, 1.5, 1.75, 2]
    assert values(mx.sym.linspace(1, 2, 4, endpoint=False))[0].tolist() == [1, 1.25, 1.5, 1.75]
    assert values(mx.sym.linspace(3, 5, 1))[0].tolist() == [3]
    assert mx.sym.eye(2, dtype="float64").infer_type()[1] == [np.float64]
    assert mx.nd._internal._eye(N=2, k=-1, dtype="int32").asnumpy().tolist() == [[0, 0], [1, 0]]
    with pytest.raises(MXNetError, match="at least 1"):
        mx.sym.eye(0).infer_shape()


@pytest.mark.parametrize("name,log", [("softmax", False), ("log_softmax", True), ("softmin", False)])
def test_a_softmax_of_another_dtype_is_computed_in_the_wider_one(name, log):
    x = np.array([[1.0, 2.5, -3.0]])
    e = np.exp(-x if name == "softmin" else x)
    expected = np.log(e / e.sum()) if log else e / e.sum()
    for given, wanted, rtol in (("float16", "float32", 1e-6), ("float32", "float64", 1e-14),
                                ("float64", "float32", 1e-6)):
        found = getattr(mx.nd, name)(mx.nd.array(x, dtype=given), dtype=wanted)
        assert found.dtype == np.dtype(wanted)
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=rtol)
    symbol = getattr(mx.sym, name)(V("x"), dtype="float64")
    assert symbol.infer_type(x="float32")[1] == [np.float64]
    mx.test_utils.check_numeric_gradient(symbol, {"x": x}, rtol=1e-4)


def test_a_shape_is_learnt_from_the_one_that_is_like_it():
    weight = V("weight")
    like = mx.sym._internal._identity_with_attr_like_rhs(mx.sym.broadcast_add(weight, V("shift", shape=(1,))), weight)
    net = mx.sym.FullyConnected(V("data"), weight=like, num_hidden=11, no_bias=True)
    assert net.infer_shape(data=(7, 100))[0] == [(7, 100), (11, 100), (1,)]


def test_names_of_old_files_and_of_exports_are_those_of_the_same_operators():
    joined = mx.sym._rnn_param_concat(V("a"), V("b"), dim=0, name="p")
    assert joined.infer_shape(a=(6,), b=(4,))[1] == [(10,)]
    assert mx.sym.load_json(joined.tojson()).tojson() == joined.tojson()
    assert mx.sym.BatchNorm_v1(V("x"), name="bn").list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
