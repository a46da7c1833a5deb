"""Batch normalisation: CUDA kernels against NumPy."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.channels import PART, partition, partition_layout
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.norm import NormaliseParams
from minigraph.ops.registry import get_op

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays

CASES = (((5, 3), 1), ((300, 70), 1), ((3, 2, 4, 5), 1), ((4, 3, 2), -1), ((2, 3, 4, 5), 2), ((3, 5), 0),
         ((2, 40, 7, 7), 1), ((9, 2, 31, 33), 1), ((2, 3, 100, 101), 1), ((1, 2, 9000), 1), ((2, 90, 3, 95), 2),
         ((700, 5, 2), 1), ((2, 9000, 3), -1), ((1, 1, 1, 1), 1), ((4, 300, 7, 5), 2))


def check_all(kernels: Kernels, shape: tuple[int, ...], axis: int, atol: float = 1e-4, **params: Any) -> None:
    """Training and inference, forward and gradients, of one case; gradients on the scale of their sums."""
    params = {"axis": axis, "fix_gamma": False, **params}
    data, grad = random_arrays(shape, shape, low=-1.0, high=2.0)
    gamma, beta, moving_mean, moving_var = random_arrays(*[(shape[axis],)] * 4, low=0.5, high=1.5, seed=1)
    out, mean, var, rest = kernels.check("_batchnorm_train", params, [data, gamma, beta], atol=atol)
    kernels.check("_batchnorm_apply", params, [data, gamma, beta, mean, var, rest], atol=atol)
    sum_atol = atol * max(1.0, (prod(shape) / shape[axis]) ** 0.5 / 8)
    kernels.check("_batchnorm_backward", params, [grad, data, gamma, mean, var], atol=sum_atol)
    kernels.check("_batchnorm_update_moving", params, [moving_mean, moving_var, mean, var, data])
    kernels.check("_batchnorm_inference", params, [data, gamma, beta, moving_mean, moving_var])
    kernels.check("_batchnorm_inference_backward_data", params, [grad, gamma, moving_var])
    kernels.check("_batchnorm_inference_backward_params", params, [grad, data, moving_mean, moving_var], atol=sum_atol)


FAMILIES = ("norm", "norm_train", "norm_inference")


def test_every_op_that_is_run_has_a_kernel():
    missing = set().union(*map(ops_without_kernel, FAMILIES))
    assert missing == {"BatchNorm"}     # it is expanded to others before anything runs


@pytest.mark.parametrize("addend", (False, True))
@pytest.mark.parametrize("act_type", (None, "relu", "sigmoid", "tanh"))
def test_an_addend_and_an_activation_in_the_same_pass_agree_with_numpy(kernels, act_type, addend):
    params = {"fix_gamma": False, "act_type": act_type, "addend": addend}
    for shape in ((5, 3), (3, 2, 4, 5), (2, 40, 7, 7), (2, 3, 100, 101)):
        data, other, grad = random_arrays(shape, shape, shape, low=-1.0, high=2.0)
        vector = (shape[1],)
        gamma, beta, moving_mean, moving_var = random_arrays(*[vector] * 4, low=0.5, high=1.5, seed=1)
        more = [other] * addend
        out, mean, var, rest = kernels.check("_batchnorm_train", params, [data, gamma, beta, *more], atol=1e-4)
        again, = kernels.check("_batchnorm_apply", params, [data, gamma, beta, *more, mean, var, rest], atol=1e-4)
        assert again.tobytes() == out.tobytes()
        kernels.check("_batchnorm_inference", params, [data, gamma, beta, moving_mean, moving_var, *more], atol=1e-4)
        from_data = act_type == "relu" and not addend
        slope = [] if act_type is None else [beta, rest] if from_data else [out]
        kernels.check("_batchnorm_backward", params, [grad, data, gamma, mean, var, *slope], atol=1e-3)


def test_ones_are_filled_in(kernels):
    for size in (1, 3, 257, 5000):
        assert (kernels.run("_fill_ones", {}, [np.zeros(size, np.float32)])[0] == 1).all()


@pytest.mark.parametrize(("op_name", "sample"), [s for family in FAMILIES for s in every_sample(family)])
def test_samples_of_single_ops_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("sample", get_op("BatchNorm").samples())
def test_samples_agree_with_numpy_forward_and_backward(kernels, sample):
    check_all(kernels, sample.shapes[0], **{"axis": 1, **sample.params})


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_any_shape_and_axis_agrees_with_numpy(kernels, shape, axis):
    check_all(kernels, shape, axis)


def test_a_fixed_gamma_is_not_read_and_acts_as_one(kernels):
    check_all(kernels, (3, 5, 6), 1, fix_gamma=True, momentum=0.3, eps=0.1)


def test_rows_beyond_the_limit_of_a_grid_axis_agree_with_numpy(kernels):
    check_all(kernels, (98_304, 3), 1, atol=1e-3)


def test_a_tensor_of_several_grids_is_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.channels.MAX_BLOCKS", 2)
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 1)
    check_all(kernels, (3, 700, 5), 1)


@pytest.mark.parametrize("shape", ((16, 1, 4), (64, 1), (4, 1, 16)))
def test_a_large_mean_costs_the_variance_no_digits(kernels, shape):
    data = (10_000 + np.arange(64).reshape(shape) * 0.001).astype(np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    out, mean, var, _ = kernels.run("_batchnorm_train", {"eps": 1e-9, "fix_gamma": False}, [data, one, zero])
    exact = data.astype(np.float64)
    np.testing.assert_allclose(var, exact.var(), 1e-5)
    np.testing.assert_allclose(mean, exact.mean(), 1e-7)
    np.testing.assert_allclose(out, (exact - exact.mean()) / np.sqrt(exact.var() + 1e-9), 1e-3, 2e-3)


def test_an_outlier_in_front_costs_the_variance_no_digits(kernels):
    data, = random_arrays((4, 1, 5000))
    data[0, 0, 0] = 1e4
    one = np.ones(1, np.float32)
    _, _, var, _ = kernels.run("_batchnorm_train", {"fix_gamma": True}, [data, one, one])
    np.testing.assert_allclose(var, data.astype(np.float64).var(), 1e-5)


@pytest.mark.parametrize("shape", ((0, 3, 4, 5), (0, 3)))
def test_an_empty_batch_has_zero_statistics_and_gradients(kernels, shape):
    data, three = np.zeros(shape, np.float32), np.float32([1, 2, 3])
    params = {"fix_gamma": False}
    out, mean, var, _ = kernels.run("_batchnorm_train", params, [data, three, three])
    assert out.shape == shape and not mean.any() and not var.any()
    _, gamma_grad, beta_grad = kernels.run("_batchnorm_backward", params, [data, data, three, mean, var])
    assert not gamma_grad.any() and not beta_grad.any()
    for found in kernels.run("_batchnorm_update_moving", params, [three, three, mean, var, data]):
        np.testing.assert_array_equal(found, three)
    for found in kernels.run("_batchnorm_inference_backward_params", params, [data, data, three, three]):
        assert not found.any()


@pytest.mark.parametrize("layout", ((4, 1, 3, 5), (300, 2, 3, 7), (5, 100, 2, 100), (3, 3, 2, 20_000), (9, 9000, 4, 1),
                                    (2, 1, 1, 8192), (2, 1, 1, 8193)))
def test_parts_cover_every_run_once(layout):
    c = partition_layout(*layout)
    seen = np.zeros((c.batch * c.before, c.after), int)
    for part in range(c.parts):      # the index arithmetic of channels.h: visit_part
        piece, rest = part % c.length_pieces, part // c.length_pieces
        image = rest // c.run_pieces * c.images
        end = min(image + c.images, c.batch) * c.before
        run = image * c.before + rest % c.run_pieces * c.runs
        seen[run:min(run + c.runs, end), piece * c.length:(piece + 1) * c.length] += 1
        assert min(c.runs, end - run) * c.length <= max(PART, c.before * c.after)
    assert (seen == 1).all()


def test_the_partition_of_an_image_does_not_depend_on_the_batch():
    for shape in ((1, 3, 5, 5), (1, 3, 200, 200), (1, 8)):
        one, many = partition(1, shape), partition(1, (500, *shape[1:]))
        assert (one.images, one.runs, one.length, one.lanes) == (many.images, many.runs, many.length, many.lanes)


def test_an_operand_that_is_not_float32_is_refused_by_name():
    operand = Operand(64, (3, 4), np.dtype(np.float16))
    with pytest.raises(MXNetError, match="_batchnorm_train.*float16"):
        kernel_op("_batchnorm_train").launches(NormaliseParams(), [operand] * 3, [operand] * 4, 0)
