"""Kernels of sampling grids and bilinear sampling agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("spatial", "basic")
WITHOUT = ops_without_kernel("spatial")


def test_every_op_but_the_expanded_ones_has_a_kernel():
    assert WITHOUT == {"GridGenerator", "SpatialTransformer"}


@pytest.mark.parametrize(("op_name", "sample"), [s for s in every_sample("spatial") if s.values[0] not in WITHOUT])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("form", ["affine", "grid", "pixel"])
@pytest.mark.parametrize("size", [(2, 2), (7, 33), (301, 5)])
def test_grids_of_any_size_reach_from_minus_one_to_one(kernels, form, size):
    kernels.check("_grid_points", {"height": size[0], "width": size[1], "form": form}, [], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("data", "grid"), [((2, 3, 9, 7), (2, 2, 5, 31)), ((1, 5, 1, 4), (1, 2, 3, 3)),
                                            ((3, 1, 40, 40), (3, 2, 20, 20)), ((0, 2, 3, 3), (0, 2, 2, 2)),
                                            ((2, 3, 0, 5), (2, 2, 3, 2))])
def test_points_within_and_outside_are_sampled_and_their_gradients_added(kernels, data, grid):
    image, points = random_arrays(data)[0], random_arrays(grid, low=-1.4, high=1.4, seed=1)[0]
    out, = kernels.check("BilinearSampler", {}, [image, points])
    grad, = random_arrays(out.shape, seed=2)
    kernels.check("_bilinear_sampler_backward", {}, [grad, image, points], rtol=1e-3, atol=1e-4)
