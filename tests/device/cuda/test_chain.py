"""Chains of elementwise ops: the interpreting CUDA kernel against NumPy."""
from __future__ import annotations

import json

import numpy as np
import pytest

from minigraph.device.cuda.chain import operation_of
from minigraph.device.cuda.launch import kernel_op
from minigraph.ops.chain import ChainParams, Step
from minigraph.ops.registry import get_op, names

from .harness import every_sample, ops_without_kernel, random_arrays

POINTWISE = [name for name in names() if get_op(name).pointwise]
STEPS = [(name, sample.params) for name in POINTWISE
         for sample in {json.dumps(s.params): s for s in get_op(name).samples()}.values()]


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("chain")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("chain"))
def test_samples_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("name", "params"), STEPS)
def test_every_elementwise_op_may_be_a_step(kernels, name, params):
    count = len(get_op(name).inputs(get_op(name).Params(**params)))
    program = json.dumps([[name, list(range(count)), params], ["negative", [count], {}]])
    arrays = random_arrays(*[(1000,)] * count, low=0.2, high=0.9)
    kernels.check("_elementwise", {"num_args": count, "program": program}, arrays)


def test_the_largest_program_runs(kernels):
    steps = [["elemwise_add", [0, 1], {}]] + [["elemwise_sub", [7 + k, k % 8], {}] for k in range(1, 12)]
    kernels.check("_elementwise", {"num_args": 8, "program": json.dumps(steps)}, random_arrays(*[(3, 5)] * 8))


def test_a_step_without_an_operation_is_not_taken():
    program = json.dumps([["elemwise_add", [0, 1], {}], ["_power", [2, 0], {}]])
    assert not kernel_op("_elementwise").takes(ChainParams(2, program))
    assert operation_of(Step(get_op("_power"), None, (0, 1))) is None
    assert np.all([operation_of(Step(get_op(n), get_op(n).Params(**p), (0, 0))) is not None for n, p in STEPS])
