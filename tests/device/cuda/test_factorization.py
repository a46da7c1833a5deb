"""Kernels of triangles, factors and inverses agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("factorization",)
EXPANDED = {"_linalg_trmm", "_linalg_trsm", "_linalg_potri", "_linalg_inverse", "_linalg_det", "_linalg_slogdet"}


def test_every_op_that_does_not_expand_has_a_kernel():
    assert ops_without_kernel("factorization") == EXPANDED


@pytest.mark.parametrize(("op_name", "sample"), [
    case for case in every_sample("factorization") if case.values[0] not in EXPANDED])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def test_factors_and_inverses_of_many_matrices_agree_with_numpy(kernels):
    root, = random_arrays((300, 5, 5))
    matrices = root @ root.swapaxes(1, 2) + 2 * np.eye(5, dtype=np.float32)
    factor, = kernels.check("_linalg_potrf", {}, [matrices])
    np.testing.assert_allclose(factor @ factor.swapaxes(1, 2), matrices, rtol=1e-3, atol=1e-4)
    inverse, sign, logarithm = kernels.check("_eliminate", {}, [root + 2 * np.eye(5, dtype=np.float32)], rtol=1e-2)
    expected = np.linalg.slogdet(root + 2 * np.eye(5))
    np.testing.assert_array_equal(sign, expected[0])
    np.testing.assert_allclose(logarithm, expected[1], rtol=1e-3, atol=1e-4)
