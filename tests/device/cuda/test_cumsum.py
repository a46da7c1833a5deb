"""Kernels of cumsum have the bits of NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import run

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("cumsum",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("cumsum") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("cumsum"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("params", [{}, {"axis": 0}, {"axis": 1}])
def test_rows_are_added_in_order(kernels, params):
    data, = random_arrays((301, 77))
    found, = kernels.run("_np_cumsum", params, [data])
    np.testing.assert_array_equal(found, run("_np_cumsum", params, [data])[0])
