"""Kernels of copies, constants and casts agree with NumPy in every dtype that they take."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op

from .harness import every_sample, ops_without_kernel, random_arrays, stands_for_others

KERNELS = ("basic", "elemwise")
DTYPES = ["float32", "float64", "int32", "int64", "int8", "uint8"]


def test_every_op_of_the_family_that_runs_has_a_kernel():
    assert all(map(stands_for_others, ops_without_kernel("basic")))


@pytest.mark.parametrize(("op_name", "sample"), every_sample("basic"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_cast_converts_as_c_does(kernels, source, target):
    data = (random_arrays((2, 517), low=0.0, high=100.0)[0]).astype(source)
    (out,) = kernels.check("Cast", {"dtype": target}, [data])
    assert (out == data.astype(target)).all()


def test_cast_truncates_towards_zero(kernels):
    data = np.array([-1.9, -0.5, 0.5, 1.9], np.float32)
    assert kernels.check("Cast", {"dtype": "int32"}, [data])[0].tolist() == [-1, 0, 0, 1]


def test_cast_to_a_type_without_kernels_is_refused(kernels):
    with pytest.raises(MXNetError, match="Cast from float32 to float16: the CUDA kernels convert between"):
        kernels.run("Cast", {"dtype": "float16"}, [np.ones(3, np.float32)])


@pytest.mark.parametrize("size", [0, 1, 3, 16, 17, 1031])
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "bool"])
def test_copies_and_constants_are_right_in_every_dtype_and_size(kernels, dtype, size):
    data = np.arange(size).astype(dtype)
    assert (kernels.check("_copy", {}, [data])[0] == data).all()
    assert (kernels.check("ones_like", {}, [data])[0] == 1).all()
    assert (kernels.check("zeros_like", {}, [data])[0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_is_converted_to_its_dtype(kernels, dtype):
    assert (kernels.check("_full", {"shape": (3, 7), "value": 3.75, "dtype": dtype}, [])[0]
            == np.array(3.75).astype(dtype)).all()


def test_a_copy_to_itself_launches_nothing():
    operand = Operand(4096, (3,), np.dtype(np.float32))
    assert not kernel_op("_copy").launches(None, [operand], [operand], 0)


@pytest.mark.parametrize("size", [1, 4096, 4097, 20011])
def test_the_loss_gradient_counts_every_valid_element(kernels, size):
    data = random_arrays((size,))[0]
    params = {"normalization": "valid", "valid_thresh": 0.25, "grad_scale": 3.0}
    (grad,) = kernels.check("_make_loss_backward", params, [data])
    assert (grad == np.float32(3.0 / max((data > 0.25).sum(), 1))).all()


def test_the_loss_gradient_without_valid_elements_divides_by_one(kernels):
    params = {"normalization": "valid", "valid_thresh": 5.0, "grad_scale": 3.0}
    assert (kernels.check("_make_loss_backward", params, [np.ones((2, 3), np.float32)])[0] == 3).all()


def test_the_number_of_blocks_changes_no_count(kernels, monkeypatch):
    data = random_arrays((20011,))[0]
    params = {"normalization": "valid"}
    usual = kernels.run("_make_loss_backward", params, [data])[0]
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    assert (kernels.check("_make_loss_backward", params, [data])[0] == usual).all()
