"""Kernels of the weights of resized axes agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel

KERNELS = ("resize",)
WEIGHTS = [case for case in every_sample("resize") if case.values[0] == "_resize_weights"]


def test_every_op_of_the_family_that_does_not_expand_has_a_kernel():
    assert ops_without_kernel("resize") == {"_contrib_AdaptiveAvgPooling2D", "_contrib_BilinearResize2D"}


@pytest.mark.parametrize(("op_name", "sample"), WEIGHTS)
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", ["average", "centres", "corners"])
def test_weights_of_long_axes_agree_with_numpy(kernels, kind):
    for length, count in ((513, 100), (97, 300), (224, 7)):
        found, = kernels.check("_resize_weights", {"length": length, "count": count, "kind": kind}, [])
        assert abs(found.sum(1) - 1).max() < 1e-5
