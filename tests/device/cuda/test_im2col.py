"""Kernels of im2col agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel

KERNELS = ("windows",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("im2col") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("im2col"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)
