"""Kernels of sequences of unequal lengths agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops import get_op

from .harness import every_sample, ops_without_kernel, parsed, random_arrays, stands_for_others

KINDS = [np.float32, np.int32, np.int64]
SHAPES = [(7, 5), (7, 5, 3), (3, 40, 2, 9), (1, 1, 1)]


def exactly(kernels, op_name, params, arrays):
    return kernels.check(op_name, params, arrays, rtol=0, atol=0)


def test_every_op_of_the_family_that_runs_has_a_kernel():
    assert all(map(stands_for_others, ops_without_kernel("sequence")))


@pytest.mark.parametrize(("op_name", "sample"), every_sample("sequence"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_of_every_dtype_cut_sequences_of_any_shape(kernels, shape, axis, kind):
    data, = random_arrays(shape)
    lengths = np.random.default_rng(1).integers(1, shape[axis] + 1, shape[1 - axis]).astype(kind)
    params = {"use_sequence_length": True, "axis": axis}
    exactly(kernels, "SequenceMask", {**params, "value": -2.5}, [data, lengths * (np.arange(lengths.size) > 0)])
    out, = exactly(kernels, "SequenceLast", params, [data, lengths])
    exactly(kernels, "_sequence_last_backward", params, [*random_arrays(out.shape), data, lengths])
    if axis == 0:
        exactly(kernels, "SequenceReverse", params, [data, lengths])


def test_a_length_out_of_range_is_0_and_the_last_element_of_nothing_0(kernels):
    data, = random_arrays((3, 4))
    lengths = np.array([4, -1, np.nan, 0], np.float32)
    params = {"use_sequence_length": True}
    assert not kernels.run("SequenceMask", params, [data, lengths])[0].any()
    assert not kernels.run("SequenceLast", params, [data, lengths])[0].any()
    assert not kernels.run("_sequence_last_backward", params, [np.ones(4, np.float32), data, lengths])[0].any()


def test_many_numbers_stand_in_a_row(kernels):
    exactly(kernels, "_arange", {"start": 3, "stop": 5000, "step": 0.5, "repeat": 3}, [])
    exactly(kernels, "_arange", {"start": 2 ** 24, "stop": 2 ** 24 + 9, "dtype": "int64"}, [])


def test_numbers_of_another_dtype_are_refused():
    p = parsed(get_op("_arange"), {"start": 3})
    with pytest.raises(MXNetError, match="operator _arange: its CUDA kernels write float32"):
        kernel_op("_arange").launches(p, [], [Operand(64, (3,), np.dtype(np.float16))], 0)
