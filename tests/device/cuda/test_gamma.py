"""Kernels of the gamma function and its kin agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, family_ops, ops_without_kernel

KERNELS = ("gamma",)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, -2.0, 2.0, 0.5, 1.5, -0.5, -1.5, 1e-3, 36.0],
                   np.float32)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("gamma") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("gamma"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("op_name", family_ops("gamma"))
def test_poles_and_both_sides_of_0_agree_with_numpy(kernels, op_name):
    kernels.check(op_name, {}, [SPECIAL])
    kernels.check(op_name, {}, [np.linspace(-4.9, 30, 2001).astype(np.float32)], rtol=2e-4, atol=1e-4)
