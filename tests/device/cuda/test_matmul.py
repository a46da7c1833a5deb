"""Kernels of matrix products agree with NumPy for every way an operand may lie."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cuda.launch import kernel_op
from minigraph.ops import get_op

from .harness import every_sample, ops_without_kernel, parsed, random_arrays

WAYS = list(itertools.product((False, True), (False, True)))
SIZES = [(1, 1, 1), (65, 17, 3), (3, 130, 70), (70, 2500, 66), (5, 0, 4), (0, 3, 4), (129, 1, 64)]
"""(rows, depth, columns): tiles that are full and not, several segments, no depth, no elements."""


def operands(way, rows, depth, columns, batch=()):
    left = (*batch, depth, rows) if way[0] else (*batch, rows, depth)
    return left, (*batch, columns, depth) if way[1] else (*batch, depth, columns)


def params(way):
    return {"transpose_a": way[0], "transpose_b": way[1]}


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("matmul") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("matmul"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_a_product_agrees_with_numpy(kernels, way, size):
    kernels.check("dot", params(way), random_arrays(*operands(way, *size)), atol=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_agree_with_numpy(kernels, way, size):
    left, right = random_arrays(*operands(way, *size))
    (grad,) = random_arrays((size[0], size[2]), seed=2)
    kernels.check("_dot_backward_lhs", params(way), [grad, right, left], atol=1e-4)
    kernels.check("_dot_backward_rhs", params(way), [grad, left, right], atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_tensors_of_more_axes_are_seen_as_matrices(kernels, way):
    left, right = (3, 4, 5) if way[0] else (4, 5, 3), (2, 7, 3) if way[1] else (3, 2, 7)
    arrays = random_arrays(left, right)
    out, = kernels.check("dot", params(way), arrays)
    grad, = random_arrays(out.shape, seed=3)
    kernels.check("_dot_backward_lhs", params(way), [grad, arrays[1], arrays[0]])
    kernels.check("_dot_backward_rhs", params(way), [grad, *arrays])


@pytest.mark.parametrize("size", [(3, 5, 2), (66, 70, 65), (2, 0, 3), (2, 2100, 3)])
@pytest.mark.parametrize("way", WAYS)
def test_a_batch_of_products_agrees_with_numpy(kernels, way, size):
    kernels.check("batch_dot", params(way), random_arrays(*operands(way, *size, batch=(2, 3))), atol=1e-4)


def test_more_than_65535_products_are_computed(kernels):
    left, right = random_arrays((65537, 1, 2), (65537, 2, 1))
    found, = kernels.run("batch_dot", {}, [left, right])
    np.testing.assert_allclose(found, left @ right, rtol=1e-5, atol=1e-6)


def test_few_tiles_of_a_deep_product_are_spread_over_blocks():
    op = get_op("dot")
    ins = [TensorType((4, 100_000), np.dtype(np.float32)), TensorType((100_000, 8), np.dtype(np.float32))]
    out = TensorType((4, 8), np.dtype(np.float32))
    assert kernel_op("dot").algorithm(parsed(op, {}), ins, [out]).workspace_bytes == 8 * out.nbytes
