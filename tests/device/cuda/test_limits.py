"""Shapes at which grids, indices and sizes of 32 bits end."""
from __future__ import annotations

from math import prod

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import TensorType
from minigraph.device.cuda import import_families
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops import get_op
from minigraph.ops.params import parse_params

from .harness import GRID_LIMITS, execute, parsed, random_arrays

KERNELS = ("softmax", "reduce", "random", "norm", "unary", "elemwise", "conv", "dense")
FLOAT32 = np.dtype(np.float32)
import_families()
HUGE = (65536, 65536)


def agree(kernels, op_name, params, arrays, rtol=1e-5, atol=1e-6):
    """One run of an op's kernels against NumPy."""
    op = get_op(op_name)
    expected = execute(op, parsed(op, params), arrays)
    for a, b in zip(kernels.run(op_name, params, arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol, atol)


def test_softmax_of_98304_rows(kernels):
    agree(kernels, "softmax", {}, random_arrays((98304, 10), low=-4, high=4))


def test_softmax_over_two_channels_of_65536_places(kernels):
    agree(kernels, "softmax", {"axis": 1}, random_arrays((1, 2, 65536, 1), low=-4, high=4))


@pytest.mark.parametrize("op_name", ["sum", "max"])
def test_a_million_rows_of_one_element_are_reduced(kernels, op_name):
    agree(kernels, op_name, {"axis": (1,)}, random_arrays((1_000_000, 1)))


def test_normalisation_of_70000_images(kernels):
    params = {"eps": 1e-3, "fix_gamma": False}
    agree(kernels, "_batchnorm_train", params, random_arrays((70000, 4, 1, 1), (4,), (4,)), rtol=1e-4, atol=1e-5)


def test_uniform_samples_beyond_one_grid(kernels):
    """The grid takes 4,194,304 elements at a time."""
    key = np.zeros(8, np.float32)
    agree(kernels, "_uniform_keyed", {"shape": (2049, 2050)}, [key])


def launches(op_name, params, shapes, out_shapes):
    """The launches of an op on tensors that are not there."""
    op = get_op(op_name)
    p = parse_params(op.Params, params, op_name)
    types = [TensorType(s, FLOAT32) for s in shapes], [TensorType(s, FLOAT32) for s in out_shapes]
    form = kernel_op(op_name)
    nbytes = form.algorithm(p, *types).workspace_bytes
    operands = [[Operand(1 << 40, t.shape, t.dtype) for t in part] for part in types]
    return nbytes, form.launches(p, *operands, 1 << 41 if nbytes else 0)


HUGE_CASES = [
    ("_uniform_keyed", {"shape": (8192, 16384)}, ((8,),), ((8192, 16384),)),
    ("exp", {}, (HUGE,), (HUGE,)),
    ("elemwise_add", {}, (HUGE, HUGE), (HUGE,)),
    ("softmax", {}, (HUGE,), (HUGE,)),
    ("softmax", {"axis": 0}, (HUGE,), (HUGE,)),
    ("sum", {}, (HUGE,), ((1,),)),
    ("sum", {"axis": (1,)}, (HUGE,), ((65536,),)),
    ("FullyConnected", {"num_hidden": 65536, "no_bias": True}, (HUGE, HUGE), (HUGE,)),
    ("_batchnorm_train", {"fix_gamma": False}, ((4, 256, 256, 100, 100), (256,), (256,)),
     ((4, 256, 256, 100, 100), (256,), (256,), (256,))),
]


@pytest.mark.parametrize(("op_name", "params", "shapes", "out_shapes"), HUGE_CASES)
def test_grids_and_sizes_of_tensors_of_billions_of_elements_fit(op_name, params, shapes, out_shapes):
    nbytes, found = launches(op_name, params, shapes, out_shapes)
    assert found and nbytes >= 0
    for launch in found:
        assert all(1 <= n <= most for n, most in zip(launch.grid, GRID_LIMITS, strict=True)), launch
        for form, value in launch.args:
            values = value if isinstance(value, tuple) else (value,)
            assert "i" not in form or all(-2**31 <= v < 2**31 for v in values), launch
    size = max(prod(s) for s in (*shapes, *out_shapes))
    if op_name in ("exp", "elemwise_add", "_uniform_keyed"):
        assert ("q", size) in found[0].args


@pytest.mark.parametrize(("shape", "nbytes"), [(HUGE, 17_179_869_184), ((4, 256, 256, 100, 100), 10_485_760_000)])
@pytest.mark.parametrize("program", ["eval", "train"])
def test_planned_bytes_beyond_32_bits_are_exact(shape, nbytes, program):
    plan = mx.plan(mx.sym.Activation(mx.sym.Variable("x"), act_type="relu"), {"x": shape}, program=program)
    assert plan.planned_bytes == nbytes
