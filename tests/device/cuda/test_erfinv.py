"""The kernel of erfinv agrees with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel

KERNELS = ("transcendental",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("erfinv") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("erfinv"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def test_the_whole_range_agrees_in_relative_terms(kernels):
    data = np.concatenate([np.linspace(-1, 1, 301), [1e-30, 0.949999, 0.950001, 1 - 6e-8, -1 + 6e-8, 1.5, -2, np.nan]])
    kernels.check("erfinv", {}, [data.astype(np.float32)], rtol=3e-6, atol=0)
