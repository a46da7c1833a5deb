"""NDArrays that share memory go on sharing it when an executor is bound to one of them: base, views, views of views."""
from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

WIDTH = 64


def triple() -> mx.sym.Symbol:
    return mx.sym.Variable("x") * 3


def chain() -> mx.sym.Symbol:
    """Products by three weights, of which a budget sends some to homes outside the device."""
    h = mx.sym.Variable("x")
    for k in range(3):
        h = mx.sym.FullyConnected(h, num_hidden=WIDTH, no_bias=True, name=f"fc{k}")
    return h


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def run(executor: Any) -> np.ndarray:
    return executor.forward()[0].asnumpy()


def row() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((2, 3))
    return big, big[1], lambda array: array[1]


def rows() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((5, 2))
    return big, big[1:4], lambda array: array[1:4]


def column() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((4, 3))
    return big, big[:, 1], lambda array: array[:, 1]


def backwards() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((6,))
    return big, big[::-1], lambda array: array[::-1]


def whole() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((2, 3))
    return big, big, lambda array: array


def reshaped() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((2, 3))
    return big, big.reshape((3, 2)), lambda array: array.reshape(3, 2)


def part_of_reshaped() -> tuple[Any, Any, Any]:
    big = mx.nd.zeros((2, 6))
    return big, big.reshape((3, 4))[1:3].reshape((8,)), lambda array: array.reshape(3, 4)[1:3].reshape(8)


VIEWS = [row, rows, column, backwards, whole, reshaped, part_of_reshaped]


def check_shared(context: Any, make: Callable[[], tuple[Any, Any, Any]]) -> None:
    """Whatever writes, base, bound array, another view or executor, all show it, and the executor computes with it."""
    big, bound, of = make()
    before = np.arange(big.size, dtype=np.float32).reshape(big.shape)
    big[:] = before
    earlier = of(big)  # another view, made before
    executor = triple().bind(context, args={"x": bound})
    np.testing.assert_array_equal(run(executor), 3 * of(before))
    big[:] = 7
    np.testing.assert_array_equal(run(executor), np.full(bound.shape, 21))
    bound[:] = before.reshape(-1)[:bound.size].reshape(bound.shape)
    expected = np.full(big.shape, 7, np.float32)
    of(expected)[...] = before.reshape(-1)[:bound.size].reshape(bound.shape)
    np.testing.assert_array_equal(big.asnumpy(), expected)
    np.testing.assert_array_equal(run(executor), 3 * of(expected))
    executor.arg_dict["x"][:] = 5
    of(expected)[...] = 5
    for shown, right in ((big, expected), (bound, of(expected)), (earlier, of(expected)), (of(big), of(expected))):
        np.testing.assert_array_equal(shown.asnumpy(), right)
    earlier[0] = 9
    of(expected)[0] = 9
    big[big.shape[0] - 1] += 1
    expected[-1] += 1
    np.testing.assert_array_equal(run(executor), 3 * of(expected))
    np.testing.assert_array_equal(big.asnumpy(), expected)
    del executor
    gc.collect()
    big[:] = 2
    assert (bound.asnumpy() == 2).all() and (earlier.asnumpy() == 2).all()


@pytest.mark.parametrize("make", VIEWS)
def test_all_that_share_memory_go_on_sharing_it(make: Callable[[], Any]) -> None:
    check_shared(mx.cpu(), make)


def test_views_of_a_bound_array_write_through_to_the_executor() -> None:
    array = mx.nd.ones((3,))
    view = array[0:3]
    executor = mx.sym.sum(mx.sym.Variable("x")).bind(mx.cpu(), {"x": array})
    view[:] = 4
    assert run(executor).tolist() == [12]


def check_flat(context: Any, **options: Any) -> Any:
    """One vector of parameters and one of gradients, cut into slices, as optimizers of flat vectors want them."""
    size = WIDTH * WIDTH
    flat, gradients = mx.nd.zeros((3 * size + 1,)), mx.nd.ones((3 * size + 1,))
    names = [f"fc{k}_weight" for k in range(3)]
    x = mx.nd.array(np.random.default_rng(0).integers(-2, 3, (4, WIDTH)))

    def cut(vector: Any) -> dict[str, Any]:
        return {name: vector[k * size:(k + 1) * size].reshape((WIDTH, WIDTH)) for k, name in enumerate(names)}

    executor = chain().bind(context, {"x": x, **cut(flat)}, cut(gradients),
                            {name: "write" for name in names}, **options)
    for scale in (1, 2):
        weights = [np.eye(WIDTH, dtype=np.float32) * (k + scale) for k in range(3)]
        flat[:3 * size] = np.concatenate([weight.reshape(-1) for weight in weights])
        out, = executor.forward(is_train=True)
        product = np.linalg.multi_dot([weight.T for weight in weights])
        np.testing.assert_array_equal(out.asnumpy(), x.asnumpy() @ product)
        head = np.ones((4, WIDTH), np.float32)
        executor.backward([head])
        found = gradients.asnumpy()
        right = head.T @ (x.asnumpy() @ weights[0].T @ weights[1].T)
        np.testing.assert_array_equal(found[2 * size:3 * size].reshape(WIDTH, WIDTH), right)
        assert found[-1] == 1, "what is bound to nothing stays"
        flat[:] -= 0 * gradients
    return executor


