"""On the GPU too, outputs and head gradients are told apart by their position."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from tests import test_heads
from tests.test_output_positions import MODES, X, check, module, repeated

from .processes import run


def bound_and_checked(memory):
    executor = repeated().simple_bind(mx.gpu(0), x=X.shape, w=X.shape, memory=memory, poison=True, **MODES[memory])
    check(executor)
    return len(executor.outputs)


@pytest.mark.parametrize("memory", ["naive", "inplace", "plain", "auto", "lms"])
def test_outputs_of_one_name_and_one_value_twice_are_right(memory):
    assert run(bound_and_checked, memory, SOFTCUDA_RACE=1) == 5


def replayed():
    check(repeated().simple_bind(mx.gpu(0), x=X.shape, w=X.shape, graph=True))
    first, second = module(mx.gpu(0)).predict(mx.io.NDArrayIter(np.ones((8, 5)), np.zeros(8), 4))
    return [first.shape, second.asnumpy().tolist()]


def test_as_one_cuda_graph_and_in_predictions_too():
    assert run(replayed) == [[8, 3], [5.0] * 8]


def scored(memory):
    made = test_heads.prepared(test_heads.two_losses("t", "t"), mx.gpu(0), memory=memory)
    return test_heads.score(made)


@pytest.mark.parametrize("memory", ["plain", "naive"])
def test_each_head_is_scored_by_its_own_label(memory):
    assert run(scored, memory) == [1.0]
