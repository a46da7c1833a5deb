"""Parameters at the ends of their ranges for which there is a right value: it is computed, not refused."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

S = mx.sym
X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)


def forward(symbol: mx.sym.Symbol, is_train: bool = True, memory: str | None = None, **arrays: Any) -> np.ndarray:
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", memory=memory,
                                  **{name: np.shape(array) for name, array in arrays.items()})
    return executor.forward(is_train=is_train, **arrays)[0].asnumpy()


def gradient(symbol: mx.sym.Symbol, head: np.ndarray, wrt: str = "x", **arrays: Any) -> np.ndarray:
    executor = symbol.simple_bind(mx.cpu(), **{name: np.shape(array) for name, array in arrays.items()})
    executor.forward(is_train=True, **arrays)
    executor.backward([head])
    return executor.grad_dict[wrt].asnumpy()


# -- dropout ------------------------------------------------------------------------------------------------------
def test_dropout_of_everything_gives_zeros_and_zero_gradients_and_nothing_in_evaluation() -> None:
    data = X.copy()
    data[0, 0], data[1, 1] = np.inf, np.nan
    dropped = S.Dropout(S.Variable("x"), p=1)
    assert not forward(dropped, x=data).any()
    assert not gradient(S.Dropout(S.Variable("x"), p=1.0), np.ones_like(X), x=X).any()
    np.testing.assert_array_equal(forward(dropped, is_train=False, x=X), X)
    assert not forward(S.Dropout(S.Variable("x"), p=1, mode="always"), is_train=False, x=X).any()


def test_dropout_of_everything_between_layers_leaves_the_upper_one_without_input() -> None:
    data = S.Variable("x")
    upper = S.RNN(data=data, state_size=3, num_layers=2, mode="rnn_tanh", p=1.0, name="rnn")
    rng = np.random.default_rng(0)
    shapes, _, _ = upper.infer_shape(x=(4, 2, 5))
    given = {name: rng.normal(size=shape).astype(np.float32)
             for name, shape in zip(upper.list_arguments(), shapes, strict=True)}
    found = forward(upper, **given)
    np.testing.assert_array_equal(found, forward(upper, **{**given, "x": np.zeros_like(given["x"])}))


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(MXNetError, match=r"Dropout drop.*must be in \[0, 1\]"):
        S.Dropout(S.Variable("x"), p=p, name="drop").simple_bind(mx.cpu(), x=(2, 3))


# -- take ---------------------------------------------------------------------------------------------------------
IDS = np.array([[-9, -1, 0], [2, 3, 100]], np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("axis, count", [(0, 2), (1, 3), (-1, 3)])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_brings_indices_into_range_as_it_is_asked(mode: str, axis: int, count: int, kind: type) -> None:
    symbol = S.take(S.Variable("x"), S.Variable("ids", dtype=kind), axis=axis, mode=mode)
    found = forward(symbol, x=X, ids=IDS.astype(kind))
    np.testing.assert_array_equal(found, np.take(X, IDS.astype(int), axis=axis, mode=mode))
    inside = np.clip(IDS, 0, count - 1) if mode == "clip" else IDS % count
    head = np.random.default_rng(0).normal(size=found.shape).astype(np.float32)
    raising = S.take(S.Variable("x"), S.Variable("ids"), axis=axis, mode="raise")
    np.testing.assert_array_equal(gradient(S.take(S.Variable("x"), S.Variable("ids"), axis=axis, mode=mode), head,
                                           x=X, ids=IDS),
                                  gradient(raising, head, x=X, ids=inside))


def test_take_clips_when_nothing_is_said_and_cuts_fractions_off() -> None:
    ids = np.array([-0.9, 0.9, 1.9, 2.5, -1.5], np.float32)
    np.testing.assert_array_equal(forward(S.take(S.Variable("x"), S.Variable("ids")), x=X, ids=ids),
                                  X[[0, 0, 1, 1, 0]])
    np.testing.assert_array_equal(
        forward(S.take(S.Variable("x"), S.Variable("ids"), mode="wrap"), x=X, ids=ids), X[[0, 0, 1, 0, 1]])


def test_take_raises_when_it_is_asked_to_and_for_what_is_no_number() -> None:
    with pytest.raises(MXNetError, match=r"take: index: -9.0 at position \(0, 0\) is outside \[0, 2\)"):
        forward(S.take(S.Variable("x"), S.Variable("ids"), mode="raise"), x=X, ids=IDS)
    with pytest.raises(MXNetError, match="take: index: nan at position"):
        forward(S.take(S.Variable("x"), S.Variable("ids")), x=X, ids=np.array([0, np.nan], np.float32))


# -- nothing at all -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("symbol, shape", [
    (S.slice_axis(S.Variable("x"), axis=0, begin=1, end=1), (0, 3)),
    (S.slice(S.Variable("x"), begin=(0, 2), end=(2, 1)), (2, 0)),
    (S.tile(S.Variable("x"), reps=(0, 2)), (0, 6)), (S.repeat(S.Variable("x"), repeats=0, axis=1), (2, 0)),
    (S.repeat(S.Variable("x"), repeats=0), (0,))])
def test_a_part_without_elements_is_empty_and_has_no_gradient(symbol: mx.sym.Symbol, shape: tuple[int, ...]) -> None:
    for memory in ("plain", "naive", "sublinear"):
        assert forward(symbol, memory=memory, x=X).shape == shape
    assert not gradient(symbol, np.zeros(shape, np.float32), x=X).any()


# -- layers -------------------------------------------------------------------------------------------------------
def test_a_target_shape_of_a_deconvolution_makes_pad_and_adj_count_for_nothing() -> None:
    rng = np.random.default_rng(1)
    given = {"x": rng.normal(size=(1, 2, 4, 4)).astype(np.float32),
             "w": rng.normal(size=(2, 3, 3, 3)).astype(np.float32)}
    made = [S.Deconvolution(S.Variable("x"), S.Variable("w"), kernel=(3, 3), stride=(2, 2), num_filter=3,
                            target_shape=(8, 8), **more) for more in ({}, {"pad": (99, 99), "adj": (101, 101)})]
    first, second = (forward(symbol, **given) for symbol in made)
    assert first.shape == (1, 3, 8, 8)
    np.testing.assert_array_equal(first, second)


def test_no_eps_is_none() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(6, 4)).astype(np.float32)
    given = {"x": x, "g": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    normal = (x - x.mean(0)) / x.std(0)
    found = forward(S.BatchNorm(S.Variable("x"), S.Variable("g"), S.Variable("b"), eps=0, fix_gamma=False), **given)
    np.testing.assert_allclose(found, normal, rtol=1e-4, atol=1e-5)
    found = forward(S.LayerNorm(S.Variable("x"), S.Variable("g"), S.Variable("b"), eps=0), **given)
    np.testing.assert_allclose(found, (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), rtol=1e-4, atol=1e-5)
    found = forward(S.L2Normalization(S.Variable("x"), eps=0), x=x)
    np.testing.assert_allclose(found, x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("momentum, expected", [(1.0, 5.0), (0.0, None)])
def test_a_momentum_of_1_leaves_statistics_alone_and_one_of_0_takes_the_batch(momentum: float,
                                                                              expected: float | None) -> None:
    executor = S.BatchNorm(S.Variable("x"), momentum=momentum, name="bn").simple_bind(mx.cpu(), x=(4, 2))
    executor.aux_dict["bn_moving_mean"][:] = 5
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    executor.forward(is_train=True, x=x)
    executor.backward([np.zeros((4, 2), np.float32)])
    want = x.mean(0) if expected is None else np.full(2, expected)
    np.testing.assert_allclose(executor.aux_dict["bn_moving_mean"].asnumpy(), want)


@pytest.mark.parametrize("params, expected", [
    ({"slope": 2.0}, np.where(X > 0, X, 2 * X)), ({"slope": 0.0}, np.maximum(X, 0)), ({"slope": -1.0}, np.abs(X)),
    ({"act_type": "elu", "slope": 0.0}, np.maximum(X, 0)),
    ({"act_type": "rrelu", "lower_bound": 0.5, "upper_bound": 0.5}, np.where(X > 0, X, X / 2))])
def test_slopes_of_any_size_are_slopes(params: dict[str, Any], expected: np.ndarray) -> None:
    np.testing.assert_allclose(forward(S.LeakyReLU(S.Variable("x"), **params), x=X), expected)


def test_a_clip_whose_bounds_cross_gives_the_upper_one_as_numpy_does() -> None:
    np.testing.assert_array_equal(forward(S.clip(S.Variable("x"), a_min=2, a_max=1), x=X), np.clip(X, 2, 1))


def test_the_k_largest_of_k_0_are_all() -> None:
    found = forward(S.topk(S.Variable("x"), k=0, ret_typ="value"), x=X)
    np.testing.assert_array_equal(found, -np.sort(-X, axis=1))


def test_random_ranges_without_width_give_their_one_value() -> None:
    assert (forward(S.random.uniform(1.5, 1.5, shape=(3, 4))) == 1.5).all()
    assert (forward(S.random.normal(2.5, 0, shape=(3, 4))) == 2.5).all()


@pytest.mark.parametrize("layer", [
    lambda x: S.Pooling(x, kernel=(7, 7), pad=(2, 2), pool_type="max"),
    lambda x: S.Convolution(x, S.Variable("w"), kernel=(7, 7), pad=(2, 2), num_filter=2, no_bias=True)])
def test_a_window_larger_than_the_image_fits_with_its_margins(layer: Any) -> None:
    x = np.random.default_rng(3).normal(size=(1, 2, 4, 4)).astype(np.float32)
    weight = {"w": np.ones((2, 2, 7, 7), np.float32)}
    symbol = layer(S.Variable("x"))
    weighs = "w" in symbol.list_arguments()
    found = forward(symbol, x=x, **(weight if weighs else {}))
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=0 if weighs else -np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), axis=(2, 3))
    want = windows.sum(axis=(1, 4, 5))[:, None].repeat(2, 1) if weighs else windows.max(axis=(4, 5))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
