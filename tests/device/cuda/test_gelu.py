"""The kernels of gelu agree with NumPy, in the tails too."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("gelu") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("gelu"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def test_the_lower_tail_is_right_in_relative_terms(kernels):
    data = np.linspace(-12, 12, 997, dtype=np.float32)
    kernels.check("_gelu", {}, [data], rtol=1e-4, atol=1e-36)


def test_gradients_are_right_over_a_wide_range(kernels):
    data = np.linspace(-8, 8, 1003, dtype=np.float32)
    kernels.check("_gelu_backward", {}, [random_arrays((1003,))[0], data], atol=1e-6)


def test_nan_and_infinity_are_treated_as_numpy_does(kernels):
    kernels.check("_gelu", {}, [np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)])
