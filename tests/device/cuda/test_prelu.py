"""Kernels of prelu and rrelu agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("prelu") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("prelu"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


SHAPES = [((4, 3, 5), 3), ((4, 3), 3), ((4, 3, 2, 5), 1), ((7,), 1), ((2, 5, 1100), 5), ((3000, 2, 3), 2),
          ((9000,), 1), ((0, 3, 2), 3), ((0, 3), 1)]


@pytest.mark.parametrize(("shape", "slopes"), SHAPES)
def test_every_layout_agrees_with_numpy_forward_and_backward(kernels, shape, slopes):
    grad, data, gamma = random_arrays(shape, shape, (slopes,))
    kernels.check("_prelu", {}, [data, gamma])
    kernels.check("_prelu_backward_data", {}, [grad, data, gamma])
    kernels.check("_prelu_backward_gamma", {}, [grad, data, gamma], atol=1e-4)


def test_special_values_are_treated_as_numpy_does(kernels):
    data = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0]], np.float32)
    kernels.check("_prelu", {}, [data, np.full(1, 0.25, np.float32)])


@pytest.mark.parametrize("size", [1, 5, 4099])
def test_slopes_are_those_that_numpy_draws_and_backward_draws_them_again(kernels, size):
    params = {"lower_bound": 0.125, "upper_bound": 0.334, "ordinal": 3}
    grad, data = random_arrays((size,), (size,))
    key = random_arrays((8,))[0]
    (out,) = kernels.check("_rrelu", params, [data, key], rtol=1e-6, atol=0)
    kernels.check("_rrelu_backward", params, [grad, out, key], rtol=1e-6, atol=0)


def test_the_number_of_blocks_changes_no_bit_of_gammas_gradient(kernels, monkeypatch):
    arrays = random_arrays((3, 4, 1500), (3, 4, 1500), (4,))
    usual = kernels.run("_prelu_backward_gamma", {}, arrays)[0]
    monkeypatch.setattr("minigraph.device.cuda.prelu.MAX_BLOCKS", 2)
    assert (kernels.check("_prelu_backward_gamma", {}, arrays, atol=1e-4)[0] == usual).all()
