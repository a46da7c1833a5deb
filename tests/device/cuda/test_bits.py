"""Bits of comparisons and gradients by bits: CUDA kernels against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError, TensorType
from minigraph.device.cuda.families import import_families
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed
from tests.ops.test_bits import BACKWARD, GRADIENTS, SPECIAL

from .harness import every_sample, ops_without_kernel, random_arrays

import_families()
KERNELS = ("bits", "activation", "leaky", "rounding")


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("bits")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("bits"))
def test_samples_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("params", ({"a_min": -0.4, "a_max": 0.5}, {"a_min": 0.0, "a_max": 6.0}))
@pytest.mark.parametrize("size", (1, 7, 8, 31, 32, 33, 255, 256, 1000, 70_001))
def test_bits_are_numpys_at_any_size(kernels, params, size):
    data = np.resize(SPECIAL, size)
    kernels.check("_positive_bits", {}, [data], rtol=0, atol=0)
    kernels.check("_within_bits", params, [data], rtol=0, atol=0)


@pytest.mark.parametrize("shape", ((9,), (3, 8), (2, 3, 41)), ids=str)
@pytest.mark.parametrize("name, params", BACKWARD, ids=str)
def test_gradients_by_bits_have_the_bits_of_those_by_values(kernels, name, params, shape):
    op, grad, data = get_op(name), np.resize(GRADIENTS, shape), np.resize(SPECIAL, shape)
    kind = TensorType(shape, np.dtype(np.float32))
    form = op.encoding(parsed(op, params), [kind, kind])
    bits, = kernels.execute(get_op(form.encoder), form.encoder_params, [data])
    found, = kernels.execute(get_op(form.reader), form.reader_params, [grad, bits])
    assert found.tobytes() == kernels.run(name, params, [grad, data])[0].tobytes()
    again, = kernels.execute(get_op(form.reader), form.reader_params, [grad, bits], [(0, 0)])
    assert found.tobytes() == again.tobytes()


def test_a_large_odd_size_is_covered(kernels):
    grad, = random_arrays((5, 82_301))
    bits = np.random.default_rng(0).integers(0, 256, -(-grad.size // 8)).astype(np.uint8)
    kernels.check("_slope_bits", {"slope": 0.1}, [grad, bits])


def test_nothing_is_launched_for_nothing_and_other_dtypes_are_refused():
    form, p = kernel_op("_positive_bits"), None
    floats, bits = Operand(64, (0, 8), np.dtype(np.float32)), Operand(128, (0, 1), np.dtype(np.uint8))
    assert not form.launches(p, [floats], [bits], 0)
    with pytest.raises(MXNetError, match="_positive_bits: its CUDA kernels take bits as uint8, got float32"):
        form.launches(p, [floats], [floats], 0)
