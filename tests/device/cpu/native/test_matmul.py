"""Matrix products by kernels give what NumPy gives, whatever their sizes, and whoever computes which rows."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TRANSPOSED, Layouts, TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.registry import get_op

from .harness import check, run, the_library

OPS = ("dot", "_dot_backward_lhs", "_dot_backward_rhs", "batch_dot", "FullyConnected",
       "_fully_connected_backward_data", "_fully_connected_backward_weight")
SIZES = [(1, 1, 1), (3, 5, 2), (4, 33, 70), (5, 31, 16), (14, 32, 256), (15, 64, 257), (29, 65, 300), (47, 10, 515),
         (130, 129, 40), (0, 4, 3), (4, 0, 3), (3, 4, 0), (300, 33, 7), (2, 700, 600), (31, 610, 530), (29, 40, 1024)]
"""(rows, columns, depth)."""


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("form", range(4), ids=["nn", "nt", "tn", "tt"])
def test_products_of_all_forms_agree_with_numpy(sizes: tuple[int, int, int], form: int) -> None:
    rows, columns, depth = sizes
    params = {"transpose_a": form >= 2, "transpose_b": form % 2 == 1}
    lhs = draw(*((depth, rows) if params["transpose_a"] else (rows, depth)))
    rhs = draw(*((columns, depth) if params["transpose_b"] else (depth, columns)))
    grad = draw(rows, columns)
    check("dot", params, [lhs, rhs])
    check("_dot_backward_lhs", params, [grad, rhs, lhs])
    check("_dot_backward_rhs", params, [grad, lhs, rhs])
    check("batch_dot", params, [np.stack([lhs, lhs + 1, -lhs]), np.stack([rhs, rhs, rhs - 1])])


@pytest.mark.parametrize("sizes", [(29, 40, 512), (45, 300, 784), (20, 33, 70), (60, 550, 20)], ids=str)
def test_bits_of_a_product_do_not_depend_on_how_its_operands_lie(sizes: tuple[int, int, int]) -> None:
    rows, columns, depth = sizes
    lhs, rhs = draw(rows, depth).astype(np.float32), draw(depth, columns).astype(np.float32)
    found = [run("dot", {"transpose_a": left, "transpose_b": right},
                 [np.ascontiguousarray(lhs.T) if left else lhs, np.ascontiguousarray(rhs.T) if right else rhs])[0]
             for left in (False, True) for right in (False, True)]
    assert len({product.tobytes() for product in found}) == 1


@pytest.mark.parametrize("shape", [(1, 7), (3, 40), (4, 512), (5, 6), (127, 33), (128, 20), (129, 20), (131, 20),
                                   (300, 3), (2, 3, 4), (0, 4), (6,), (130, 2, 5)], ids=str)
@pytest.mark.parametrize("flatten", [True, False], ids=["flat", "last axis"])
@pytest.mark.parametrize("hidden", [1, 10, 48])
def test_dense_layers_agree_with_numpy(shape: tuple[int, ...], flatten: bool, hidden: int) -> None:
    features = int(np.prod(shape[1:])) if flatten else shape[-1]
    rows = shape[:1] if flatten else shape[:-1]
    data, weight, bias, grad = draw(*shape), draw(hidden, features), draw(hidden), draw(*rows, hidden)
    params: dict[str, Any] = {"num_hidden": hidden, "flatten": flatten}
    check("FullyConnected", params, [data, weight, bias])
    check("FullyConnected", {**params, "no_bias": True}, [data, weight])
    check("_fully_connected_backward_data", params, [grad, weight, data])
    check("_fully_connected_backward_weight", params, [grad, data, weight])
    check("_fully_connected_backward_bias", {}, [grad])
    more = {**params, "addend": True}
    check("_fully_connected_backward_data", more, [grad, weight, data, draw(*shape)])
    check("_fully_connected_backward_weight", more, [grad, data, weight, draw(hidden, features)])
    check("_fully_connected_backward_bias", {"addend": True}, [grad, draw(hidden)])


@pytest.mark.parametrize("name", OPS)
def test_samples_of_the_operators_agree_with_numpy(name: str) -> None:
    for sample in get_op(name).samples():
        check(name, sample.params, [draw(*shape) for shape in sample.shapes])


@pytest.mark.parametrize("rows", [3, 5, 20, 132])
def test_a_weight_that_lies_column_by_column_gives_the_same(rows: int) -> None:
    data, weight, bias = (draw(*shape).astype(np.float32) for shape in ((rows, 50), (43, 50), (43,)))
    params = {"num_hidden": 43}
    transposed, = run("FullyConnected", params, [data, weight, bias], Layouts(("", TRANSPOSED, ""), ("",)))
    np.testing.assert_allclose(transposed, data.astype(np.float64) @ weight.T + bias, rtol=1e-4, atol=1e-5)
    if rows == 20:      # no chunk of few rows, which have a kernel of their own where the weight is not transposed
        plain, = run("FullyConnected", params, [data, weight, bias], Layouts.plain(3, 1))
        assert transposed.tobytes() == plain.tobytes()


@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (33, 70), (800, 200)])
def test_a_matrix_is_put_column_by_column(shape: tuple[int, int]) -> None:
    matrix = draw(*shape).astype(np.float32)
    conversion = TensorType(shape, matrix.dtype), TensorType(shape, matrix.dtype, TRANSPOSED)
    native, params = native_op("transpose"), get_op("transpose").Params()
    assert native is not None
    assert list(native.layouts(params, *([t] for t in conversion))) == [Layouts(("",), (TRANSPOSED,))]
    np.testing.assert_array_equal(run("transpose", {}, [matrix])[0], matrix.T)


def test_a_slice_that_ends_with_a_chunk_has_the_bits_of_the_whole() -> None:
    data, weight, grad = (draw(*shape).astype(np.float32) for shape in ((259, 50), (40, 50), (259, 40)))
    params = {"num_hidden": 40, "no_bias": True}
    whole, = run("FullyConnected", params, [data, weight])
    parts = [run("FullyConnected", params, [data[s], weight])[0] for s in (slice(128), slice(128, 259))]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    whole, = run("_fully_connected_backward_data", params, [grad, weight, data])
    parts = [run("_fully_connected_backward_data", params, [grad[s], weight, data[s]])[0]
             for s in (slice(128), slice(128, 259))]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_every_kernel_of_a_product_is_in_the_library() -> None:
    for name in ("product", "product_few_rows", "sum_rows"):
        assert the_library().kernel(name)
