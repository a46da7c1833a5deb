"""Kernels of InstanceNorm and L2Normalization agree with NumPy for rows of a thread, a warp and a block."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

SHAPES = [(3, 5, 4), (2, 3, 9, 7), (2, 2, 40, 41), (9, 3, 1), (0, 3, 4), (3, 0, 4)]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("instance_norm") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("instance_norm"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("shape", SHAPES)
def test_instances_and_their_gradients_agree_with_numpy(kernels, shape):
    data, gamma, beta = random_arrays(shape, shape[1:2], shape[1:2], low=-2, high=3)
    _, mean, inverse = kernels.check("InstanceNorm", {"eps": 0.01}, [data, gamma, beta], atol=1e-4)
    grad, = random_arrays(shape, seed=2)
    kernels.check("_instance_norm_backward", {"eps": 0.01}, [grad, data, gamma, mean, inverse], atol=2e-4)


def test_a_large_mean_costs_no_digits(kernels):
    data = 1000 + np.arange(2 * 2000, dtype=np.float32).reshape(1, 2, 2000) * 0.001
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    found, = kernels.run("InstanceNorm", {"eps": 1e-6}, [data, ones, zeros])[:1]
    wide = data.astype(np.float64)
    centred = wide - wide.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(found, centred / np.sqrt((centred ** 2).mean(axis=2, keepdims=True) + 1e-6), atol=1e-4)


@pytest.mark.parametrize("mode", ["instance", "channel", "spatial"])
@pytest.mark.parametrize("shape", [(3, 5, 4, 2), (2, 30, 9, 7), (2, 1100, 3, 2), (1, 2, 50, 50), (0, 3, 4, 4)])
def test_norms_over_any_axes_and_their_gradients_agree_with_numpy(kernels, mode, shape):
    data, grad = random_arrays(shape, shape)
    found = kernels.check("L2Normalization", {"mode": mode, "eps": 1e-3}, [data])
    kernels.check("_l2_normalization_backward", {"mode": mode}, [grad, *found])
