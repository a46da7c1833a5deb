"""Kernels of roots, logarithms, trigonometric and hyperbolic functions agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops.transcendental import SLOPES

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays

FORWARD = [name for name in family_ops("transcendental") if not name.startswith("_")]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-40, 1e-8, 88.0], np.float32)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("transcendental") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("transcendental"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("op_name", FORWARD)
def test_special_values_are_treated_as_numpy_does(kernels, op_name):
    kernels.check(op_name, {}, [SPECIAL])


@pytest.mark.parametrize("op_name", FORWARD)
def test_a_large_odd_size_is_covered(kernels, op_name):
    low, high = (1.1, 4.0) if op_name == "arccosh" else (0.1, 0.9)
    kernels.check(op_name, {}, random_arrays((3, 1367), low=low, high=high), rtol=1e-5)


KERNELS = ("transcendental", "rounding")


@pytest.mark.parametrize("function", SLOPES)
def test_every_gradient_agrees_with_numpy_for_odd_sizes_and_special_values(kernels, function):
    low, high = (1.1, 4.0) if function == "arccosh" else (0.1, 0.9)
    kernels.check("_function_backward", {"function": function}, random_arrays((3, 1367), (3, 1367), low=low, high=high))
    kernels.check("_function_backward", {"function": function}, [np.ones_like(SPECIAL), SPECIAL])
