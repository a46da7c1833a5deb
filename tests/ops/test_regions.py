"""Regions of interest: known values, rows that are not used, and what is refused."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

DATA = np.arange(120, dtype=np.float32).reshape(2, 2, 5, 6)


def first_bins(operator: Any, *rois: Any, data: np.ndarray = DATA, **params: Any) -> list[Any]:
    """Channel 0 of each region's 2 x 2 bins."""
    symbol = operator(mx.sym.Variable("data"), mx.sym.Variable("rois"), pooled_size=(2, 2), spatial_scale=0.5, **params)
    executor = symbol.simple_bind(mx.cpu(), data=data.shape, rois=(len(rois), 5), grad_req="null")
    executor.arg_dict["data"][:], executor.arg_dict["rois"][:] = data, np.array(rois, np.float32)
    return executor.forward()[0].asnumpy()[:, 0].tolist()


def test_the_largest_values_of_rounded_regions_are_mxnets():
    found = first_bins(mx.sym.ROIPooling, [0, 0, 0, 3, 3], [1, -5, -5, 2, 2], [0, 4, 4, 20, 20], [0.7, 3, 3, 1, 1])
    assert found == [[[7, 8], [13, 14]], [[0, 0], [0, 67]], [[29, 0], [0, 0]], [[14, 14], [14, 14]]]


def test_means_of_samples_are_mxnets():
    found = first_bins(mx.sym.contrib.ROIAlign, [0, 0, 0, 3, 3], [1, -5, -5, 2, 2], [0, 4, 4, 20, 20], [0, 3, 3, 1, 1])
    assert found == [[[2.625, 3.375], [7.125, 7.875]], [[0, 0], [0, 61.96875]], [[17.90625, 0], [0, 0]],
                     [[12.25, 12.75], [15.25, 15.75]]]


@pytest.mark.parametrize("operator", [mx.sym.ROIPooling, mx.sym.contrib.ROIAlign])
def test_a_row_of_a_negative_image_is_padding(operator: Any):
    assert first_bins(operator, [-1, 0, 0, 3, 3]) == [[[0, 0], [0, 0]]]


@pytest.mark.parametrize("operator", [mx.sym.ROIPooling, mx.sym.contrib.ROIAlign])
def test_an_image_that_there_is_not_and_a_corner_that_is_no_number_are_refused(operator: Any):
    with pytest.raises(MXNetError, match=r"roi 1 is \[2.0, .* an image outside \[0, 2\)"):
        first_bins(operator, [0, 0, 0, 3, 3], [2, 0, 0, 3, 3])
    with pytest.raises(MXNetError, match=r"roi 0 is .*nan"):
        first_bins(operator, [0, np.nan, 0, 3, 3])


def test_regions_of_any_size_take_time_by_the_image_alone():
    huge = [0, -1e20, -1e9, 1e9, 1e20]
    assert np.isfinite(first_bins(mx.sym.contrib.ROIAlign, huge)).all()
    assert np.isfinite(first_bins(mx.sym.ROIPooling, huge)).all()


def test_a_nan_is_the_largest_value():
    data = DATA.copy()
    data[0, 0, 1, 1] = np.nan
    (found,) = first_bins(mx.sym.ROIPooling, [0, 0, 0, 3, 3], data=data)
    assert np.isnan(found).tolist() == [[True, True], [True, True]]


def test_parameters_without_sense_are_refused():
    data, rois = mx.sym.Variable("d"), mx.sym.Variable("r")
    for params, told in (({"pooled_size": (2,), "spatial_scale": 1.0}, "pooled_size"),
                         ({"pooled_size": (2, 2), "spatial_scale": 0.0}, "spatial_scale 0.0 must be"),
                         ({"pooled_size": (2, 2), "spatial_scale": 1.0, "position_sensitive": True}, "6 channels")):
        with pytest.raises(MXNetError, match=told):
            mx.sym.contrib.ROIAlign(data, rois, **params).infer_shape(d=(1, 6, 4, 4), r=(3, 5))
