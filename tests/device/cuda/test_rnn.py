"""Kernels that part the parameters of recurrent layers give NumPy's bits."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops import get_op

from .harness import ops_without_kernel, parsed, random_arrays

KERNELS = ("slicing",)
WITHOUT = ops_without_kernel("rnn")


def test_every_op_but_the_expanded_one_has_a_kernel():
    assert WITHOUT == {"RNN"}


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize(("state", "features"), [(5, 3), (8, 12)])
def test_parts_begin_at_any_number_and_come_back_to_one_vector(kernels, mode, state, features):
    params = {"mode": mode, "num_layers": 2, "bidirectional": True, "state_size": state, "features": features}
    op = get_op("_rnn_parameters")
    (shape,), _ = op.infer_shape(parsed(op, params), [None], [None] * len(op.outputs(parsed(op, params))))
    vector, = random_arrays(shape)
    parts = kernels.check("_rnn_parameters", params, [vector], rtol=0, atol=0)
    back, = kernels.check("_rnn_parameters_backward", params, parts, rtol=0, atol=0)
    assert np.array_equal(back, vector)