@pytest.mark.parametrize("home", ["device", "host", "disk"])
def test_slices_of_one_vector_of_parameters_and_of_gradients(home: str, tmp_path: Any) -> None:
    options = {"device": {}, "host": {"host_budget": "1MB"}, "disk": {"disk": str(tmp_path)}}[home]
    if home != "device":
        options = {**options, "memory": "auto", "budget": 100_000}
    executor = check_flat(mx.cpu(), **options)
    assert bool(executor.group.layout.home_bytes) == (home != "device")


def test_an_array_is_bound_again_and_again() -> None:
    """Once to each of several executors, the ones before being gone; and parts after the whole."""
    big = mx.nd.array([[1, 2], [3, 4]])
    for bound in (big, big, big[0], big[0], big[0:2], big, big.reshape((4,)), big[1]):
        executor = triple().bind(mx.cpu(), {"x": bound})
        np.testing.assert_array_equal(run(executor), 3 * bound.asnumpy())
        big += 1
        np.testing.assert_array_equal(run(executor), 3 * bound.asnumpy())
        del executor
        gc.collect()
    np.testing.assert_array_equal(big.asnumpy(), [[9, 10], [11, 12]])


def test_executors_that_share_one_place_share_the_array() -> None:
    big = mx.nd.zeros((2, 3))
    first = triple().bind(mx.cpu(), {"x": big[1]})
    second = triple().bind(mx.cpu(), {"x": big[1]}, shared_exec=first)
    big[:] = 2
    assert run(first).tolist() == run(second).tolist() == [6, 6, 6]


@pytest.mark.parametrize("part", [False, True])
def test_the_array_of_another_executor_is_told_of(part: bool) -> None:
    big = mx.nd.zeros((2, 3))
    bound = big[1] if part else big
    first = triple().bind(mx.cpu(), {"x": bound})
    with pytest.warns(UserWarning, match="x lay in the memory of another executor"):
        second = triple().bind(mx.cpu(), {"x": bound})
    big[:] = 2
    assert (run(second) == 6).all() and (run(first) == 0).all()
    with pytest.warns(UserWarning, match="y lay in the memory of another executor"):
        (mx.sym.Variable("y") * 2).bind(mx.cpu(), {"y": bound}, shared_exec=second)


def pair(x: Any, y: Any) -> None:
    (mx.sym.Variable("x") + mx.sym.Variable("y")).bind(mx.cpu(), {"x": x, "y": y})


def test_what_cannot_share_any_more_is_refused_and_nothing_is_moved() -> None:
    big = mx.nd.array([1, 2, 3, 4])
    for x, y in ((big[0:3], big[1:4]), (big, big.reshape((2, 2)).reshape((4,))), (big[0:2], big[1:3]), (big, big)):
        with pytest.raises(MXNetError, match="y and x are given .*each has bytes of its own; give a copy"):
            pair(x, y)
    with pytest.raises(MXNetError, match="the gradient of x and x are given NDArrays that share memory"):
        triple().bind(mx.cpu(), {"x": big[0:2]}, {"x": big[0:2]})
    pair(big[0:2], big[2:4])
    kept = triple().bind(mx.cpu(), {"x": big[1:3]})
    with pytest.raises(MXNetError, match="x shares elements with a part that lies in the memory of another executor"):
        pair(big[0:2], mx.nd.zeros((2,)))
    with pytest.raises(MXNetError, match="x shares elements with a part"):
        triple().bind(mx.cpu(), {"x": big.reshape((2, 2))})
    with pytest.raises(MXNetError, match="x is a view of another executor's memory"):
        triple().bind(mx.cpu(), {"x": kept.arg_dict["x"][0:1]})
    twisted = mx.nd.array([[1, 2], [3, 4]])[:, 1:].reshape((2,))
    with pytest.raises(MXNetError, match="x is a view of another executor's memory, or one whose elements are copied"):
        triple().bind(mx.cpu(), {"x": mx.nd.zeros((3, 4))[:, 1:3].reshape((6,))})
    assert twisted.asnumpy().tolist() == [2, 4]
    base = mx.nd.zeros((2, 3))
    owner = triple().bind(mx.cpu(), {"x": base})
    with pytest.raises(MXNetError, match="x is a part of an array that lies in the memory of another executor as a"):
        triple().bind(mx.cpu(), {"x": base[1]})
    base[:] = 4
    assert (run(owner) == 12).all()
    big[:] = 5
    assert run(kept).tolist() == [15, 15]


def test_writing_between_overlapping_views_copies_what_was_there() -> None:
    big = mx.nd.array([1, 2, 3, 4, 5])
    executor = triple().bind(mx.cpu(), {"x": big[1:3]})
    big[1:] = big[:-1]
    assert big.asnumpy().tolist() == [1, 1, 2, 3, 4]
    assert run(executor).tolist() == [3, 6]
