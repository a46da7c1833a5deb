"""Kernels of topk give NumPy's order, ties and NaN included."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops import get_op

from .harness import every_sample, ops_without_kernel, parsed, random_arrays

KERNELS = ("ordering", "basic")
WITHOUT = ops_without_kernel("ordering")
KINDS = ("indices", "value", "both", "mask")
VIEWS = [((7, 5), 1), ((5, 300), -1), ((2, 1500), 1), ((4, 41, 5), 1), ((3000,), None), ((9, 3), 0), ((3, 1), 1)]


def exactly(kernels, op_name, params, arrays):
    return kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_but_the_expanded_ones_has_a_kernel():
    assert WITHOUT == {"sort", "argsort"}


@pytest.mark.parametrize(("op_name", "sample"), [s for s in every_sample("ordering") if s.values[0] not in WITHOUT])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize(("shape", "axis"), VIEWS)
def test_rows_along_any_axis_are_ordered_and_equal_elements_stay_as_they_came(kernels, shape, axis, ascending, kind):
    data = np.round(random_arrays(shape, low=-9, high=9)[0])
    length = data.size if axis is None else shape[axis]
    for k in {1, (length + 1) // 2, 0}:
        exactly(kernels, "topk", {"axis": axis, "k": k, "ret_typ": kind, "is_ascend": ascending}, [data])


@pytest.mark.parametrize("ascending", [False, True])
def test_nan_comes_last_and_infinities_stand_at_the_ends(kernels, ascending):
    data = np.array([[np.nan, 1, np.inf, -np.inf, np.nan, 0, -0.0, 2]], np.float32)
    exactly(kernels, "topk", {"k": 0, "ret_typ": "both", "is_ascend": ascending}, [data])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_indices_are_written_in_any_of_these_dtypes(kernels, dtype):
    exactly(kernels, "topk", {"k": 3, "dtype": dtype}, random_arrays((4, 9)))


@pytest.mark.parametrize(("shape", "axis"), VIEWS)
def test_gradients_go_to_the_places_of_what_was_taken(kernels, shape, axis):
    data, = random_arrays(shape)
    k = max(1, (data.size if axis is None else shape[axis]) // 2)
    value, indices = kernels.run("topk", {"axis": axis, "k": k, "ret_typ": "value"}, [data])
    grad, = random_arrays(value.shape, seed=2)
    exactly(kernels, "_topk_backward", {"axis": axis}, [grad, indices, data])


def test_indices_of_another_dtype_are_refused():
    p = parsed(get_op("topk"), {"dtype": "int8"})
    data, out = Operand(64, (3,), np.dtype(np.float32)), Operand(64, (1,), np.dtype(np.int8))
    with pytest.raises(MXNetError, match="operator topk: its CUDA kernels write indices of float32"):
        kernel_op("topk").launches(p, [data], [out], 64)
