"""Layer normalisation: CUDA kernels against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.layer_norm import LayerNormParams
from tests.ops.harness import execute_by_name

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays

FLOAT32 = np.dtype(np.float32)
SHAPES = (((5, 7), -1), ((3, 300), -1), ((2, 5000), 1), ((3, 9, 40), 1), ((2, 6, 5), 1), ((70, 35), 0), ((1, 1), 0),
          ((2, 3, 4, 33), 2), ((3, 1025), -1), ((200, 2, 3), -1), ((9, 600, 4), -1))


def check_both(kernels: Kernels, axis: int, data: np.ndarray, atol: float = 2e-5) -> None:
    """Forward and gradients of one case, each on the same inputs as NumPy's."""
    gamma, beta, grad = random_arrays((data.shape[axis],), (data.shape[axis],), data.shape, low=-1.5, high=2.0, seed=3)
    _, mean, std = kernels.check("LayerNorm", {"axis": axis}, [data, gamma, beta], atol=atol)
    kernels.check("_layernorm_backward", {"axis": axis}, [grad, data, gamma, mean, std], atol=20 * atol)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("layer_norm")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("layer_norm"))
def test_samples_agree_with_numpy_forward_and_backward(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)
    check_both(kernels, sample.params.get("axis", -1), *random_arrays(sample.shapes[0]))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_any_shape_and_axis_agrees_with_numpy(kernels, shape, axis):
    check_both(kernels, axis, *random_arrays(shape))


def test_blocks_share_rows_that_are_more_than_they(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.layer_norm.ROW_BLOCKS", 5)
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 1)
    check_both(kernels, -1, *random_arrays((97, 33)))
    check_both(kernels, 1, *random_arrays((17, 3, 40)))


def test_any_number_of_rows_fits_a_grid():
    data, rows = Operand(64, (2**33, 4), FLOAT32), Operand(64, (2**33, 1), FLOAT32)
    vector = Operand(64, (4,), FLOAT32)
    launch, = kernel_op("LayerNorm").launches(LayerNormParams(), [data, vector, vector], [data, rows, rows], 0)
    assert launch.grid[0] < 2**31 and launch.grid[1:] == (1, 1)


@pytest.mark.parametrize("axis", (-1, 0))
def test_a_large_mean_costs_no_digits(kernels, axis):
    rows = (10_000 + np.arange(64).reshape(4, 16) * 0.001).astype(np.float32)
    exact = rows.astype(np.float64)
    expected = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    data = rows if axis else np.ascontiguousarray(np.tile(rows.T[:, :, None], 40).reshape(16, -1))
    ones = np.ones(data.shape[axis], np.float32)
    out, *_ = kernels.run("LayerNorm", {"axis": axis}, [data, ones, 0 * ones])
    np.testing.assert_allclose(out if axis else out.reshape(16, 4, 40)[:, :, 7].T, expected, 0, 2e-6)


def test_the_mean_of_a_long_row_is_exact_to_the_last_digit(kernels):
    data, = random_arrays((3000, 40), low=1000.0, high=1001.0)
    one = np.ones(3000, np.float32)
    _, mean, _ = kernels.run("LayerNorm", {"axis": 0}, [data, one, one])
    np.testing.assert_array_max_ulp(mean, data.astype(np.float64).mean(0, keepdims=True).astype(np.float32), 1)


@pytest.mark.parametrize("mean", (1000, 10_000))
def test_gradients_beside_a_large_mean_are_exact(kernels, mean):
    data = (mean + np.arange(16).reshape(1, 16) * 0.001).astype(np.float32)
    grad, gamma, beta = random_arrays((1, 16), (16,), (16,), low=0.5, high=2.0)
    _, *statistics = kernels.run("LayerNorm", {}, [data, gamma, beta])
    found = kernels.run("_layernorm_backward", {}, [grad, data, gamma, *statistics])
    wide = [a.astype(np.float64) for a in (data, gamma, beta, grad)]
    _, *exact = execute_by_name("LayerNorm", {}, wide[:3])
    expected = execute_by_name("_layernorm_backward", {}, [wide[3], wide[0], wide[1], *exact])
    np.testing.assert_array_equal(statistics[0], exact[0].astype(np.float32))
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5 * np.abs(want).max())


def test_rows_of_constants_are_zero(kernels):
    data = np.full((3, 256), 1234.0, np.float32)
    out, mean, _ = kernels.run("LayerNorm", {}, [data, np.ones(256, np.float32), np.zeros(256, np.float32)])
    assert not out.any() and (mean == 1234).all()


def test_an_empty_batch_has_zero_parameter_gradients(kernels):
    data, rows, gamma = np.zeros((0, 3), np.float32), np.zeros((0, 1), np.float32), np.ones(3, np.float32)
    assert kernels.run("LayerNorm", {}, [data, gamma, gamma])[0].size == 0
    _, gamma_grad, beta_grad = kernels.run("_layernorm_backward", {}, [data, data, gamma, rows, rows])
    assert not gamma_grad.any() and not beta_grad.any()


def test_a_slice_of_the_batch_has_the_bits_of_the_whole(kernels):
    data, gamma, beta = random_arrays((9, 4, 50), (50,), (50,))
    whole = kernels.run("LayerNorm", {}, [data, gamma, beta])
    part = kernels.run("LayerNorm", {}, [data[3:6], gamma, beta])
    assert all(a[3:6].tobytes() == b.tobytes() for a, b in zip(whole, part, strict=True))


def test_an_operand_that_is_not_float32_is_refused_by_name():
    operand = Operand(64, (3, 4), np.dtype(np.float16))
    with pytest.raises(MXNetError, match="LayerNorm.*float16"):
        kernel_op("LayerNorm").launches(LayerNormParams(), [operand] * 3, [operand] * 3, 0)
