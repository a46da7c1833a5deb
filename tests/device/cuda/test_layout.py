"""Conversions between layouts: CUDA kernels against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("layout")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("layout"))
def test_samples_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("shape", [(2, 33, 7, 5), (1, 16, 1), (3, 1, 9), (2, 500, 2), (2, 4), (0, 3, 2)])
def test_conversion_and_back_gives_the_same_bits(kernels, shape):
    data, = random_arrays(shape)
    blocked, = kernels.check("_to_blocked", {}, [data])
    plain, = kernels.check("_to_plain", {"channels": shape[1]}, [blocked])
    np.testing.assert_array_equal(plain, data)
