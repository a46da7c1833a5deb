"""Kernels that pick by number agree with NumPy for ids of every dtype, and never follow one out of range."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op

from .harness import every_sample, ops_without_kernel, random_arrays

KINDS = [np.float32, np.int32, np.int64]


def random_ids(shape, bound, kind=np.float32, seed=1):
    return np.random.default_rng(seed).integers(0, bound, shape).astype(kind)


def exactly(kernels, op_name, params, arrays):
    return kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("indexing") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("indexing"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_dtype_are_read(kernels, kind):
    data, weight = random_arrays((6, 5), (9, 4))
    exactly(kernels, "pick", {}, [data, random_ids(6, 5, kind)])
    exactly(kernels, "_pick_backward", {}, [data[:, 0], random_ids(6, 5, kind), data])
    exactly(kernels, "one_hot", {"depth": 5}, [random_ids((2, 3), 5, kind)])
    exactly(kernels, "take", {}, [weight, random_ids((2, 3), 9, kind)])
    exactly(kernels, "_take_backward", {}, [random_arrays((2, 3, 4))[0], random_ids((2, 3), 9, kind), weight])
    exactly(kernels, "Embedding", {"input_dim": 9, "output_dim": 4}, [random_ids((2, 3), 9, kind), weight])


def test_fractions_of_ids_are_cut_off(kernels):
    ids = np.array([0.9, 1.5, 2.999, -0.0], np.float32)
    exactly(kernels, "one_hot", {"depth": 3, "on_value": 2.5, "off_value": -1}, [ids])


@pytest.mark.parametrize(("shape", "axis"), [((4, 3, 5), 0), ((4, 33, 5), 1), ((3, 2, 1100), 2),
                                             ((2, 20, 50), 1)])
def test_pick_and_its_gradient_work_along_any_axis(kernels, shape, axis):
    narrow = shape[:axis] + shape[axis + 1:]
    data, grad = random_arrays(shape, narrow)
    ids = random_ids(narrow, shape[axis])
    exactly(kernels, "pick", {"axis": axis}, [data, ids])
    exactly(kernels, "_pick_backward", {"axis": axis}, [grad, ids, data])


@pytest.mark.parametrize("depth", [1, 16, 40, 1030])
def test_one_hot_of_any_depth_writes_every_class(kernels, depth):
    exactly(kernels, "one_hot", {"depth": depth}, [random_ids((3, 7), depth)])


@pytest.mark.parametrize(("shape", "axis"), [((40, 300), 0), ((3, 17, 20), 1), ((2, 5, 33), 2), ((50, 1), 0),
                                             ((16, 1100), 0)])
def test_take_and_its_gradient_work_along_any_axis(kernels, shape, axis):
    ids = random_ids((5, 3), shape[axis])
    grad_shape = (*shape[:axis], *ids.shape, *shape[axis + 1:])
    a, grad = random_arrays(shape, grad_shape)
    exactly(kernels, "take", {"axis": axis}, [a, ids])
    exactly(kernels, "_take_backward", {"axis": axis}, [grad, ids, a])


def test_rows_of_an_id_that_comes_often_are_added_in_ascending_order(kernels):
    ids = random_ids(700, 3)
    grad, a = random_arrays((700, 20), (40, 20))
    grad *= np.float32(10) ** np.random.default_rng(2).integers(-6, 6, (700, 1)).astype(np.float32)
    exactly(kernels, "_take_backward", {}, [grad, ids, a])


def test_work_beyond_one_grid_is_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    weight, data = random_arrays((70, 300), (600, 3))
    exactly(kernels, "Embedding", {"input_dim": 70, "output_dim": 300}, [random_ids(40, 70), weight])
    exactly(kernels, "_take_backward", {}, [random_arrays((40, 300))[0], random_ids(40, 70), weight])
    exactly(kernels, "pick", {}, [data, random_ids(600, 3)])
    exactly(kernels, "one_hot", {"depth": 20}, [random_ids(60, 20)])


BAD = np.array([-1, 0, 4, 5, 2147483647, 1.5, np.nan, np.inf, -0.5, -1e30], np.float32)
GOOD = np.array([0, 1, 1, 0, 0, 1, 0, 0, 0, 0], bool)


def test_an_id_out_of_range_takes_zeros_and_gives_no_gradient(kernels):
    weight, grad = random_arrays((5, 3), (10, 3))
    found, = kernels.run("Embedding", {"input_dim": 5, "output_dim": 3}, [BAD, weight])
    expected = np.where(GOOD[:, None], weight[np.where(GOOD, BAD, 0).astype(int)], 0)
    assert (found == expected).all()
    found, = kernels.run("_take_backward", {}, [grad, BAD, weight])
    assert (found == np.stack([grad[1], grad[5], 0 * grad[0], 0 * grad[0], grad[2]])).all()


def test_an_id_out_of_range_picks_zero_and_marks_no_class(kernels):
    data, grad = random_arrays((10, 5), (10,))
    picked, = kernels.run("pick", {}, [data, BAD])
    assert (picked[~GOOD] == 0).all() and (picked[GOOD] != 0).all()
    slopes, = kernels.run("_pick_backward", {}, [grad, BAD, data])
    assert (np.count_nonzero(slopes, axis=1) == GOOD).all()
    marked, = kernels.run("one_hot", {"depth": 5}, [BAD])
    assert (marked.sum(axis=1) == GOOD).all()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integer_ids_out_of_range_are_no_addresses_either(kernels, kind):
    ids = np.array([-1, 0, 5, np.iinfo(kind).max, np.iinfo(kind).min, 4], kind)
    weight, grad = random_arrays((5, 3), (6, 3))
    found, = kernels.run("take", {}, [weight, ids])
    assert (found[[1, 5]] == weight[[0, 4]]).all() and not found[[0, 2, 3, 4]].any()
    found, = kernels.run("_take_backward", {}, [grad, ids, weight])
    assert (found[[0, 4]] == grad[[1, 5]]).all() and not found[1:4].any()


def test_tensors_without_elements_launch_nothing_or_zeros(kernels):
    weight, nothing = random_arrays((5, 3), (0, 3))
    exactly(kernels, "take", {}, [weight, random_ids(0, 5)])
    exactly(kernels, "_take_backward", {}, [nothing, random_ids(0, 5), weight])


def test_another_dtype_is_refused_by_name():
    weight, ids = Operand(64, (3, 3), np.dtype(np.float32)), Operand(64, (3,), np.dtype(np.uint8))
    with pytest.raises(MXNetError, match="operator Embedding: its CUDA kernels take ids and labels of "):
        kernel_op("Embedding").launches(None, [ids, weight], [weight], 0)
    with pytest.raises(MXNetError, match="operator one_hot: its CUDA kernels take float32, got uint8"):
        kernel_op("one_hot").launches(None, [weight], [ids], 0)
