"""Attention by kernels gives what NumPy gives, whatever its sizes and whoever computes which rows."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check, run

FORWARD, BACKWARD = "scaled_dot_product_attention", "_scaled_dot_product_attention_backward"
SIZES = [(2, 3, 5, 1, 4, 6), (1, 64, 64, 2, 16, 16), (2, 130, 130, 3, 8, 20), (1, 70, 33, 2, 32, 5),
         (1, 9, 150, 1, 40, 33), (3, 1, 1, 2, 1, 1), (0, 4, 5, 1, 2, 2), (2, 0, 5, 1, 2, 2), (1, 20, 7000, 1, 3, 2)]
"""(images, queries, keys, heads, depth, width)."""


def operands(sizes: tuple[int, ...]) -> list[np.ndarray]:
    n, length, places, heads, depth, width = sizes
    rng = np.random.default_rng(sum(sizes))
    shapes = (n, length, heads * depth), (n, places, heads * depth), (n, places, heads * width)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def gradient_operands(params: dict[str, Any], sizes: tuple[int, ...],
                      hidden: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
    op = get_op(FORWARD)
    arrays = operands(sizes)
    out, lse = execute(op, parsed(op, params), [a.astype(np.float64) for a in (*arrays, *hidden)])
    grad = np.random.default_rng(1).standard_normal(out.shape)
    return [a.astype(np.float32) for a in (grad, *arrays, out, lse)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_attention_agrees_with_numpy(sizes: tuple[int, ...], causal: bool) -> None:
    params = {"num_heads": sizes[3], "causal": causal}
    check(FORWARD, params, operands(sizes))
    check(BACKWARD, params, gradient_operands(params, sizes), rtol=2e-5)


def test_a_scale_is_used_in_both_directions() -> None:
    params = {"num_heads": 2, "scale": 0.3}
    check(FORWARD, params, operands((2, 5, 6, 2, 3, 4)))
    check(BACKWARD, params, gradient_operands(params, (2, 5, 6, 2, 3, 4)), rtol=2e-5)


def test_large_scores_do_not_overflow() -> None:
    query, key, value = operands((1, 20, 30, 1, 4, 4))
    out, lse = run(FORWARD, {}, [query * 1e4, key, value])
    assert np.isfinite(out).all() and np.isfinite(lse).all()
    check(FORWARD, {}, [query * 100, key, value], rtol=1e-4)


def test_keys_that_a_query_may_not_see_change_nothing() -> None:
    query, key, value = operands((1, 80, 80, 1, 4, 4))
    out, _ = run(FORWARD, {"causal": True}, [query, key, value])
    key[:, 40:], value[:, 40:] = 50, -1e4
    again, _ = run(FORWARD, {"causal": True}, [query[:, :40].copy(), key, value])
    assert out[:, :40].tobytes() == again.tobytes()


def hidden_keys(params: dict[str, Any], sizes: tuple[int, ...]) -> list[np.ndarray]:
    """A mask and lengths, as the parameters want them; the first image has no key and the second all."""
    n, queries, keys, heads, *_ = sizes
    rng = np.random.default_rng(2)
    mask = rng.random((n, heads, 1, keys) if params.get("across") else (1, 1, queries, keys)) < 0.8
    length = np.resize([0, keys, keys // 2 + 1], n)
    return [mask.astype(np.float32)] * params["use_mask"] + [length.astype(np.float32)] * params["use_length"]


@pytest.mark.parametrize("sizes", [*SIZES[:5], SIZES[6], SIZES[8]], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("mask, length, across", [(True, False, False), (False, True, False), (True, True, True)],
                         ids=["mask", "length", "both"])
def test_hidden_keys_agree_with_numpy(sizes: tuple[int, ...], causal: bool, mask: bool, length: bool,
                                      across: bool) -> None:
    params = {"num_heads": sizes[3], "causal": causal, "use_mask": mask, "use_length": length}
    hidden = hidden_keys({**params, "across": across}, sizes)
    check(FORWARD, params, [*operands(sizes), *hidden])
    check(BACKWARD, params, [*gradient_operands(params, sizes, hidden), *hidden], rtol=2e-5)


@pytest.mark.parametrize("scale", [0.0, -1.5])
def test_a_scale_that_turns_no_infinity_round(scale: float) -> None:
    params = {"num_heads": 1, "scale": scale, "use_mask": True}
    hidden = hidden_keys({**params, "use_length": False}, (2, 5, 19, 1, 4, 3))
    check(FORWARD, params, [*operands((2, 5, 19, 1, 4, 3)), *hidden])
    check(BACKWARD, params, [*gradient_operands(params, (2, 5, 19, 1, 4, 3), hidden), *hidden], rtol=2e-5)


def test_keys_past_a_length_change_no_bit() -> None:
    query, key, value = operands((2, 20, 40, 2, 4, 4))
    length = np.array([17, 40], np.float32)
    out, _ = run(FORWARD, {"num_heads": 2, "use_length": True}, [query, key, value, length])
    key[0, 17:], value[0, 17:] = np.inf, np.nan
    again, _ = run(FORWARD, {"num_heads": 2, "use_length": True}, [query, key, value, length])
    assert out.tobytes() == again.tobytes() and np.isfinite(out).all()


@pytest.mark.parametrize("length", [6.0, -1.0, np.nan])
def test_a_length_that_is_no_number_of_keys_is_refused(length: float) -> None:
    with pytest.raises(MXNetError, match=rf"length: {length} at position \(1,\) is outside \[0, 6\)"):
        run(FORWARD, {"use_length": True}, [*operands((2, 3, 5, 1, 4, 4)), np.array([5, length], np.float32)])


@pytest.mark.parametrize("keys", [0, 20_000])
def test_no_keys_and_too_many_are_left_to_numpy(keys: int) -> None:
    op, native = get_op(FORWARD), native_op(FORWARD)
    p = parsed(op, {})
    types = [TensorType(shape, np.dtype(np.float32)) for shape in ((1, 4, 2), (1, keys, 2), (1, keys, 2))]
    assert native is not None and not native.layouts(p, types, types[:1] * 2)
