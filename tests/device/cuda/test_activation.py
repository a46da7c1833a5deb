"""Activation kernels agree with NumPy, far out and at NaN too."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("activation") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("activation"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


KINDS = ["relu", "sigmoid", "tanh", "softrelu", "softsign"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overflows_far_from_zero(kernels, kind):
    data = np.array([-np.inf, -1e30, -200, -89, -20, -1e-6, 0, 1e-6, 20, 89, 200, 1e30, np.nan], np.float32)
    kernels.check("Activation", {"act_type": kind}, [data], atol=0)


def test_softrelu_of_plus_infinity_is_infinity(kernels):
    (out,) = kernels.check("Activation", {"act_type": "softrelu"}, [np.full(3, np.inf, np.float32)])
    assert out[0] == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_from_saturated_outputs_are_those_of_numpy(kernels, kind):
    saved = np.array([0.0, 1e-7, 0.5, 1.0, -0.0], np.float32)
    kernels.check("_activation_backward", {"act_type": kind}, [np.ones(5, np.float32), saved], atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_odd_size_is_covered(kernels, kind):
    grad, data = random_arrays((5, 823), (5, 823), low=-3, high=3)
    (out,) = kernels.check("Activation", {"act_type": kind}, [data])
    kernels.check("_activation_backward", {"act_type": kind}, [grad, out])
