"""Elementwise kernels of a tensor and a constant agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, family_ops, ops_without_kernel


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("scalar") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("scalar"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, 0.75], np.float32)
COMPARISONS = ["equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"]
FORWARD = [name for name in family_ops("scalar") if "backward" not in name and "compare" not in name]


@pytest.mark.parametrize("scalar", [0.0, 1.0, -2.0, 2.5, np.inf, np.nan, 1e40])
@pytest.mark.parametrize("op_name", FORWARD)
def test_special_values_and_constants_are_treated_as_numpy_does(kernels, op_name, scalar):
    kernels.check(op_name, {"scalar": scalar}, [SPECIAL])


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_blocked_gradient_is_zero_and_ties_count_as_numpy_says(kernels, compare):
    grad = np.arange(len(SPECIAL), dtype=np.float32) + 1
    kernels.check("_multiply_compare_scalar", {"compare": compare, "scalar": 0.75}, [grad, SPECIAL])


def test_the_gradient_of_the_power_zero_is_zero_even_at_zero(kernels):
    grad, data = np.ones(5, np.float32), np.array([0, 1, -1, 2, 0], np.float32)
    assert not kernels.check("_power_scalar_backward", {"scalar": 0.0}, [grad, data])[0].any()


def test_the_gradient_of_a_power_of_no_positive_number_is_nan(kernels):
    grad, out = np.ones(5, np.float32), np.ones(5, np.float32)
    assert np.isnan(kernels.check("_rpower_scalar_backward", {"scalar": -1.0}, [grad, out])[0]).all()
