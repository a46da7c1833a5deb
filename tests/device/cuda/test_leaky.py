"""Kernels of leaky, elu and selu agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("leaky") == {"LeakyReLU"}


@pytest.mark.parametrize(("op_name", "sample"), every_sample("leaky"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


SPECIAL = np.array([np.nan, np.inf, -100.0, -0.5, -0.0, 0.0, 0.5, 100.0], np.float32)


@pytest.mark.parametrize(("op_name", "params"), [("_leaky", {"slope": 0.25}), ("_leaky", {"slope": -1.5}),
                                                 ("_elu", {"below": 1.75, "above": 1.05})])
def test_special_values_are_treated_as_numpy_does(kernels, op_name, params):
    kernels.check(op_name, params, [SPECIAL])


def test_a_large_odd_size_is_covered(kernels):
    grad, data = random_arrays((5, 823), (5, 823), low=-3, high=3)
    kernels.check("_leaky_backward", {"slope": 0.1}, [grad, data])
    (out,) = kernels.check("_elu", {"below": 0.5, "above": 1.0}, [data])
    kernels.check("_elu_backward", {"below": 0.5, "above": 1.0}, [grad, out])


def test_the_gradient_at_zero_is_that_of_the_lower_side(kernels):
    grad, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    assert (kernels.check("_leaky_backward", {"slope": 0.25}, [grad, zeros])[0] == 0.25).all()
