"""Pooling and its gradient: CUDA kernels against NumPy."""
from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays

KINDS = ("max", "avg", "sum")


def check_both(kernels: Kernels, params: dict[str, Any], data: np.ndarray) -> None:
    """Forward and gradient of one case."""
    out, = kernels.check("Pooling", params, [data])
    grad, = random_arrays(out.shape, seed=1)
    windowed_max = params.get("pool_type", "max") == "max" and not params.get("global_pool")
    kernels.check("_pooling_backward", params, [grad, data, *([out] if windowed_max else [])])


def tied(shape: tuple[int, ...]) -> np.ndarray:
    """Small integers, of which many are equal."""
    return np.random.default_rng(2).integers(0, 3, shape).astype(np.float32)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("pool")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("pool"))
def test_samples_agree_with_numpy_forward_and_backward(kernels, op_name, sample):
    check_both(kernels, sample.params, *random_arrays(*sample.shapes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convention", ("valid", "full", "same"))
def test_conventions_strides_and_padding_agree_with_numpy(kernels, kind, convention):
    for kernel, stride, size in product((1, 2, 3), (1, 2, 4), (5, 8)):
        params = {"pool_type": kind, "pooling_convention": convention, "kernel": (kernel, 3), "stride": (stride, 2),
                  "pad": (0, 0) if convention == "same" else (kernel // 2, 1)}
        check_both(kernels, params, *random_arrays((2, 2, size, 7)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counted", (True, False))
def test_volumes_and_rows_agree_with_numpy(kernels, kind, counted):
    params = {"pool_type": kind, "count_include_pad": counted}
    check_both(kernels, {**params, "kernel": (3, 2, 3), "stride": (2, 1, 2), "pad": (1, 0, 2)},
               *random_arrays((2, 3, 6, 4, 7)))
    check_both(kernels, {**params, "kernel": (5,), "stride": (3,), "pad": (4,)}, *random_arrays((3, 2, 31)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spatial", ((1,), (31,), (33, 2), (7, 7), (40, 60), (3, 4, 5)))
def test_whole_images_of_any_size_agree_with_numpy(kernels, kind, spatial):
    check_both(kernels, {"pool_type": kind, "global_pool": True}, *random_arrays((3, 5, *spatial)))


@pytest.mark.parametrize("params", ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, {"kernel": (2, 2)},
                                    {"global_pool": True}))
def test_the_first_of_equal_maxima_gets_the_gradient(kernels, params):
    check_both(kernels, params, tied((2, 3, 9, 8)))


@pytest.mark.parametrize("params", ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, {"global_pool": True}))
@pytest.mark.parametrize("value", (np.nan, -np.inf, np.inf))
def test_nan_and_infinity_are_treated_as_numpy_does(kernels, params, value):
    data, = random_arrays((1, 2, 7, 7))
    data[0, 0, 2:5, 2:5] = value
    data[0, 1] = value
    check_both(kernels, params, data)


def test_a_tensor_of_several_grids_is_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    monkeypatch.setattr("minigraph.device.cuda.pool.IMAGE_BLOCKS", 2)
    for kind in KINDS:
        check_both(kernels, {"kernel": (2, 2), "pool_type": kind}, *random_arrays((5, 9, 7, 7)))
        check_both(kernels, {"global_pool": True, "pool_type": kind}, *random_arrays((5, 9, 7, 7)))


def test_images_beyond_the_limit_of_a_grid_axis_agree_with_numpy(kernels):
    check_both(kernels, {"global_pool": True, "pool_type": "avg"}, *random_arrays((70_000, 1, 2)))


def test_an_empty_batch_launches_nothing(kernels):
    data, grad = np.zeros((0, 2, 4, 4), np.float32), np.zeros((0, 2, 2, 2), np.float32)
    params = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "avg"}
    assert kernels.run("Pooling", params, [data])[0].shape == (0, 2, 2, 2)
    assert kernels.run("_pooling_backward", params, [grad, data])[0].shape == data.shape


def test_an_operand_that_is_not_float32_is_refused_by_name():
    params = parsed(get_op("Pooling"), {"kernel": (1,)})
    operand = Operand(64, (1, 1, 4), np.dtype(np.uint8))
    with pytest.raises(MXNetError, match="Pooling.*uint8"):
        kernel_op("Pooling").launches(params, [operand], [operand], 0)
