"""Kernels of deconvolution agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("deconv", "conv")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("deconv") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("deconv"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("no_bias", [False, True])
def test_odd_sizes_strides_and_channels_beyond_a_tile_agree_with_numpy(kernels, groups, no_bias):
    params = {"kernel": (4, 3), "stride": (2, 3), "pad": (1, 0), "adj": (1, 2), "num_filter": 68, "num_group": groups,
              "no_bias": no_bias}
    bias = () if no_bias else ((68,),)
    kernels.check("Deconvolution", params, random_arrays((3, 8, 5, 7), (8, 68 // groups, 4, 3), *bias))


def test_no_images_are_no_launch(kernels):
    params = {"kernel": (2, 2), "num_filter": 3, "no_bias": False}
    kernels.check("Deconvolution", params, random_arrays((0, 2, 3, 3), (2, 3, 2, 2), (3,)))
