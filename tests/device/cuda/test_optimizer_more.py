"""Update kernels of the adaptive optimizers agree with NumPy and read their settings from the control buffer."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops import get_op
from minigraph.ops.optimizer_more import UPDATE_COUNT

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays
from .test_optimizer import control

UPDATES = family_ops("optimizer_more")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("optimizer_more") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("optimizer_more"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def tensors(op_name, size):
    """Weight, gradient and states that a run could have left: a mean square is at least a mean's square."""
    count = 2 + len(get_op(op_name).states)
    low = 0.5 if "centered" in op_name else 0.1
    return random_arrays(*[(size,)] * count, low=low, high=0.6)


@pytest.mark.parametrize("clip", [-1.0, 0.0, 0.05])
@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("op_name", UPDATES)
def test_settings_are_those_of_the_parameters_words_of_the_control_buffer(kernels, op_name, index, clip):
    arrays = tensors(op_name, 1031)
    kernels.check(op_name, {"index": index}, [*arrays, control(clip)], atol=1e-6)
    params, scale = {"index": index, "has_scale": True}, np.full(1, 0.25, np.float32)
    kernels.check(op_name, params, [*arrays, control(clip), scale], atol=1e-6)


@pytest.mark.parametrize("op_name", UPDATES)
def test_an_empty_parameter_and_a_single_number_are_updated(kernels, op_name):
    for size in (0, 1):
        kernels.check(op_name, {"index": 1}, [*tensors(op_name, size), control()])


@pytest.mark.parametrize("count", [1, 2, 10, 1000, 100_000])
def test_nadam_reads_the_number_of_the_update(kernels, count):
    words = control()
    words[UPDATE_COUNT] = count
    kernels.check("_nadam_update", {"index": 0}, [*tensors("_nadam_update", 33), words], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("op_name", ["_rmsprop_update", "_rmsprop_centered_update"])
def test_weights_are_held_within_a_bound(kernels, op_name):
    found = kernels.check(op_name, {"index": 0, "clip_weights": 0.2}, [*tensors(op_name, 40), control()])
    assert np.abs(found[0]).max() <= np.float32(0.2)


def test_a_weight_of_adamax_stays_where_every_gradient_was_0(kernels):
    weight, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    words = control()
    words[9::2] = 0
    found = kernels.check("_adamax_update", {"index": 0}, [weight, zeros, zeros, zeros, words])
    assert found[0].tolist() == [1, 1, 1]
