"""Kernels of broadcasting arithmetic, and of the sum back to a smaller shape, agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("broadcast", "elemwise")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("broadcast") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("broadcast"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


SHAPES = [((4, 3, 5), (4, 3, 5)), ((4, 3, 5), (1, 3, 1)), ((4, 3, 5), (5,)), ((4, 3, 5), (4, 1, 1)),
          ((4, 1, 5), (1, 3, 1)), ((1,), (7, 1, 3)), ((7, 1, 3), (1, 1, 1)), ((0, 3), (1, 3)),
          ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1)), ((2,) * 8, (2, 1) * 4), ((1, 1, 2) * 4, (1, 2, 1) * 4),
          ((513, 9), (513, 1))]



@pytest.mark.parametrize(("lhs", "rhs"), SHAPES)
@pytest.mark.parametrize("op_name", ["broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div"])
def test_every_way_of_repeating_agrees_with_numpy(kernels, op_name, lhs, rhs):
    kernels.check(op_name, {}, random_arrays(lhs, rhs, low=0.5, high=1.5))


SUMS = [((7, 5), (5,)), ((7, 5), (7, 1)), ((700, 5), (5,)), ((5, 700), (5, 1)), ((3, 5000), (3, 1)),
        ((5000, 3), (1, 3)), ((6, 4, 90), (1, 4, 1)), ((4, 3, 700), (1, 3, 1)), ((3, 2, 4, 5), (1, 2, 1, 5)),
        ((3, 2, 4, 50), (3, 1, 4, 1)), ((9001,), (1,)), ((2, 3, 1500), (1,)),
        ((2, 3), (2, 3)), ((0, 3), (3,)), ((3, 0), (3, 1)), ((0,), (1,)),
        ((2, 2, 2, 2, 2, 2), (1, 2, 1, 2, 1, 2)), ((2, 3, 1, 40, 2, 3), (3, 1, 1, 2, 1))]


@pytest.mark.parametrize(("shape", "target"), SUMS)
def test_sums_over_any_axes_agree_with_numpy(kernels, shape, target):
    kernels.check("_sum_like", {}, [*random_arrays(shape), np.zeros(target, np.float32)])


def test_a_long_sum_is_as_exact_as_one_in_parts_can_be(kernels):
    data = random_arrays((30011,), low=0.0, high=1.0)[0]
    (total,) = kernels.check("_sum_like", {}, [data, np.zeros(1, np.float32)])
    exact = data.astype(np.float64).sum()
    assert abs(total[0] - exact) < 4e-7 * exact


def test_each_output_of_a_larger_tensor_has_the_bits_that_it_has_alone(kernels):
    data = random_arrays((6, 700))[0]
    whole = kernels.run("_sum_like", {}, [data, np.zeros((6, 1), np.float32)])[0]
    alone = kernels.run("_sum_like", {}, [data[2:4], np.zeros((2, 1), np.float32)])[0]
    assert (whole[2:4] == alone).all()


@pytest.mark.parametrize(("shape", "target"), [((9, 700), (9, 1)), ((3, 2, 5000), (3, 1, 1)), ((700, 9), (9,))])
def test_the_number_of_blocks_changes_no_bit_of_a_sum(kernels, monkeypatch, shape, target):
    arrays = [*random_arrays(shape), np.zeros(target, np.float32)]
    usual = kernels.run("_sum_like", {}, arrays)[0]
    monkeypatch.setattr("minigraph.device.cuda.broadcast.MAX_BLOCKS", 1)
    assert (kernels.check("_sum_like", {}, arrays)[0] == usual).all()
