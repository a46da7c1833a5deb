"""Scaled dot product attention: CUDA kernels against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.attention import AttentionParams
from minigraph.ops.registry import get_op
from tests.ops.harness import execute_by_name, parsed

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays, sample_arrays

NAME = "scaled_dot_product_attention"
BACKWARD = f"_{NAME}_backward"
FLOAT32 = np.dtype(np.float32)


def check_both(kernels: Kernels, params: dict, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Forward, and gradients from NumPy's own output and lse; their differences are those of sums in float32."""
    found = kernels.check(NAME, params, arrays, 1e-4, 1e-5)
    out, lse = execute_by_name(NAME, params, arrays)
    grad, = random_arrays(out.shape, seed=5)
    return found + kernels.check(BACKWARD, params, [grad, *arrays[:3], out, lse, *arrays[3:]], 1e-4, 2e-5)


def heads_of(n: int, queries: int, keys: int, depth: int, width: int) -> list[np.ndarray]:
    return random_arrays((n, queries, depth), (n, keys, depth), (n, keys, width), low=-1.5, high=1.5)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("attention")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("attention"))
def test_samples_agree_with_numpy_forward_and_backward(kernels, op_name, sample):
    op = get_op(op_name)
    check_both(kernels, sample.params, sample_arrays(op, parsed(op, sample.params), sample))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "depth", "width"), [
    (65, 130, 2 * 5, 2 * 7), (130, 65, 2 * 17, 2 * 3), (129, 129, 2 * 16, 2 * 16), (1, 70, 2 * 65, 2 * 2),
    (70, 1, 2 * 3, 2 * 130)])
def test_tiles_of_any_size_agree_with_numpy(kernels, causal, queries, keys, depth, width):
    check_both(kernels, {"num_heads": 2, "causal": causal}, heads_of(2, queries, keys, depth, width))


@pytest.mark.parametrize("mask_shape", [(3, 2, 70, 66), (1, 1, 70, 66), (3, 1, 1, 66), (1, 2, 1, 66)])
def test_masks_of_every_form_agree_with_numpy(kernels, mask_shape):
    mask = (np.random.default_rng(3).random(mask_shape) < 0.4).astype(np.float32)
    mask[..., -1, :] = 0        # a query, or all, that sees nothing
    mask[0, 0, 0, 5] = 1
    check_both(kernels, {"num_heads": 2, "use_mask": True}, [*heads_of(3, 70, 66, 6, 4), mask])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_lengths_of_every_dtype_agree_with_numpy(kernels, dtype):
    arrays = [*heads_of(4, 3, 130, 4, 6), np.array([0, 1, 65, 130], dtype)]
    out, lse, query_grad, key_grad, value_grad = check_both(kernels, {"use_length": True}, arrays)
    assert not out[0].any() and (lse[0] == -2.0 ** 127).all()
    assert not query_grad[0].any() and not key_grad[2, 65:].any() and not value_grad[1, 1:].any()


def test_blocks_share_tiles_that_are_more_than_they(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.attention.MAX_TILE_BLOCKS", 2)
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 1)
    check_both(kernels, {"num_heads": 3, "causal": True}, heads_of(2, 70, 70, 6, 6))


def test_large_scores_neither_overflow_nor_vanish(kernels):
    q = np.array([[[1e4], [-1e4]]], np.float32)
    k, v = np.array([[[3e4], [-3e4]]], np.float32), np.array([[[1], [2]]], np.float32)
    out, lse = kernels.run(NAME, {}, [q, k, v])
    assert out.reshape(-1).tolist() == [1, 2] and lse.reshape(-1).tolist() == [3e8, 3e8]


def test_nan_in_a_query_stays_in_its_row(kernels):
    q, k, v = heads_of(1, 3, 4, 2, 2)
    clean, _ = kernels.run(NAME, {}, [q, k, v])
    q[0, 1, 0] = np.nan
    out, _ = kernels.run(NAME, {}, [q, k, v])
    assert np.isnan(out[0, 1]).all() and out[0, [0, 2]].tobytes() == clean[0, [0, 2]].tobytes()


def test_an_image_has_the_same_bits_in_any_company(kernels):
    arrays = [*heads_of(5, 40, 70, 6, 6), np.array([70, 3, 66, 0, 10], np.float32)]
    params = {"num_heads": 2, "use_length": True}
    whole = kernels.run(NAME, params, arrays)
    backward = [random_arrays(whole[0].shape)[0], *arrays[:3], *whole, arrays[3]]
    whole += kernels.run(BACKWARD, params, backward)
    part = kernels.run(NAME, params, [a[1:3] for a in arrays])
    part += kernels.run(BACKWARD, params, [a[1:3] for a in backward])
    assert all(a[1:3].tobytes() == b.tobytes() for a, b in zip(whole, part, strict=True))


def test_empty_tensors_are_launched_for_what_they_have(kernels):
    empty = heads_of(0, 3, 4, 2, 2)
    assert kernels.run(NAME, {}, empty)[0].size == 0
    q, k, v = heads_of(2, 3, 4, 2, 2)
    out, lse = kernels.run(NAME, {}, [q, k[:, :0], v[:, :0]])
    assert not out.any() and (lse == -2.0 ** 127).all()
    _, key_grad, value_grad = kernels.run(BACKWARD, {}, [out[:, :0], q[:, :0], k, v, out[:, :0], lse[..., :0]])
    assert not key_grad.any() and not value_grad.any()


def test_any_number_of_tiles_fits_a_grid():
    def tensor(*shape: int, dtype: type = np.float32) -> Operand:
        return Operand(64, shape, np.dtype(dtype))
    big, lse = tensor(2**20, 2**14, 4), tensor(2**20, 4, 2**14)
    p = AttentionParams(num_heads=4)
    for launch in (*kernel_op(NAME).launches(p, [big] * 3, [big, lse], 0),
                   *kernel_op(BACKWARD).launches(p, [big] * 5 + [lse], [big] * 3, 64)):
        assert launch.grid[0] < 2**31 and launch.grid[1:] == (1, 1)


def test_what_the_kernels_cannot_take_is_refused_by_name():
    def launches(*ins: Operand, **params: object) -> None:
        kernel_op(NAME).launches(AttentionParams(**params), ins, [ins[0], Operand(64, (1, 1, 4), FLOAT32)], 0)
    half, wide = Operand(64, (1, 4, 8), np.dtype(np.float16)), Operand(64, (1, 4, 257), FLOAT32)
    plain = Operand(64, (1, 4, 8), FLOAT32)
    with pytest.raises(MXNetError, match=f"{NAME}.*float16"):
        launches(half, half, half)
    with pytest.raises(MXNetError, match=f"{NAME}.*up to 256 features, got 257"):
        launches(wide, wide, wide)
    with pytest.raises(MXNetError, match=f"{NAME}.*float64"):
        launches(plain, plain, plain, Operand(64, (1,), np.dtype(np.float64)), use_length=True)
