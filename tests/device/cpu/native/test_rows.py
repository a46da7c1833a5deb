"""Layer normalisation, sums, broadcasting and dropout give what NumPy gives."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.ops.control import set_key
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check, run

ROWS = [(7, 40), (2, 70, 33), (300, 256), (0, 5), (3, 1), (5, 3000)]


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_layer_normalisation(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    data, gamma, beta = (3 + rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:], shape[-1:]))
    check("LayerNorm", {}, [data, gamma, beta], rtol=3e-6)
    if shape[-1] > 1:       # of one feature the gradient is zero, and all of it is rounding
        _, mean, deviation = run("LayerNorm", {}, [data, gamma, beta])
        check("_layernorm_backward", {}, [rng.standard_normal(shape), data, gamma, mean, deviation], rtol=1e-5)


def test_rows_far_from_zero_keep_their_digits() -> None:
    data = (1e4 + np.random.default_rng(0).standard_normal((3, 512))).astype(np.float32)
    ones, zeros = np.ones(512, np.float32), np.zeros(512, np.float32)
    exact = data.astype(np.float64) - data.astype(np.float64).mean(1, keepdims=True)
    want = exact / np.sqrt((exact ** 2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run("LayerNorm", {}, [data, ones, zeros])[0], want, atol=1e-6)


@pytest.mark.parametrize("params, shape", [
    ({}, (40, 30)), ({"axis": 0}, (700, 300)), ({"axis": (0, 1)}, (9, 50, 17)),
    ({"axis": -1, "keepdims": True}, (5, 2001)),
    ({"axis": 1}, (3, 300, 20)), ({"axis": (2, 3)}, (2, 17, 5, 6)), ({"axis": 0}, (0, 4)), ({"axis": (1,)}, (4, 1, 3))],
    ids=str)
def test_sums(params: dict[str, Any], shape: tuple[int, ...]) -> None:
    data = 1 + np.random.default_rng(0).random(shape)
    check("sum", params, [data], rtol=3e-7)
    if data.size:
        check("mean", params, [data], rtol=3e-7)
    check("_sum_backward", params, [run("sum", params, [data.astype(np.float32)])[0], data], rtol=0)
    check("_mean_backward", params, [run("mean", params, [data.astype(np.float32)])[0], data], rtol=1e-6)


@pytest.mark.parametrize("shape, like", [((30, 20, 10), (10,)), ((8, 128, 33), (1, 128, 33)), ((5, 7), (5, 1))],
                         ids=str)
def test_sums_to_a_shape(shape: tuple[int, ...], like: tuple[int, ...]) -> None:
    check("_sum_like", {}, [np.random.default_rng(0).random(shape), np.zeros(like)], rtol=3e-7)


@pytest.mark.parametrize("lhs, rhs", [((2, 3, 40), (40,)), ((2, 30, 4), (1, 30, 1)), ((2, 1, 20), (1, 3, 20)),
                                      ((5,), (5,)), ((3, 1), (1, 50)), ((0, 3), (3,)), ((40_000,), (1,))], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum"])
def test_broadcasting(name: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    check(f"broadcast_{name}", {}, [rng.uniform(0.5, 2, lhs), rng.uniform(0.5, 2, rhs)], rtol=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.999999999])
@pytest.mark.parametrize("size, first", [(3, 0), (64, 2 ** 35), (70_001, 12)])
def test_dropout_draws_numpys_bits(p: float, size: int, first: int) -> None:
    control = np.zeros(12, np.float32)
    set_key(control, 0x123456789ABC, 7)
    data = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for name in ("_dropout", "_dropout_backward"):
        op, params = get_op(name), {"p": p, "ordinal": 5, "first": first}
        want, = execute(op, parsed(op, params), [data, control])
        np.testing.assert_array_equal(run(name, params, [data, control])[0], want)
        check(name, params, [data, control], rtol=1e-6)
