"""Kernels of shape_array and size_array agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("sizes",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("sizes") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("sizes"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def test_eight_axes_fit_and_an_empty_tensor_has_size_0(kernels):
    data, = random_arrays((1, 2, 1, 3, 1, 1, 2, 1))
    assert kernels.check("shape_array", {}, [data])[0].tolist() == [1, 2, 1, 3, 1, 1, 2, 1]
    assert kernels.check("size_array", {}, [data[:0]])[0].tolist() == [0]
