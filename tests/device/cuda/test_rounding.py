"""Kernels of rounding, clip, hard_sigmoid, smooth_l1 and erf agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997,
                    8388607.5, -8388607.5, 16777217.0, 3e38, 1e-40, 0.3, -0.7], np.float32)
ROUNDING = ("floor", "ceil", "trunc", "fix", "round", "rint")
BOUNDED = [("clip", {"a_min": -0.5, "a_max": 1.5}), ("hard_sigmoid", {"alpha": 0.3, "beta": 0.4}),
           ("smooth_l1", {"scalar": 1.0}), ("smooth_l1", {"scalar": 2.0})]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("rounding") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("rounding"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("op_name", ROUNDING)
def test_halves_and_special_values_are_rounded_exactly_as_numpy_does(kernels, op_name):
    kernels.check(op_name, {}, [SPECIAL], rtol=0, atol=0)
    kernels.check(op_name, {}, random_arrays((1367, 3), low=-9, high=9), rtol=0, atol=0)


@pytest.mark.parametrize(("op_name", "params"), BOUNDED)
def test_bounds_kinks_and_special_values_are_treated_as_numpy_does(kernels, op_name, params):
    finite = SPECIAL if op_name == "clip" else SPECIAL[np.abs(np.nan_to_num(SPECIAL)) < 1e30]
    kernels.check(op_name, params, [finite])
    kernels.check(f"_{op_name}_backward", params, [np.ones_like(finite), finite])
    kernels.check(f"_{op_name}_backward", params, random_arrays((3, 1367), (3, 1367), low=-3, high=3))


def test_an_infinite_gradient_shows_where_clip_blocks_it(kernels):
    found, = kernels.check("_clip_backward", {"a_min": 0, "a_max": 1},
                           [np.array([np.inf, np.inf], np.float32), np.array([0.5, 2.0], np.float32)])
    assert found[0] == np.inf and np.isnan(found[1])


def test_erf_keeps_its_precision_near_zero_and_far_away(kernels):
    kernels.check("erf", {}, [np.array([1e-30, 1e-6, 0.1, 0.4999, 0.5001, 1, 3.9, 5, -2, 9, np.inf], np.float32)],
                  rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers_are_taken_as_numpy_takes_them(kernels, dtype):
    numbers = np.arange(-40, 1031).astype(dtype)
    kernels.check("clip", {"a_min": -2.0, "a_max": 5.5}, [numbers], rtol=0, atol=0)
