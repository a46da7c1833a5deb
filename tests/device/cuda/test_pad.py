"""Kernels of margins and of enlargement by repetition agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("pad", "shape", "broadcast", "basic")
MODES = ("constant", "edge", "reflect")
WIDTHS = [((3, 5), (0, 0, 0, 0)), ((3, 5), (2, 1, 0, 4)), ((2, 3, 4, 5), (0, 0, 0, 0, 3, 2, 1, 4)),
          ((4, 301), (0, 3, 9, 7)), ((2, 2, 2, 2, 2), (1, 1) * 5)]


def test_every_op_but_the_expanded_one_has_a_kernel():
    assert ops_without_kernel("pad") == {"UpSampling"}


@pytest.mark.parametrize(("op_name", "sample"), [s for s in every_sample("pad") if s.values[0] != "UpSampling"])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("shape", "widths"), WIDTHS)
@pytest.mark.parametrize("mode", MODES)
def test_margins_of_any_width_and_their_gradients_agree_with_numpy(kernels, mode, shape, widths):
    params = {"mode": mode, "pad_width": widths, "constant_value": -1.5}
    data, = random_arrays(shape)
    out, = kernels.check("Pad", params, [data], rtol=0, atol=0)
    kernels.check("_pad_backward", params, [*random_arrays(out.shape), data])


def test_margins_about_nothing_are_the_constant_alone(kernels):
    kernels.check("Pad", {"mode": "constant", "pad_width": (1, 2, 0, 0), "constant_value": 3}, random_arrays((0, 4)))
    kernels.check("_pad_backward", {"mode": "constant", "pad_width": (1, 2, 0, 0)}, random_arrays((3, 4), (0, 4)))


@pytest.mark.parametrize("scale", [1, 2, 5])
def test_places_are_repeated_both_ways_and_their_gradients_added(kernels, scale):
    kernels.check("_upsample", {"scale": scale}, random_arrays((2, 3, 5, 7)), rtol=0, atol=0)
    kernels.check("_upsample_backward", {"scale": scale}, random_arrays((2, 3, 5 * scale, 7 * scale)))
