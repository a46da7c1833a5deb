"""Kernels of diag agree with NumPy for any axes and diagonals."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("diagonal", "basic")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("diagonal") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("diagonal"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("shape", "axes"), [((5, 7), (0, 1)), ((7, 5), (1, 0)), ((40, 3, 50), (0, 2)),
                                             ((2, 6, 3, 4), (3, 1))])
@pytest.mark.parametrize("k", [-2, 0, 1])
def test_any_diagonals_and_their_gradients_agree_with_numpy(kernels, shape, axes, k):
    params = {"k": k, "axis1": axes[0], "axis2": axes[1]}
    data, = random_arrays(shape)
    out, = kernels.check("diag", params, [data], 0, 0)
    assert np.array_equal(out, np.diagonal(data, k, *axes))
    grad, = random_arrays(out.shape)
    kernels.check("_diag_backward", params, [grad, data], 0, 0)


def test_a_long_diagonal_becomes_a_matrix(kernels):
    data, = random_arrays((300,))
    out, = kernels.check("diag", {"k": -3}, [data], 0, 0)
    assert np.array_equal(out, np.diag(data, -3))
