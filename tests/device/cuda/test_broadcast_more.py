"""Kernels of powers, extrema, remainders and comparisons with broadcasting agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays

KERNELS = ("broadcast_more", "elemwise", "modulo")
SHAPES = [((4, 3, 5), (4, 3, 5)), ((4, 3, 5), (1, 3, 1)), ((4, 1, 5), (1, 3, 1)), ((1,), (7, 1, 3)), ((0, 3), (1, 3)),
          ((2,) * 8, (2, 1) * 4), ((513, 9), (513, 1))]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("broadcast_more") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("broadcast_more"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("lhs", "rhs"), SHAPES)
@pytest.mark.parametrize("op_name", family_ops("broadcast_more"))
def test_every_way_of_repeating_agrees_with_numpy(kernels, op_name, lhs, rhs):
    arrays = [np.round(a * 2) / 2 for a in random_arrays(lhs, rhs, low=0.5, high=2.5)]
    kernels.check(op_name, {}, arrays)
