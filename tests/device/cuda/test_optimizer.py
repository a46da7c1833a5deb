"""Update kernels agree with NumPy, read their settings from the control buffer, and clip the global norm."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops.control import CLIP, GLOBAL_NORM, RESCALE, control_size, lr_word

from .harness import every_sample, ops_without_kernel, random_arrays

STATES = {"_sgd_update": 0, "_sgd_mom_update": 1, "_nag_update": 1, "_adam_update": 2}


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("optimizer") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("optimizer"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def control(clip=-1.0, norm=0.0, rescale=0.5):
    """A control buffer of three parameters; the rate and decay of each differ."""
    words = np.zeros(control_size(3), np.float32)
    words[[RESCALE, CLIP, GLOBAL_NORM]] = rescale, clip, norm
    for i in range(3):
        words[lr_word(i):lr_word(i) + 2] = 0.1 * (i + 1), 0.01 * (i + 1)
    return words


@pytest.mark.parametrize("clip", [-1.0, 0.0, 0.05])
@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("op_name", STATES)
def test_settings_are_those_of_the_parameters_words_of_the_control_buffer(kernels, op_name, index, clip):
    tensors = random_arrays(*[(1031,)] * (2 + STATES[op_name]), low=0.1)
    kernels.check(op_name, {"index": index}, [*tensors, control(clip)], rtol=1e-5, atol=1e-6)
    params, scale = {"index": index, "has_scale": True}, np.full(1, 0.25, np.float32)
    kernels.check(op_name, params, [*tensors, control(clip), scale], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_name", STATES)
def test_an_empty_parameter_and_a_single_number_are_updated(kernels, op_name):
    for size in (0, 1):
        tensors = random_arrays(*[(size,)] * (2 + STATES[op_name]), low=0.1)
        kernels.check(op_name, {"index": 1}, [*tensors, control()])


@pytest.mark.parametrize("op_name", STATES)
def test_a_gradient_of_nan_is_not_clipped_away(kernels, op_name):
    tensors = random_arrays(*[(5,)] * (2 + STATES[op_name]), low=0.1)
    tensors[1][2] = np.nan
    weight = kernels.check(op_name, {"index": 0}, [*tensors, control(clip=0.1)])[0]
    assert np.isnan(weight).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("size", [0, 1, 255, 16384, 16385, 50021])
def test_a_sum_of_squares_is_exact_to_float32(kernels, size):
    kernels.check("_sum_squares", {}, random_arrays((size,)), rtol=5e-7, atol=0)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_the_global_norm_is_that_of_all_gradients(kernels, count):
    sums = random_arrays(*[(1,)] * count, low=0.5)
    arrays = [*sums, control(norm=0.01)]
    (scale,) = kernels.check("_global_norm_scale", {"num_args": count}, arrays, rtol=1e-6, atol=0)
    assert 0 < scale[0] < 1


def test_a_norm_within_the_bound_or_no_bound_leaves_gradients_alone(kernels):
    sums = random_arrays((1,), (1,), low=0.5)
    for norm in (0.0, -1.0, 100.0):
        assert kernels.check("_global_norm_scale", {"num_args": 2}, [*sums, control(norm=norm)])[0] == 1


def test_the_number_of_blocks_changes_no_bit_of_a_sum_of_squares(kernels, monkeypatch):
    arrays = random_arrays((70021,))
    usual = kernels.run("_sum_squares", {}, arrays)[0]
    monkeypatch.setattr("minigraph.device.cuda.optimizer.MAX_BLOCKS", 1)
    assert kernels.check("_sum_squares", {}, arrays)[0] == usual
