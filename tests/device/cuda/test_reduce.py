"""Reductions agree with NumPy over any axes, in one piece and in many, and depend on no kept axis."""
from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from minigraph.base import MXNetError, TensorType
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.device.cuda.reduce import reduction
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import every_sample, ops_without_kernel, random_arrays

AXES = [axes for count in range(1, 5) for axes in combinations(range(4), count)]
FORWARD = ["sum", "mean", "max", "min"]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("reduce") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("reduce"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("op_name", FORWARD)
def test_any_set_of_axes_reduces_as_in_numpy(kernels, op_name, axes):
    kernels.check(op_name, {"axis": axes}, random_arrays((3, 5, 2, 7)))


@pytest.mark.parametrize("axes", AXES)
def test_gradients_are_repeated_along_any_set_of_axes(kernels, axes):
    shape = (3, 5, 2, 7)
    kept = [d for i, d in enumerate(shape) if i not in axes] or [1]
    for op_name in ("_sum_backward", "_mean_backward"):
        kernels.check(op_name, {"axis": axes}, random_arrays(kept, shape))


@pytest.mark.parametrize(("shape", "axes"), [
    ((3, 700), (1,)), ((2, 20000), (1,)), ((20000,), (0,)), ((300, 5), (0,)), ((4, 1000, 33), (1,)),
    ((40, 3, 9, 50), (0, 2, 3)), ((6, 50, 3, 70), (1, 3)), ((2000, 3), (0,)), ((40000, 2), (0,))])
@pytest.mark.parametrize("op_name", ["sum", "max"])
def test_long_reductions_in_pieces_agree_with_numpy(kernels, op_name, shape, axes):
    kernels.check(op_name, {"axis": axes}, random_arrays(shape, low=0.0), rtol=1e-5)


def test_a_long_sum_keeps_its_precision(kernels):
    data = np.full(300001, 0.1, np.float32)
    total, = kernels.run("sum", {}, [data])
    assert abs(total[0] / data.astype(np.float64).sum() - 1) < 1e-6


@pytest.mark.parametrize("shape", [(64, 40), (64, 2000), (64, 9, 40), (64, 300, 3)])
def test_rows_are_summed_to_the_same_bits_in_any_number(kernels, shape):
    (data,) = random_arrays(shape)
    whole, = kernels.run("sum", {"axis": 1}, [data])
    for rows in (slice(0, 16), slice(16, 64), slice(5, 6)):
        part, = kernels.run("sum", {"axis": 1}, [data[rows]])
        assert part.tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("op_name", FORWARD)
def test_nan_reaches_the_result_and_infinity_counts(kernels, op_name):
    data = np.arange(6 * 40, dtype=np.float32).reshape(6, 40)
    data[0, 3] = np.nan
    data[1, 39] = np.inf
    data[2, 0] = -np.inf
    data[3] = -np.inf
    data[4] = np.inf
    kernels.check(op_name, {"axis": 1}, [data])
    kernels.check(op_name, {"axis": 0}, [data])


def test_every_element_equal_to_the_extremum_gets_the_gradient(kernels):
    data = np.array([[1, 3, 3], [2, 2, 2], [np.nan, 1, np.nan]], np.float32)
    grad = np.array([5, 7, 9], np.float32)
    found, = kernels.check("_extremum_backward", {"axis": 1}, [grad, data, data.max(axis=1)])
    assert found.tolist() == [[0, 5, 5], [7, 7, 7], [0, 0, 0]]
    kernels.check("_extremum_backward", {"axis": 0}, [grad, data, data.max(axis=0)])


def test_a_sum_over_nothing_is_zero_and_a_maximum_is_refused(kernels):
    empty = np.zeros((3, 0), np.float32)
    assert kernels.run("sum", {"axis": 1}, [empty])[0].tolist() == [0, 0, 0]
    kernels.check("sum", {"axis": 0}, [empty])
    with pytest.raises(MXNetError, match="max over no elements"):
        kernels.run("max", {"axis": 1}, [empty])


def test_no_axis_at_all_copies(kernels):
    kernels.check("sum", {"axis": (0, 1), "exclude": True}, random_arrays((30, 20)), rtol=0, atol=0)


def test_work_beyond_one_grid_is_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    for shape in ((1000, 3), (50, 40), (5, 9000)):
        kernels.check("sum", {"axis": 1}, random_arrays(shape))
    kernels.check("_sum_backward", {"axis": 0}, random_arrays((70,), (30, 70)))


def test_the_pieces_of_a_sum_depend_on_the_reduced_axes_alone():
    assert {reduction((n, 50000), (1,)).piece for n in (1, 7, 4096)} == {8192}
    assert reduction((8, 16384), (1,)).pieces == 2
    p = parsed(get_op("sum"), {"axis": 1})
    types = [TensorType(shape, np.dtype(np.float32)) for shape in ((8, 16384), (8,))]
    assert kernel_op("sum").algorithm(p, types[:1], types[1:]).workspace_bytes == 64


def test_another_dtype_is_refused_by_name():
    operand = Operand(64, (3,), np.dtype(np.int32))
    with pytest.raises(MXNetError, match="operator mean: its CUDA kernels take float32, got int32"):
        kernel_op("mean").launches(None, [operand], [operand], 0)
