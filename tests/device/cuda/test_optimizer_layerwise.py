"""Update kernels of LAMB and LARS agree with NumPy, whatever the size, the bounds and the number of the update."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.device.cuda.optimizer import PART
from minigraph.ops import get_op
from minigraph.ops.control import UPDATE_COUNT

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays
from .test_optimizer import control

UPDATES = family_ops("optimizer_layerwise")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("optimizer_layerwise") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("optimizer_layerwise"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def tensors(op_name, size):
    return random_arrays(*[(size,)] * (2 + len(get_op(op_name).states)), low=0.1, high=0.6)


@pytest.mark.parametrize("clip", [-1.0, 0.05])
@pytest.mark.parametrize("size", [0, 1, 1031, PART + 1, 3 * PART])
@pytest.mark.parametrize("op_name", UPDATES)
def test_norms_are_those_of_whole_tensors(kernels, op_name, size, clip):
    words = control(clip)
    words[UPDATE_COUNT] = 2
    kernels.check(op_name, {"index": 1}, [*tensors(op_name, size), words], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("params", [{"lower_bound": 100.0}, {"upper_bound": 0.01}, {"bias_correction": False}], ids=str)
def test_bounds_and_correction_of_lamb_are_followed(kernels, params):
    words = control()
    words[UPDATE_COUNT] = 3
    kernels.check("_lamb_update", {"index": 0, **params}, [*tensors("_lamb_update", 300), words], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_name", ["_lars_update", "_lars_mom_update"])
def test_lars_leaves_the_rate_of_some_parameters(kernels, op_name):
    kernels.check(op_name, {"index": 0, "adapts": False}, [*tensors(op_name, 300), control()], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_name", UPDATES)
def test_a_weight_of_zeros_has_the_whole_rate(kernels, op_name):
    weight, *rest = tensors(op_name, 40)
    kernels.check(op_name, {"index": 0}, [np.zeros_like(weight), *rest, control()], rtol=1e-5, atol=1e-6)
