"""Kernels of where, argmax and argmin, and gather_nd agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops import get_op

from .harness import every_sample, ops_without_kernel, parsed, random_arrays

KERNELS = ("selecting", "indexing")
KINDS = [np.float32, np.int32, np.int64]


def exactly(kernels, op_name, params, arrays):
    return kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("selecting") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("selecting"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [False, True])
def test_conditions_of_every_dtype_choose_elements_or_rows(kernels, kind, rows):
    x, y = random_arrays((9, 150), (9, 150))
    condition = np.random.default_rng(0).integers(-1, 2, 9 if rows else (9, 150)).astype(kind)
    exactly(kernels, "where", {}, [condition, x, y])
    for hold in (False, True):
        exactly(kernels, "_where_backward", {"hold": hold}, [x, condition])


def test_a_condition_of_nan_holds_and_no_rows_are_no_launch(kernels):
    x, y = random_arrays((2,), (2,))
    exactly(kernels, "where", {}, [np.array([np.nan, -0.0], np.float32), x, y])
    exactly(kernels, "where", {}, [np.zeros(0, np.float32), *random_arrays((0, 3), (0, 3))])


VIEWS = [((7, 5), 1), ((5, 300), 1), ((3, 1500), -1), ((4, 40, 50), 1), ((2, 5000, 3), 1), ((3000,), None), ((9, 3), 0)]


@pytest.mark.parametrize(("shape", "axis"), VIEWS)
@pytest.mark.parametrize("op_name", ["argmax", "argmin"])
def test_the_first_extremum_along_any_axis_is_found(kernels, op_name, shape, axis):
    data = np.round(random_arrays(shape, low=-5, high=5)[0])
    exactly(kernels, op_name, {"axis": axis}, [data])


@pytest.mark.parametrize("classes", [5, 40, 1100])
@pytest.mark.parametrize("op_name", ["argmax", "argmin"])
def test_nan_is_an_extremum_and_infinity_an_ordinary_one(kernels, op_name, classes):
    data = np.zeros((5, classes), np.float32)
    data[0, [2, 4]] = np.nan
    data[1, 3] = np.inf
    data[2, 3] = -np.inf
    data[3] = -np.inf
    data[4] = np.inf
    exactly(kernels, op_name, {"axis": 1}, [data])


def test_an_extremum_of_nothing_is_refused():
    op = get_op("argmax")
    empty, out = Operand(64, (3, 0), np.dtype(np.float32)), Operand(64, (3,), np.dtype(np.float32))
    with pytest.raises(MXNetError, match="argmax over no elements"):
        kernel_op("argmax").launches(parsed(op, {"axis": 1}), [empty], [out], 0)


GATHERS = [((4, 5), 1, (7,)), ((4, 5), 2, (3, 2)), ((3, 4, 300), 2, (9,)), ((20, 3), 1, (400,)), ((4, 5), 1, (0,))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "axes", "places"), GATHERS)
def test_rows_are_gathered_and_their_gradients_added_in_order(kernels, kind, shape, axes, places):
    (data,), draw = random_arrays(shape), np.random.default_rng(1)
    indices = np.stack([draw.integers(0, shape[axis], places) for axis in range(axes)]).astype(kind)
    out, = exactly(kernels, "gather_nd", {}, [data, indices])
    grad, = random_arrays(out.shape, seed=2)
    exactly(kernels, "_gather_nd_backward", {}, [grad, indices, data])


def test_an_index_out_of_range_gathers_0_and_gives_no_gradient(kernels):
    data, = random_arrays((3, 4))
    indices = np.array([[0, 3, -1, 2], [1, 0, 0, np.nan]], np.float32)
    found, = kernels.run("gather_nd", {}, [data, indices])
    assert found.tolist() == [data[0, 1], 0, 0, 0]
    grad, = kernels.run("_gather_nd_backward", {}, [np.ones(4, np.float32), indices, data])
    assert grad[0, 1] == 1 and grad.sum() == 1
