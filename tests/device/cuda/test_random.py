"""Random kernels draw the same bits as NumPy, and so the same masks."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops.control import control_size, set_key

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("random") == {"Dropout", "_random_uniform", "_random_normal"}


@pytest.mark.parametrize(("op_name", "sample"), every_sample("random"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def control(seed=0x123456789ABCDEF, step=7):
    """A control buffer with this key."""
    words = np.zeros(control_size(0), np.float32)
    set_key(words, seed, step)
    return words


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 + 12345])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 4099])
def test_uniform_numbers_have_the_bits_of_numpys(kernels, seed, size):
    params = {"shape": (size,), "ordinal": 5, "low": -0.3, "high": 1.7}
    kernels.check("_uniform_keyed", params, [control(seed, 2**32 - 1)], rtol=0, atol=0)


def test_normal_numbers_agree_with_numpys(kernels):
    kernels.check("_normal_keyed", {"shape": (3, 1367), "ordinal": 2, "loc": 1.5, "scale": 0.5}, [control()])


@pytest.mark.parametrize("size", [1, 3, 4, 5, 4099])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1 - 2**-24])
def test_dropout_keeps_exactly_the_elements_that_numpy_keeps(kernels, p, size):
    kernels.check("_dropout", {"p": p, "ordinal": 3}, [*random_arrays((size,)), control()], rtol=0, atol=0)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2), (-1,)])
def test_dropout_shares_draws_along_axes_as_numpy_does(kernels, axes):
    params = {"p": 0.4, "ordinal": 3, "axes": axes}
    kernels.check("_dropout", params, [*random_arrays((5, 6, 7)), control()], rtol=0, atol=0)


def test_backward_draws_the_mask_of_forward_again(kernels):
    ones = np.ones((3, 700), np.float32)
    mask = kernels.run("_dropout", {"p": 0.3, "ordinal": 1}, [ones, control()])[0]
    again = kernels.check("_dropout_backward", {"p": 0.3, "ordinal": 1}, [ones, control()])[0]
    assert (mask == again).all() and 0 < (mask == 0).sum() < mask.size


def test_steps_and_ordinals_draw_other_masks(kernels):
    ones = np.ones(1000, np.float32)
    masks = {kernels.run("_dropout", {"p": 0.5, "ordinal": o}, [ones, control(step=s)])[0].tobytes()
             for o in (0, 1) for s in (0, 1)}
    assert len(masks) == 4
