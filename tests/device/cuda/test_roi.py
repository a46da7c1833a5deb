"""Kernels of regions of interest agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("roi",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("roi") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("roi"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def regions(count, images, reach):
    """Random regions, some of them outside, turned round, or of no image."""
    rng = np.random.default_rng(2)
    images = rng.integers(-1, images, (count, 1))
    return np.concatenate([images, rng.uniform(-reach / 2, reach * 1.5, (count, 4))], 1).astype(np.float32)


@pytest.mark.parametrize("params", [{}, {"sample_ratio": 2}, {"aligned": True}, {"position_sensitive": True}])
def test_regions_of_every_kind_agree_with_numpy(kernels, params):
    data, grad = random_arrays((2, 8, 9, 13), (30, 2 if "position_sensitive" in params else 8, 2, 2))
    rois = regions(30, 2, 40)
    params = {**params, "pooled_size": (2, 2), "spatial_scale": 0.3}
    kernels.check("_contrib_ROIAlign", params, [data, rois])
    kernels.check("_roi_align_backward", params, [grad, rois, data])
    if len(params) == 2:
        _, places = kernels.check("ROIPooling", params, [data, rois])
        kernels.check("_roi_pooling_backward", params, [grad, rois, places, data])


def test_a_region_that_is_none_counts_for_nothing(kernels):
    data, = random_arrays((1, 2, 4, 4))
    rois = np.array([[1, 0, 0, 3, 3], [0, np.nan, 0, 3, 3], [-1, 0, 0, 3, 3]], np.float32)
    for name in ("ROIPooling", "_contrib_ROIAlign"):
        assert not kernels.run(name, {"pooled_size": (2, 2), "spatial_scale": 1.0}, [data, rois])[0].any()
