"""Elementwise kernels of two or more tensors agree with NumPy, at every size and in place."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op

from .harness import every_sample, ops_without_kernel, random_arrays

BINARY = ["elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "_power", "_maximum", "_minimum",
          "_equal", "_not_equal", "_greater", "_greater_equal", "_lesser", "_lesser_equal"]
KERNELS = ("elemwise", "basic")
COMPARISONS = ["equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("elemwise") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("elemwise"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1023, 1025, 4099])
def test_any_size_is_covered_to_its_last_element(kernels, size):
    kernels.check("elemwise_sub", {}, random_arrays((size,), (size,)))


def test_a_tensor_of_several_grids_is_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    kernels.check("elemwise_mul", {}, random_arrays((3, 2777), (3, 2777)))


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5], np.float32)


@pytest.mark.parametrize("op_name", BINARY)
def test_nan_infinity_and_zero_are_treated_as_numpy_does(kernels, op_name):
    lhs, rhs = (a.ravel().copy() for a in np.meshgrid(SPECIAL, SPECIAL))
    kernels.check(op_name, {}, [lhs, rhs])


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_blocked_gradient_is_zero_and_ties_count_as_numpy_says(kernels, compare):
    lhs, rhs = (a.ravel().copy() for a in np.meshgrid(SPECIAL, SPECIAL))
    kernels.check("_multiply_compare", {"compare": compare}, [np.arange(64, dtype=np.float32) + 1, lhs, rhs])


@pytest.mark.parametrize("rhs", [(1,), (5,), (4, 1), (3, 1, 1), (1, 4, 5), (3, 4, 5)])
def test_a_broadcast_divisor_gets_its_gradient_in_the_shape_of_grad(kernels, rhs):
    kernels.check("_div_backward_rhs", {}, random_arrays((3, 4, 5), rhs, (3, 4, 5), low=0.5, high=1.5))


def test_a_sum_of_many_is_added_in_ascending_order(kernels):
    arrays = random_arrays(*[(101,)] * 7)
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    assert (kernels.check("add_n", {"num_args": 7}, arrays)[0] == total).all()


def test_another_dtype_is_refused_by_name():
    operand = Operand(64, (3,), np.dtype(np.int32))
    with pytest.raises(MXNetError, match="operator elemwise_add: its CUDA kernels take float32, got int32"):
        kernel_op("elemwise_add").launches(None, [operand, operand], [operand], 0)
