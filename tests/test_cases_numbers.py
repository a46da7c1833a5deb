"""Exact numbers at the edges, run as programs in every memory mode: pooling, cross-entropy, indices, LayerNorm."""
from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.passes.compilation import MEMORY_MODES

Symbol = mx.sym.Symbol
every_mode = pytest.mark.parametrize("memory", MEMORY_MODES)


def bound(symbol: Symbol, memory: str, dtype: Any = np.float32, fixed: tuple[str, ...] = ("label", "ids"),
          types: dict[str, Any] | None = None, **values: Any) -> Any:
    """An executor over poisoned memory with arguments of these values; those in `fixed` get no gradient."""
    names = symbol.list_arguments()
    executor = symbol.simple_bind(
        mx.cpu(), grad_req={n: "null" if n in fixed else "write" for n in names}, memory=memory, poison=True,
        type_dict={**dict.fromkeys(names, dtype), **(types or {})},
        **{name: np.shape(value) for name, value in values.items()})
    for name, value in values.items():
        executor.arg_dict[name][:] = value
    return executor


def trained(executor: Any, head: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """First output and first gradient of a training step; the head gradient is ones if not given."""
    out = executor.forward(is_train=True)[0].asnumpy()
    executor.backward(np.ones(out.shape) if head is None else head)
    return out, next(g for g in executor.grad_dict.values() if g is not None).asnumpy()


# -- pooling -------------------------------------------------------------------------------------------------
SQUARE = np.arange(1.0, 26).reshape(1, 1, 5, 5)


def pooled(kernel: int, stride: int, pad: int = 0, convention: str = "valid", **params: Any) -> Symbol:
    return mx.sym.Pooling(mx.sym.Variable("x"), kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2,
                          pooling_convention=convention, **{"pool_type": "max", **params})


AVERAGE = {"pool_type": "avg"}
POOLED: list[tuple[Symbol, int, list[float]]] = [
    (pooled(2, 2, 1, "full"), 1, [1, 3, 5, 11, 13, 15, 21, 23, 25]),
    (pooled(2, 2, 0, "full"), 1, [7, 9, 10, 17, 19, 20, 22, 24, 25]), (pooled(2, 2), 1, [7, 9, 17, 19]),
    (pooled(3, 3, 1, "full"), 1, [7, 10, 22, 25]),
    (pooled(3, 2, 1), -1, [-1, -2, -4, -6, -7, -9, -16, -17, -19]),
    (pooled(5, 1, 2, **AVERAGE), 1, [2.52, 3.6, 4.8, 4.08, 3.24]),
    (pooled(5, 1, 2, count_include_pad=False, **AVERAGE), 1, [7, 7.5, 8, 8.5, 9]),
    (pooled(2, 2, 0, "full", **AVERAGE), 1, [4, 6, 7.5, 14, 16, 17.5, 21.5, 23.5, 25])]


@every_mode
@pytest.mark.parametrize("case", range(len(POOLED)))
def test_pooling_of_a_five_by_five_image_gives_these_numbers(memory: str, case: int) -> None:
    symbol, sign, expected = POOLED[case]
    executor = bound(symbol, memory, np.float64, x=sign * SQUARE)
    head = np.random.default_rng(case).uniform(-1, 1, executor.output_types[0].shape)
    out, gradient = trained(executor, head)
    assert out.shape == symbol.infer_shape(x=SQUARE.shape)[1][0]
    np.testing.assert_allclose(out.ravel()[:len(expected)], expected, 1e-12)
    numeric = np.zeros(25)
    for i in range(25):     # a step far below the distance of the values, which decides no maximum anew
        step = np.zeros(25)
        step[i] = 1e-3
        values = [bound_forward(executor, sign * SQUARE + s * step.reshape(SQUARE.shape)) for s in (1, -1)]
        numeric[i] = ((values[0] - values[1]) * head).sum() / 2e-3
    np.testing.assert_allclose(gradient.ravel(), numeric, 1e-9, 1e-10)


def bound_forward(executor: Any, x: np.ndarray) -> np.ndarray:
    return executor.forward(x=x)[0].asnumpy()


@pytest.mark.parametrize("convention", ["valid", "full", "same"])
def test_no_window_holds_padding_alone(convention: str) -> None:
    """Every window of every small geometry has an element of the image, so no maximum is -inf or padding."""
    for length, kernel, stride in product(range(1, 8), range(1, 5), range(1, 5)):
        for pad in range(kernel):
            if length + 2 * pad < kernel or (convention == "same" and pad):
                continue
            symbol = mx.sym.Pooling(mx.sym.Variable("x"), kernel=(kernel,), stride=(stride,), pad=(pad,),
                                    pool_type="max", pooling_convention=convention)
            x = -np.arange(1.0, length + 1).reshape(1, 1, -1)
            executor = bound(symbol, "plain", np.float64, x=x)
            out = bound_forward(executor, x).ravel()
            starts = np.arange(out.size) * stride - pad
            assert starts[-1] < length
            assert out.tolist() == [x.ravel()[max(s, 0)] for s in starts]


# -- cross-entropy -------------------------------------------------------------------------------------------
def logits_and_label() -> tuple[Symbol, Symbol]:
    return mx.sym.Variable("x"), mx.sym.Variable("label")


LOSSES: dict[str, Callable[[Symbol, Symbol], Symbol]] = {
    "softmax_cross_entropy": mx.sym.softmax_cross_entropy,
    "log_softmax and pick": lambda x, label: -mx.sym.pick(mx.sym.log_softmax(x), label),
    "log_softmax and one_hot": lambda x, label: -mx.sym.sum(
        mx.sym.log_softmax(x) * mx.sym.one_hot(label, depth=4), axis=1)}
EXTREMES: list[tuple[list[float], int, float, list[float]]] = [
    ([100, -21], 1, 121, [1, -1]), ([1e8, 1e8], 1, 0.6931472, [.5, -.5]), ([-431, 279, 427], 0, 858, [-1, 0, 1]),
    ([-1047, -981, 1891], 0, 2938, [-1, 0, 1]), ([0, 0, 0, 0], 2, 1.3862944, [.25, .25, -.75, .25])]


@every_mode
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logits, label, loss, gradient", EXTREMES)
def test_cross_entropy_is_exact_at_extreme_logits(memory: str, dtype: Any, logits: list[float], label: int,
                                                  loss: float, gradient: list[float]) -> None:
    for name, make in LOSSES.items():
        if "one_hot" in name and (len(logits) != 4 or dtype != np.float32):
            continue
        executor = bound(make(*logits_and_label()), memory, dtype, x=[logits], label=[label])
        out, found = trained(executor)
        np.testing.assert_allclose(out, [loss], 1e-7, err_msg=name)
        np.testing.assert_allclose(found, [gradient], 1e-7, 1e-12, err_msg=name)
    executor = bound(mx.sym.SoftmaxOutput(*logits_and_label()), memory, dtype, x=[logits], label=[label])
    out, found = trained(executor)
    hot = np.eye(len(logits))[label]
    np.testing.assert_allclose(out, [np.array(gradient) + hot], 1e-7, 1e-12)
    np.testing.assert_allclose(found, [gradient], 1e-7, 1e-12)


def test_the_logarithm_of_a_softmax_is_no_loss_for_extreme_logits() -> None:
    """What softmax documents: the probability of the label is 0 there, and its logarithm infinite."""
    x, label = logits_and_label()
    executor = bound(-mx.sym.pick(mx.sym.log(mx.sym.softmax(x)), label), "plain", x=[[100, -21]], label=[1])
    assert executor.forward()[0].asnumpy().tolist() == [np.inf]
    out, found = trained(bound(-mx.sym.pick(mx.sym.log(mx.sym.softmax(x)), label), "plain",
                               x=[[1, -1]], label=[1]))
    np.testing.assert_allclose(out, [2.126928], 1e-6)
    np.testing.assert_allclose(found, [[0.880797, -0.880797]], 1e-6)


# -- indices out of range ------------------------------------------------------------------------------------
def lookup() -> Symbol:
    return mx.sym.Embedding(mx.sym.Variable("ids"), weight=mx.sym.Variable("w"), input_dim=5, output_dim=3)


WEIGHT = np.arange(15.0).reshape(5, 3)


@every_mode
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_ids_out_of_range_raise_with_position_and_value(memory: str, dtype: Any) -> None:
    executor = bound(lookup(), memory, types={"ids": dtype}, w=WEIGHT, ids=[0, 4])
    for bad in (-1, 5, 2147483647, -2147483648):
        shown = np.asarray(bad, dtype)
        for train in (False, True):
            with pytest.raises(MXNetError, match=rf"Embedding: index: {shown} at position \(1,\) is outside \[0, 5\)"):
                executor.forward(is_train=train, ids=np.array([4, bad], dtype))
            assert executor.arg_dict["w"].asnumpy().tolist() == WEIGHT.tolist()
            # Nothing that is kept was changed, so the next run needs no mending.
            assert executor.forward(ids=np.array([0, 4], dtype))[0].asnumpy().tolist() == WEIGHT[[0, 4]].tolist()
    out = executor.forward(is_train=True, ids=np.array([0, 4], dtype))[0].asnumpy()
    assert out.tolist() == WEIGHT[[0, 4]].tolist()
    executor.backward(np.ones((2, 3)))
    assert executor.grad_dict["w"].asnumpy().sum(1).tolist() == [3, 0, 0, 0, 3]


@every_mode
@pytest.mark.parametrize("wrong", ["first", "second"])
def test_the_error_tells_which_of_two_readers_of_numbers_it_was(memory: str, wrong: str) -> None:
    looks = [mx.sym.Embedding(mx.sym.Variable(f"{name}_ids"), input_dim=5, output_dim=3, name=name)
             for name in ("first", "second")]
    executor = bound(looks[0] + looks[1], memory, first_ids=[0, 1], second_ids=[0, 1], first_weight=WEIGHT,
                     second_weight=WEIGHT)
    with pytest.raises(MXNetError, match=f"{wrong}.*: Embedding: index: 7.0 at position"):
        executor.forward(**{f"{wrong}_ids": np.array([0, 7])})


@every_mode
def test_fractions_of_ids_are_cut_off_forward_and_backward_and_nan_raises(memory: str) -> None:
    executor = bound(lookup(), memory, w=WEIGHT, ids=[1.5, 4.9])
    out, gradient = trained(executor)
    assert out.tolist() == WEIGHT[[1, 4]].tolist()
    assert executor.grad_dict["w"].asnumpy().sum(1).tolist() == [0, 3, 0, 0, 3]
    with pytest.raises(MXNetError, match=r"Embedding: index: nan at position \(0,\)"):
        executor.forward(ids=np.array([np.nan, 0]))


READERS: dict[str, tuple[Callable[[Symbol, Symbol], Symbol], str]] = {
    "SoftmaxOutput": (mx.sym.SoftmaxOutput, "label"), "pick": (mx.sym.pick, "index"),
    "softmax_cross_entropy": (mx.sym.softmax_cross_entropy, "label"),
    "take": (lambda x, ids: mx.sym.take(x, ids, axis=1, mode="raise"), "index"),
    "one_hot": (lambda x, ids: x + mx.sym.one_hot(ids, depth=10), "index")}


@every_mode
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("bad", [10, -1, -100])
def test_labels_beyond_the_classes_raise_with_position_and_value(memory: str, reader: str, bad: int) -> None:
    make, what = READERS[reader]
    executor = bound(make(*logits_and_label()), memory, x=np.zeros((3, 10)), label=[1, bad, 2])
    with pytest.raises(MXNetError, match=rf"{reader}: {what}: {bad}.0 at position \(1,\) is outside \[0, 10\)"):
        trained(executor)


@every_mode
@pytest.mark.parametrize("ignored", [-1, -100, 10])
def test_an_ignored_label_gives_its_row_no_gradient(memory: str, ignored: int) -> None:
    loss = mx.sym.SoftmaxOutput(*logits_and_label(), use_ignore=True, ignore_label=ignored, normalization="valid")
    _, gradient = trained(bound(loss, memory, x=np.zeros((3, 10)), label=[1, ignored, 2]))
    expected = (0.1 - np.eye(10)[[1, 0, 2]]) / 2
    expected[1] = 0
    np.testing.assert_allclose(gradient, expected, 1e-6)


# -- LayerNorm -----------------------------------------------------------------------------------------------
def normalised(rows: Any, memory: str) -> tuple[np.ndarray, Any]:
    """LayerNorm of an inner value in float32, and its executor."""
    x = mx.sym.Variable("x") * 1
    symbol = mx.sym.LayerNorm(x, mx.sym.Variable("gamma"), mx.sym.Variable("beta"), eps=1e-5)
    width = np.shape(rows)[1]
    executor = bound(symbol, memory, x=np.float32(rows), gamma=np.ones(width), beta=np.zeros(width))
    return executor.forward(is_train=True)[0].asnumpy(), executor


@every_mode
@pytest.mark.parametrize("mean, first", [(0, -1.341641), (100, -1.341528), (1000, -1.341508), (10000, -1.331333)])
def test_layer_norm_beside_a_large_mean_is_that_of_two_passes(memory: str, mean: float, first: float) -> None:
    rows = np.float32(mean) + np.arange(16, dtype=np.float32).reshape(1, 16) * np.float32(0.001)
    exact = rows.astype(np.float64)
    deviation = np.sqrt(exact.var() + 1e-5)
    values = (exact - exact.mean()) / deviation
    found, executor = normalised(rows, memory)
    assert found[0, 0] == pytest.approx(first, abs=2e-6)
    np.testing.assert_allclose(found, values, 0, 2e-6)
    head = np.random.default_rng(0).normal(size=(1, 16))
    executor.backward(head)
    expected = (head - head.mean() - values * (head * values).mean()) / deviation
    scale = np.abs(expected).max()
    np.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), expected, 0, 1e-5 * scale)
    np.testing.assert_allclose(executor.grad_dict["gamma"].asnumpy(), (head * values)[0], 1e-5, 1e-5)


@every_mode
def test_layer_norm_of_large_neighbours_and_of_a_constant_row(memory: str) -> None:
    found, _ = normalised([[40000, 40001, 40002, 40003]], memory)
    np.testing.assert_allclose(found, [[-1.341635, -.447212, .447212, 1.341635]], 0, 1e-6)
    found, executor = normalised(np.full((2, 256), 1234.0), memory)
    assert not found.any()
    executor.backward(np.ones((2, 256)))
    assert not executor.grad_dict["x"].asnumpy().any()
