"""Elementwise kernels give what NumPy gives, in any layout, and their functions are right to the last places."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import STREAMED_BYTES, check, run

SHAPES = [(40_001,), (5, 7), (2, 3, 5, 4), (3, 32, 6, 6), (0, 5, 2, 2), (1, 16, 40, 40)]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in (
        "relu", "sigmoid", "tanh", "softsign", "negative", "abs", "sign", "square", "sqrt", "rsqrt", "reciprocal",
        "exp", "log", "log1p", "expm1", "_copy", "BlockGrad", "MakeLoss", "_gelu", "elemwise_add", "elemwise_sub",
        "elemwise_mul", "elemwise_div", "_accumulate", "_maximum", "_minimum", "_gelu_backward",
        "_square_backward", "_sqrt_backward", "_abs_backward", "_reciprocal_backward")),
    *((name, {"act_type": kind}) for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
      for name in ("Activation", "_activation_backward")),
    *((f"_{name}_scalar", {"scalar": 1.5}) for name in (
        "plus", "minus", "rminus", "mul", "div", "rdiv", "maximum", "minimum")),
    *((name, {"a_min": 0.9, "a_max": 1.5}) for name in ("clip", "_clip_backward")),
    *((name, {"slope": 0.25}) for name in ("_leaky", "_leaky_backward")),
    *((name, {"below": 0.5, "above": 1.25}) for name in ("_elu", "_elu_backward")),
    *((name, {"alpha": 0.3, "beta": 0.4}) for name in ("hard_sigmoid", "_hard_sigmoid_backward")),
    *((name, {"scalar": 1.3}) for name in ("smooth_l1", "_smooth_l1_backward", "_rdiv_scalar_backward")),
    ("add_n", {"num_args": 1}), ("add_n", {"num_args": 4})]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name, params", CASES, ids=str)
def test_kernels_agree_with_numpy(name: str, params: dict[str, Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    op = get_op(name)
    count = len(op.inputs(parsed(op, params)))
    positive = name in ("sqrt", "rsqrt", "log", "log1p", "reciprocal", "_rdiv_scalar", "elemwise_div",
                        "_sqrt_backward", "_rdiv_scalar_backward")
    check(name, params, [rng.uniform(0.5, 2, shape) if positive else rng.normal(0, 2, shape) for _ in range(count)],
          rtol=1e-6)


def test_relu_keeps_nan_and_its_gradient_is_zero_at_zero() -> None:
    data = np.array([np.nan, 0, 1, -1] * 9, np.float32)
    np.testing.assert_array_equal(run("relu", {}, [data])[0], np.maximum(data, 0))
    grad = run("_activation_backward", {"act_type": "relu"}, [np.ones_like(data), np.maximum(data, 0)])[0]
    np.testing.assert_array_equal(grad, [0, 0, 1, 0] * 9)


@pytest.mark.parametrize("name, count", [("relu", 1), ("elemwise_add", 2)])
def test_outputs_stored_past_the_caches_have_the_bits_of_others(name: str, count: int) -> None:
    size = STREAMED_BYTES // 4 + 37
    arrays = [np.random.default_rng(i).standard_normal(size, np.float32) for i in range(count)]
    (streamed,) = run(name, {}, arrays)
    (held,) = run(name, {}, arrays, share=[(0, 0)])
    parts = [run(name, {}, [a[half] for a in arrays])[0] for half in (slice(size // 2), slice(size // 2, size))]
    assert streamed.tobytes() == held.tobytes() == np.concatenate(parts).tobytes()


CONDITIONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or",
              "logical_xor")


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_agree_with_numpy_on_equal_numbers_too(name: str) -> None:
    rng = np.random.default_rng(4)
    left, right = rng.integers(-2, 3, (2, 3, 37, 5, 5)).astype(float)
    left[0, :2] = np.nan
    check(f"_{name}", {}, [left, right], rtol=0)
    check(f"broadcast_{name}", {}, [left, right[:, :, :1, :1]], rtol=0)
    for scalar in (0.0, 1.0, 0.5):
        check(f"_{name}_scalar", {"scalar": scalar}, [left], rtol=0)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "fix", "round", "rint", "logical_not"])
def test_whole_numbers_are_those_of_numpy_at_halves_and_beyond_what_an_integer_holds(name: str) -> None:
    near = np.arange(-40, 41) / 8
    large = [8388607.5, 8388608, 4194303.5, -4194304.5, 2.0**31, -2.0**40, 3e38, np.inf, -np.inf, 1e-40, np.nan]
    beside = [np.nextafter(np.float32(near), np.float32(end)) for end in (9, -9)]
    data = np.concatenate([near, large, *beside]).astype(np.float32)
    op = get_op(name)
    (expected,) = execute(op, parsed(op, {}), [data])
    np.testing.assert_array_equal(run(name, {}, [data])[0], expected)


def everywhere() -> np.ndarray:
    """Numbers of all sizes and signs, the special ones among them."""
    bits = np.arange(0, 2 ** 32, 7919, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, 88.7, 88.8, -103.9, -104.1], np.float32)
    return np.concatenate([special, bits, np.random.default_rng(0).normal(0, 4, 200_000).astype(np.float32)])


def softrelu(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


@pytest.mark.parametrize("name, truth, ulps", [
    ("exp", np.exp, 1.5), ("log", np.log, 1.5), ("log1p", np.log1p, 3), ("expm1", np.expm1, 3), ("tanh", np.tanh, 2.5),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 3), ("softrelu", softrelu, 3), ("sqrt", np.sqrt, 0.51),
    ("softsign", lambda x: x / (1 + np.abs(x)), 2)])
def test_functions_are_right_to_the_last_places_everywhere(name: str, truth: Any, ulps: float) -> None:
    data = everywhere()
    op, params = ("Activation", {"act_type": name}) if name == "softrelu" else (name, {})
    found = run(op, params, [data])[0]
    with np.errstate(all="ignore"):
        want = truth(data.astype(np.float64))
        rounded = want.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
        regular = np.isfinite(rounded) & np.isfinite(found)
        np.testing.assert_array_equal(found[~regular & ~np.isnan(rounded)], rounded[~regular & ~np.isnan(rounded)])
        error = np.abs(found[regular] - want[regular]) / np.spacing(np.abs(rounded[regular]))
    worst = int(np.argmax(error))
    assert error[worst] <= ulps, f"{name}({data[regular][worst]!r}) is off by {error[worst]} units"
