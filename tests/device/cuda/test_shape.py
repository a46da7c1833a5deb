"""Kernels that reorder axes agree with NumPy bit for bit, by tiles or one by one; views launch nothing."""
from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("shape", "basic")


def kernel_of(axes, shape):
    p = parsed(get_op("transpose"), {"axes": axes})
    out = tuple(shape[i] for i in axes)
    operands = [Operand(64 * i, s, np.dtype(np.float32)) for i, s in enumerate((shape, out), 1)]
    return [launch.kernel for launch in kernel_op("transpose").launches(p, operands[:1], operands[1:], 0)]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("shape") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("shape"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("axes", list(permutations(range(3))))
@pytest.mark.parametrize("shape", [(33, 9, 65), (2, 40, 31), (1, 17, 16), (5, 1, 70)])
def test_any_order_of_axes_moves_every_element_to_its_place(kernels, axes, shape):
    (data,) = random_arrays(shape)
    found, = kernels.check("transpose", {"axes": axes}, [data], rtol=0, atol=0)
    assert (found == data.transpose(axes)).all()


@pytest.mark.parametrize("axes", [(3, 1, 0, 2), (0, 3, 1, 2), (2, 3, 0, 1)])
def test_four_axes_take_tiles_with_two_batch_axes(kernels, axes):
    kernels.check("transpose", {"axes": axes}, random_arrays((9, 11, 10, 35)), rtol=0, atol=0)


def test_more_axes_than_kernels_take_are_merged_where_they_stay_together(kernels):
    kernels.check("transpose", {"axes": (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)},
                  random_arrays((2, 1, 2, 3, 2, 2, 3, 1, 2, 2)), rtol=0, atol=0)


def test_tiles_are_chosen_where_neither_side_alone_would_move_lines():
    assert kernel_of((1, 0), (64, 64)) == ["transpose_forward_tiled"]
    assert kernel_of((1, 0, 2), (64, 64, 64)) == ["transpose_forward_gather"]
    assert kernel_of((0, 2, 3, 1), (64, 3, 224, 224)) == ["transpose_forward_gather"]
    assert kernel_of((0, 1), (64, 64)) == ["copy_forward_bytes"]
    assert kernel_of((1, 0), (0, 64)) == []


def test_tiles_outnumbering_the_grid_are_all_moved(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    kernels.check("transpose", {}, random_arrays((100, 130)), rtol=0, atol=0)
    kernels.check("SwapAxis", {"dim1": 1, "dim2": 2}, random_arrays((50, 7, 6)), rtol=0, atol=0)


def test_a_view_over_its_input_launches_nothing():
    data = Operand(64, (2, 6), np.dtype(np.float32))
    view = Operand(64, (3, 4), np.dtype(np.float32))
    assert list(kernel_op("Reshape").launches(None, [data], [view], 0)) == []


def test_another_dtype_is_refused_by_name():
    operand = Operand(64, (3, 3), np.dtype(np.float64))
    with pytest.raises(MXNetError, match="operator SwapAxis: its CUDA kernels take float32, got float64"):
        kernel_op("SwapAxis").launches(None, [operand], [operand], 0)
