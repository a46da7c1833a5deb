"""Batch normalisation's kernels give NumPy's results in any layout, with any number of threads."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import STREAMED_BYTES, check, run, threads

SHAPES = [((3, 5, 4, 5), 1), ((2, 32, 6, 6), 1), ((2, 19, 7), 1), ((3, 4, 3, 17), 2), ((40, 21), 1), ((5, 3, 33), -1),
          ((0, 3, 2, 2), 1), ((1, 16, 60, 60), 1), ((300, 20, 1, 1), 1)]
FOLLOWED: list[dict[str, Any]] = [
    {}, {"act_type": "relu"}, {"addend": True}, {"act_type": "relu", "addend": True}, {"act_type": "tanh"},
    {"act_type": "sigmoid", "addend": True, "fix_gamma": True}, {"act_type": "sigmoid"}]


def wide(name: str, p: Any) -> Iterator[bool]:
    """For each input whether it has data's shape."""
    op = get_op(name)
    return (each in op.tensors for each in op.inputs(p))  # type: ignore[attr-defined]


def arrays_for(name: str, params: dict[str, Any], shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    p = parsed(get_op(name), params)
    return [(2 + rng.standard_normal(shape)).astype(np.float32) if tensor
            else rng.uniform(0.5, 2, shape[axis]).astype(np.float32) for tensor in wide(name, p)]


def backward_arrays(params: dict[str, Any], shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Inputs of backward as the kernels' forward makes them: the signs of its output are the same ones."""
    data, gamma, beta, *addend = arrays_for("_batchnorm_train", params, shape, axis)
    out, mean, var, rest = run("_batchnorm_train", params, [data, gamma, beta, *addend])
    grad = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    saved = {"beta": beta, "rest": rest, "out": out}
    names = get_op("_batchnorm_backward").inputs(parsed(get_op("_batchnorm_backward"), params))
    return [grad, data, gamma, mean, var, *(saved[name] for name in names[5:])]


@pytest.mark.parametrize("followed", FOLLOWED, ids=str)
@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
def test_training_forward_and_backward_agree_with_numpy(shape: tuple[int, ...], axis: int,
                                                        followed: dict[str, Any]) -> None:
    params = {"axis": axis, "fix_gamma": False, **followed}
    check("_batchnorm_train", params, arrays_for("_batchnorm_train", params, shape, axis), rtol=2e-6, rests=[3])
    check("_batchnorm_backward", params, backward_arrays(params, shape, axis), rtol=1e-5)


def test_outputs_stored_past_the_caches_have_the_bits_of_others() -> None:
    params = {"fix_gamma": False, "act_type": "relu"}
    arrays = arrays_for("_batchnorm_inference", params, (33, 32, 90, 90), 1)
    assert arrays[0].nbytes > STREAMED_BYTES
    (streamed,) = run("_batchnorm_inference", params, arrays)
    (held,) = run("_batchnorm_inference", params, arrays, share=[(0, 0)])
    assert streamed.tobytes() == held.tobytes()


@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["_batchnorm_apply", "_batchnorm_inference", "_batchnorm_inference_backward_data",
                                  "_batchnorm_inference_backward_params", "_batchnorm_update_moving"])
def test_other_forms_agree_with_numpy(name: str, shape: tuple[int, ...], axis: int) -> None:
    fused = {} if "backward" in name or "moving" in name else {"act_type": "relu", "addend": True}
    for params in ({"axis": axis, "fix_gamma": True}, {"axis": axis, "fix_gamma": False, **fused}):
        check(name, params, arrays_for(name, params, shape, axis), rtol=1e-5)


def test_statistics_keep_their_digits_where_the_mean_is_large() -> None:
    data = (3e4 + np.random.default_rng(0).standard_normal((4, 16, 50, 50))).astype(np.float32)
    vector = np.ones(16, np.float32)
    op = get_op("_batchnorm_train")
    expected = execute(op, parsed(op, {}), [a.astype(np.float64) for a in (data, vector, vector)])
    for found, want in zip(run("_batchnorm_train", {}, [data, vector, vector])[1:3], expected[1:3], strict=True):
        np.testing.assert_allclose(found, want, rtol=3e-7)


def test_what_rounding_took_from_the_mean_is_kept() -> None:
    data = (3 + np.random.default_rng(0).standard_normal((4, 16, 9))).astype(np.float32)
    vector = np.ones(16, np.float32)
    _, mean, _, rest = run("_batchnorm_train", {}, [data, vector, vector])
    np.testing.assert_allclose(mean + rest.astype(np.float64), data.astype(np.float64).mean(axis=(0, 2)), rtol=1e-8)


def test_one_odd_element_at_the_beginning_costs_no_digits() -> None:
    data = np.random.default_rng(0).standard_normal((2, 16, 64, 64)).astype(np.float32)
    data[:, :, 0] += 1e4
    vector = np.ones(16, np.float32)
    np.testing.assert_allclose(run("_batchnorm_train", {}, [data, vector, vector])[2],
                               data.astype(np.float64).var(axis=(0, 2, 3)), rtol=3e-7)


@pytest.mark.parametrize("shape", [(8, 16, 8, 8), (8, 5, 8, 8)])
def test_a_nan_stays_in_its_channel(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    data[1, 3, 2, 2] = np.nan
    out, mean, var, _ = run("_batchnorm_train", {"act_type": "relu"}, [data, *np.ones((2, shape[1]), np.float32)])
    bad = np.arange(shape[1]) == 3
    for found in (out.transpose(1, 0, 2, 3).reshape(shape[1], -1), mean[:, None], var[:, None]):
        np.testing.assert_array_equal(np.isnan(found).all(axis=1), bad)


def test_statistics_of_slices_at_chunks_join_to_those_of_the_whole() -> None:
    """Each chunk is summed alone, so a slice's sums are the whole's: seen in a batch of two chunks that are alike."""
    chunk = np.random.default_rng(0).standard_normal((128, 16, 4, 4)).astype(np.float32)
    vector = np.ones(16, np.float32)
    with threads(2):
        one = run("_batchnorm_train", {}, [chunk, vector, vector])
        two = run("_batchnorm_train", {}, [np.concatenate([chunk, chunk]), vector, vector])
    for a, b in zip(one[1:], two[1:], strict=True):
        np.testing.assert_array_equal(a, b)
