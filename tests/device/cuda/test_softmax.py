"""softmax and its kin agree with NumPy for rows of a thread, a warp and a block, at any logits, in place."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.device.cuda.rows import row_group

from .harness import every_sample, ops_without_kernel, random_arrays

FORWARD = ["softmax", "log_softmax"]
BACKWARD = ["_softmax_backward", "_log_softmax_backward"]
CASES = [((7, 1), -1), ((5, 16), -1), ((9, 17), -1), ((3, 1000), -1), ((2, 1500), -1), ((3, 21, 40), 1),
         ((2, 1025, 3), 1), ((10, 4, 5), 0), ((2, 3, 35, 2), 2)]


def test_every_op_but_the_expanded_one_has_a_kernel():
    assert ops_without_kernel("softmax") == {"softmin"}


@pytest.mark.parametrize(("op_name", "sample"), every_sample("softmax"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("shape", "axis"), CASES)
@pytest.mark.parametrize("op_name", FORWARD)
def test_any_axis_agrees_with_numpy(kernels, op_name, shape, axis):
    (data,) = random_arrays(shape, low=-5, high=5)
    kernels.check(op_name, {"axis": axis, "temperature": 0.7}, [data], rtol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), CASES)
@pytest.mark.parametrize("op_name", BACKWARD)
def test_gradients_along_any_axis_agree_with_numpy(kernels, op_name, shape, axis):
    grad, out = random_arrays(shape, shape)
    kernels.check(op_name, {"axis": axis, "temperature": 0.7}, [grad, np.abs(out)], rtol=1e-4, atol=1e-4)


def test_the_three_groups_of_threads_are_all_used():
    cases = ((16, 1), (17, 1), (1024, 1), (1025, 1), (4096, 32), (4097, 32))
    groups = ["thread", "warp", "warp", "block", "thread", "block"]
    assert [row_group(*case) for case in cases] == groups


@pytest.mark.parametrize("op_name", FORWARD)
def test_a_row_of_98304_classes_keeps_its_precision(kernels, op_name):
    kernels.check(op_name, {}, random_arrays((1, 98304), low=-8, high=8), rtol=1e-5, atol=1e-9)


def test_the_sum_of_a_long_row_of_one_thread_keeps_its_precision(kernels):
    data = np.full((1, 4096, 32), np.log(np.float32(0.1)), np.float32)
    data[:, 0] = 0
    wide = np.exp(data.astype(np.float64))
    found, = kernels.run("softmax", {"axis": 1}, [data])
    np.testing.assert_allclose(found, wide / wide.sum(axis=1, keepdims=True), rtol=5e-6)


def test_extreme_logits_neither_overflow_nor_lose_the_answer(kernels):
    data = np.array([[100, -21], [1e8, 1e8], [-3e38, 3e38], [0, 0]], np.float32)
    found, = kernels.check("log_softmax", {}, [data])
    assert found[0, 1] == -121
    assert found[1].tolist() == [-np.log(np.float32(2))] * 2


@pytest.mark.parametrize("classes", [5, 40, 1100])
@pytest.mark.parametrize("op_name", FORWARD)
def test_infinite_logits_and_nan_give_what_numpy_gives(kernels, op_name, classes):
    data = np.zeros((5, classes), np.float32)
    data[0, 1] = np.nan
    data[1, 1] = np.inf
    data[2, 1] = -np.inf
    data[3] = -np.inf
    kernels.check(op_name, {}, [data])


@pytest.mark.parametrize("classes", [10, 100, 1100])
def test_a_row_has_the_same_bits_among_any_number_of_rows(kernels, classes):
    (data,) = random_arrays((40, classes))
    whole, = kernels.run("softmax", {}, [data])
    part, = kernels.run("softmax", {}, [data[7:9]])
    assert part.tobytes() == whole[7:9].tobytes()


def test_rows_beyond_one_grid_are_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    for shape in ((700, 3), (40, 20), (5, 1030)):
        kernels.check("softmax", {}, random_arrays(shape))


def test_tensors_without_elements_launch_nothing(kernels):
    kernels.check("softmax", {}, random_arrays((0, 3)))


def test_the_gradient_of_one_tensor_as_both_inputs_may_overwrite_it(kernels):
    (data,) = random_arrays((3, 50), low=0.0)
    kernels.check("_softmax_backward", {}, [data, data])


def test_another_dtype_is_refused_by_name():
    operand = Operand(64, (3, 3), np.dtype(np.float64))
    with pytest.raises(MXNetError, match="operator softmax: its CUDA kernels take float32, got float64"):
        kernel_op("softmax").launches(None, [operand], [operand], 0)
