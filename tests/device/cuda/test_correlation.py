"""Kernels of correlation agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("windows",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("correlation") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("correlation"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("params", [
    {"kernel_size": 3, "max_displacement": 3, "stride1": 2, "stride2": 2, "pad_size": 4},
    {"kernel_size": 1, "max_displacement": 2, "stride1": 1, "stride2": 2, "pad_size": 1, "is_multiply": False}])
def test_gradients_of_both_maps_agree_with_numpy(kernels, params):
    maps = random_arrays((2, 5, 9, 11), (2, 5, 9, 11))
    found, = kernels.check("Correlation", params, maps)
    grad, = random_arrays(found.shape, seed=3)
    kernels.check("_correlation_backward", params, [grad, *maps])
