"""Encodings of what backward needs: gradients by them have the bits of gradients by whole values."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import BLOCKED, TensorType
from minigraph.ops import ShapeError, get_op
from minigraph.ops.bits import bits_shape

from .harness import execute, infer, parsed, run

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 0.4, -0.4, 0.5, 6.0, 7.0, -3.0, 1.0],
                   np.float32)
"""Values on either side of every test, and at it."""
GRADIENTS = np.array([2.5, -2.5, np.inf, -0.0, np.nan, 1.0, -1.0, 3.0, -np.inf], np.float32)
BACKWARD: list[tuple[str, dict[str, Any]]] = [
    ("_activation_backward", {"act_type": "relu"}), ("_leaky_backward", {"slope": 0.25}),
    ("_leaky_backward", {"slope": -0.5}), ("_clip_backward", {"a_min": -0.4, "a_max": 0.5}),
    ("_clip_backward", {"a_min": 0.0, "a_max": 6.0})]


def by_encoding(name: str, params: dict[str, Any], arrays: list[np.ndarray]) -> np.ndarray:
    """The gradient by way of the encoding that an op declares."""
    op = get_op(name)
    form = op.encoding(parsed(op, params), [TensorType(a.shape, a.dtype) for a in arrays])
    assert form is not None
    code, = execute(get_op(form.encoder), form.encoder_params, [arrays[k] for k in form.of])
    assert (code.shape, code.dtype) == (form.kind.shape, form.kind.dtype)
    others = [a for k, a in enumerate(arrays) if k not in form.of]
    return execute(get_op(form.reader), form.reader_params, [*others, code])[0]


@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.float16))
@pytest.mark.parametrize("name, params", BACKWARD, ids=str)
def test_gradients_by_bits_have_the_bits_of_those_by_values(name, params, dtype):
    with np.errstate(all="ignore"):
        arrays = [a.astype(dtype) for a in (np.repeat(GRADIENTS, SPECIAL.size), np.tile(SPECIAL, GRADIENTS.size))]
        assert by_encoding(name, params, arrays).tobytes() == run(name, params, arrays)[0].tobytes()


@pytest.mark.parametrize("shape", ((), (0,), (1,), (7,), (8,), (9,), (3, 5), (3, 8), (0, 8), (4, 0), (2, 3, 37, 41),
                                   (3, 4096, 8), (20_001,)), ids=str)
@pytest.mark.parametrize("name, params", BACKWARD[:2], ids=str)
def test_any_size_is_covered(name, params, shape):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    assert by_encoding(name, params, arrays).tobytes() == run(name, params, arrays)[0].tobytes()


def test_the_first_element_is_the_lowest_bit_and_bits_behind_the_last_are_zero():
    bits, = run("_positive_bits", {}, [np.array([1, -1, 1, 1, -1, -1, -1, -1, 1, 1], np.float32)])
    assert bits.tolist() == [0b1101, 0b11]


def test_bits_take_an_eighth_of_a_byte_an_element_and_rows_of_whole_bytes_stay_rows():
    assert bits_shape((4, 3, 8)) == (4, 3)
    assert bits_shape((4, 3, 3)) == (5,)
    assert bits_shape((17,)) == (3,)
    assert bits_shape((2, 17, 3, 3), BLOCKED) == (2, 32 * 9 // 8)


def test_bits_of_another_size_are_refused():
    op = get_op("_relu_backward_bits")
    with pytest.raises(ShapeError, match=r"of shape \(2, 8\) has bits of shape \(2, 1\), got \(3,\)"):
        infer(op, parsed(op, {}), [np.zeros((2, 8), np.float32), np.zeros(3, np.uint8)])


def test_a_slope_is_no_encoding_where_the_activation_needs_more_than_a_sign():
    op, kind = get_op("_activation_backward"), TensorType((8,), np.dtype(np.float32))
    assert [op.encoding(parsed(op, {"act_type": a}), [kind, kind]) for a in ("tanh", "sigmoid")] == [None, None]


POOLED: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"kernel": (2, 2), "stride": (2, 2)}, (2, 3, 8, 8)), ({"kernel": (5,), "pad": (4,)}, (2, 2, 6)),
    ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, (2, 3, 9, 8)),
    ({"kernel": (3, 2), "stride": (1, 3), "pooling_convention": "full"}, (3, 2, 7, 9)),
    ({"kernel": (2, 3, 2), "stride": (2, 2, 1), "pad": (1, 1, 0)}, (2, 2, 5, 7, 6)),
    ({"kernel": (2, 2), "stride": (3, 3)}, (0, 3, 8, 8))]


@pytest.mark.parametrize("params, shape", POOLED, ids=str)
@pytest.mark.parametrize("special", (False, True))
def test_gradients_by_winners_have_the_bits_of_those_by_values(params, shape, special):
    rng = np.random.default_rng(0)
    data = rng.integers(-2, 3, shape).astype(np.float32)     # with ties
    if special:
        data = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), data)
    out, = run("Pooling", params, [data])
    grad = rng.choice(GRADIENTS, out.shape) if special else rng.standard_normal(out.shape).astype(np.float32)
    with np.errstate(all="ignore"):
        arrays = [grad, data, out]
        assert by_encoding("_pooling_backward", params, arrays).tobytes() == run(
            "_pooling_backward", params, arrays)[0].tobytes()


def test_windows_of_more_places_than_a_byte_has_are_not_encoded():
    op, kind = get_op("_pooling_backward"), TensorType((1, 1, 20, 20), np.dtype(np.float32))
    found = [op.encoding(parsed(op, params), [kind] * 3) for params in (
        {"kernel": (16, 16)}, {"kernel": (17, 16)}, {"kernel": (2, 2), "pool_type": "avg"}, {"global_pool": True})]
    assert [form is None for form in found] == [False, True, True, True]
