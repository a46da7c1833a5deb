"""Elementwise kernels of one tensor agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("unary") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("unary"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 3e38], np.float32)
FORWARD = [name for name in family_ops("unary") if "backward" not in name]
BACKWARD = [name for name in family_ops("unary") if "backward" in name]


@pytest.mark.parametrize("op_name", FORWARD)
def test_special_values_are_treated_as_numpy_does(kernels, op_name):
    kernels.check(op_name, {}, [SPECIAL])


@pytest.mark.parametrize("op_name", FORWARD)
def test_a_large_odd_size_is_covered(kernels, op_name):
    kernels.check(op_name, {}, random_arrays((3, 1367), low=0.1, high=4.0))


@pytest.mark.parametrize("op_name", BACKWARD)
def test_a_large_odd_size_is_covered_backward(kernels, op_name):
    kernels.check(op_name, {}, random_arrays((3, 1367), (3, 1367), low=0.1, high=4.0))


def test_no_gradient_of_abs_passes_at_zero(kernels):
    assert not kernels.check("_abs_backward", {}, [np.ones(6, np.float32), np.zeros(6, np.float32)])[0].any()
