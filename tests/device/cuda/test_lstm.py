"""The kernels of the LSTM cell agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("lstm") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("lstm"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("size", [(1, 1), (5, 300), (0, 3)], ids=str)
def test_any_size_agrees_with_numpy(kernels, size):
    state, gates = size, (size[0], 4 * size[1])
    kernels.check("lstm_cell", {}, random_arrays(gates, gates, state), atol=1e-6)
    kernels.check("_lstm_cell_backward", {}, random_arrays(state, state, state, state, gates), atol=1e-6)
    kernels.check("_lstm_cell_backward", {"with_cell": False}, random_arrays(state, state, state, gates), atol=1e-6)
