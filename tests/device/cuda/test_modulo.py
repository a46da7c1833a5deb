"""Kernels of remainders and hypotenuses agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

NUMBERS = np.array([7, -7, 5.5, -5.5, 0.0, -0.0, 3, 1e-3, 1e7, -1e7], np.float32)
DIVISORS = np.array([3, -3, 0.5, -2.5, 0.0, 7, 10], np.float32)
LHS, RHS = (a.ravel().copy() for a in np.meshgrid(NUMBERS, DIVISORS))


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("modulo") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("modulo"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


def test_a_remainder_has_the_sign_of_the_divisor_and_is_0_for_a_divisor_of_0(kernels):
    found, = kernels.check("_mod", {}, [LHS, RHS], rtol=0, atol=0)
    assert (found[RHS == 0] == 0).all() and (found * RHS >= 0).all()


@pytest.mark.parametrize("scalar", [3.0, -2.5, 0.0])
@pytest.mark.parametrize("op_name", ["_mod_scalar", "_rmod_scalar"])
def test_remainders_with_a_constant_agree_exactly(kernels, op_name, scalar):
    kernels.check(op_name, {"scalar": scalar}, [NUMBERS], rtol=0, atol=0)


def test_gradients_are_floored_quotients(kernels):
    some = RHS != 0
    grad = random_arrays(LHS[some].shape)[0]
    kernels.check("_mod_backward_rhs", {}, [grad, LHS[some], RHS[some]], rtol=1e-6)
    kernels.check("_rmod_scalar_backward", {"scalar": -5.5}, [grad[:5], NUMBERS[[0, 1, 2, 3, 6]]], rtol=1e-6)


def test_a_hypotenuse_does_not_overflow_on_the_way(kernels):
    found, = kernels.check("_hypot", {}, [np.array([3e38, 3, 0, np.inf], np.float32),
                                          np.array([1e38, 4, 0, np.nan], np.float32)], rtol=1e-6)
    assert np.isfinite(found[0]) and found[1] == 5 and found[3] == np.inf
    kernels.check("_hypot_scalar", {"scalar": 2.0}, random_arrays((3, 1367)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers_are_taken_as_numpy_takes_them(kernels, dtype):
    numbers = np.arange(-40, 1031).astype(dtype)
    kernels.check("_mod_scalar", {"scalar": 7.0}, [numbers], rtol=0, atol=0)
