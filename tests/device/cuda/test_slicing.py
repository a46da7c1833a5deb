"""Kernels that join and cut tensors agree with NumPy bit for bit, in fours and one by one."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op

from .harness import every_sample, ops_without_kernel, random_arrays


def exactly(kernels, op_name, params, arrays):
    return kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("slicing") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("slicing"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("lengths", [(4, 8, 12), (3, 1, 5), (4, 0, 1)])
@pytest.mark.parametrize("rest", [4, 5])
def test_concat_joins_along_any_axis(kernels, dim, lengths, rest):
    shapes = []
    for length in lengths:
        shape = [rest, rest, rest]
        shape[dim] = length
        shapes.append(shape)
    exactly(kernels, "Concat", {"num_args": 3, "dim": dim}, random_arrays(*shapes))


@pytest.mark.parametrize(("shape", "axis", "parts"), [((6, 8, 5), 0, 3), ((2, 9, 4), 1, 3),
                                                      ((3, 5, 16), -1, 4)])
def test_parts_of_a_cut_tensor_are_all_written(kernels, shape, axis, parts):
    exactly(kernels, "SliceChannel", {"axis": axis, "num_outputs": parts}, random_arrays(shape))


@pytest.mark.parametrize(("axis", "begin", "end"), [(0, 1, 3), (1, 4, 8), (1, 3, -1), (2, -4, None),
                                                    (-1, 0, 7)])
def test_a_part_comes_back_in_its_place_among_zeros(kernels, axis, begin, end):
    (data,) = random_arrays((5, 12, 8))
    params = {"axis": axis, "begin": begin, "end": end}
    part, = exactly(kernels, "slice_axis", params, [data])
    whole, = exactly(kernels, "_slice_axis_backward", params, [part, data])
    assert np.count_nonzero(whole) == part.size


SLICES = [("(1, 0)", "(4, 3)", "()"), ("(None, 5, 3)", "(None, None, None)", "(2, -1, -2)"),
          ("(-1, -2, 0)", "(None, None, 8)", "(1, 1, 3)"), ("(4,)", "(0,)", "(-3,)")]


@pytest.mark.parametrize(("begin", "end", "step"), SLICES)
def test_a_slice_with_steps_comes_back_in_its_place_among_zeros(kernels, begin, end, step):
    (data,) = random_arrays((5, 7, 9))
    params = {"begin": begin, "end": end, "step": step}
    part, = exactly(kernels, "slice", params, [data])
    whole, = exactly(kernels, "_slice_backward", params, [part, data])
    assert np.count_nonzero(whole) == part.size


def test_tensors_of_several_grids_are_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    exactly(kernels, "Concat", {"num_args": 2}, random_arrays((11, 300), (11, 301)))
    (data,) = random_arrays((30, 70))
    params = {"begin": "(0, 0)", "end": "(30, 69)", "step": "(1, 2)"}
    part, = exactly(kernels, "slice", params, [data])
    exactly(kernels, "_slice_backward", params, [part, data])
    part, = exactly(kernels, "slice_axis", {"axis": 1, "begin": 1, "end": 68}, [data])
    exactly(kernels, "_slice_axis_backward", {"axis": 1, "begin": 1, "end": 68}, [part, data])


def test_tensors_without_elements_launch_nothing(kernels):
    exactly(kernels, "Concat", {"num_args": 2}, random_arrays((0, 3), (0, 2)))
    exactly(kernels, "_slice_axis_backward", {"axis": 1, "begin": 0, "end": 2}, random_arrays((0, 2), (0, 3)))
    exactly(kernels, "SliceChannel", {"num_outputs": 2}, random_arrays((0, 4)))


def test_another_dtype_is_refused_by_name():
    operand = Operand(64, (3, 3), np.dtype(np.int64))
    with pytest.raises(MXNetError, match="operator slice_axis: its CUDA kernels take float32, got int64"):
        kernel_op("slice_axis").launches(None, [operand], [operand], 0)
