"""Kernels of reversals, stacks and trades of channels for places give NumPy's bits."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("shape", "slicing", "basic")


def exactly(kernels, op_name, params, arrays):
    kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_but_the_expanded_ones_has_a_kernel():
    assert ops_without_kernel("shape_more") == {"Crop", "slice_like"}


VIEWS = ("squeeze", "reshape_like")
EXPANDED = ("Crop", "slice_like")


@pytest.mark.parametrize(("op_name", "sample"), [s for s in every_sample("shape_more") if s.values[0] not in EXPANDED])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1), (1, 2), (0, 1, 2), (-1, -3)])
def test_any_axes_are_reversed(kernels, axes):
    exactly(kernels, "reverse", {"axis": axes}, random_arrays((5, 17, 33)))


def test_a_tensor_without_elements_is_reversed_by_no_launch(kernels):
    exactly(kernels, "reverse", {"axis": (1,)}, random_arrays((3, 0)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_tensors_are_stacked_along_any_axis(kernels, axis):
    exactly(kernels, "stack", {"num_args": 3, "axis": axis}, random_arrays(*[(5, 36)] * 3))


@pytest.mark.parametrize("block", [1, 2, 3])
def test_channels_are_traded_for_places_and_back(kernels, block):
    exactly(kernels, "depth_to_space", {"block_size": block}, random_arrays((2, 3 * block ** 2, 5, 7)))
    exactly(kernels, "space_to_depth", {"block_size": block}, random_arrays((2, 3, 5 * block, 7 * block)))
