"""FullyConnected and its gradients: CUDA kernels against NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, TensorType
from minigraph.device.cuda.dense import FullyConnectedKernels
from minigraph.device.cuda.gemm import TARGET_BLOCKS, Gemm
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays

FLOAT32 = np.dtype(np.float32)
KERNELS = ("dense", "basic")
SIZES = ((1, 1, 1), (64, 64, 64), (65, 63, 17), (3, 130, 16), (200, 5, 33), (70, 2, 1030), (33, 129, 2100))


def check_all(kernels: Kernels, params: dict[str, Any], data: np.ndarray, weight: np.ndarray,
              bias: np.ndarray | None, atol: float = 1e-5) -> None:
    """Forward and every gradient of one case."""
    params = {**params, "num_hidden": len(weight), "no_bias": bias is None}
    biases = [] if bias is None else [bias]
    out, = kernels.check("FullyConnected", params, [data, weight, *biases], atol=atol)
    grad, = random_arrays(out.shape, seed=1)
    kernels.check("_fully_connected_backward_data", params, [grad, weight, data], atol=atol)
    kernels.check("_fully_connected_backward_weight", params, [grad, data, weight], atol=atol)
    kernels.check("_fully_connected_backward_bias", {}, [grad], atol=atol)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("dense")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("dense"))
def test_samples_agree_with_numpy_forward_and_backward(kernels, op_name, sample):
    if op_name != "FullyConnected":
        return kernels.check_sample(op_name, sample)
    arrays = random_arrays(*sample.shapes)
    return check_all(kernels, sample.params, arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None)


@pytest.mark.parametrize(("rows", "hidden", "features"), SIZES)
def test_tails_of_tiles_and_segments_agree_with_numpy(kernels, rows, hidden, features):
    check_all(kernels, {}, *random_arrays((rows, features), (hidden, features), (hidden,)), atol=1e-4)


def test_rows_of_several_axes_agree_with_numpy(kernels):
    check_all(kernels, {"flatten": False}, *random_arrays((130, 3, 5), (7, 5), (7,)), atol=1e-4)


def test_rows_beyond_the_limit_of_a_grid_axis_agree_with_numpy(kernels):
    check_all(kernels, {}, *random_arrays((98_304, 3), (2, 3), (2,)), atol=1e-3)


def test_an_empty_batch_gives_zero_weight_and_bias_gradients(kernels):
    data, weight, grad = np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32), np.zeros((0, 2), np.float32)
    params = {"num_hidden": 2}
    assert kernels.run("FullyConnected", params, [data, weight, np.ones(2, np.float32)])[0].shape == (0, 2)
    for op_name, arrays in (("_fully_connected_backward_weight", [grad, data, weight]),
                            ("_fully_connected_backward_bias", [grad])):
        out, = kernels.run(op_name, params if len(arrays) > 1 else {}, arrays)
        np.testing.assert_array_equal(out, np.zeros_like(out))


def test_no_features_give_the_bias(kernels):
    out, = kernels.run("FullyConnected", {"num_hidden": 2},
                       [np.zeros((3, 0), np.float32), np.zeros((2, 0), np.float32), np.float32([5, 6])])
    np.testing.assert_array_equal(out, np.tile(np.float32([5, 6]), (3, 1)))


def test_a_slice_of_the_batch_has_the_bits_of_the_whole(kernels):
    data, weight, bias = random_arrays((300, 1500), (70, 1500), (70,))
    params = {"num_hidden": 70}
    whole, = kernels.run("FullyConnected", params, [data, weight, bias])
    part, = kernels.run("FullyConnected", params, [data[128:256], weight, bias])
    assert part.tobytes() == whole[128:256].tobytes()


@pytest.mark.parametrize("target", (1, 2, 7, 20, 10_000))
def test_bits_do_not_depend_on_how_many_blocks_share_a_tile(kernels, target, monkeypatch):
    data, weight, bias, grad = random_arrays((600, 2500), (3, 2500), (3,), (600, 3))
    cases = {"FullyConnected": [data, weight, bias], "_fully_connected_backward_weight": [grad, data, weight]}
    params = {"num_hidden": 3}
    before = [kernels.run(name, params, arrays)[0] for name, arrays in cases.items()]
    monkeypatch.setattr("minigraph.device.cuda.gemm.TARGET_BLOCKS", target)
    for (name, arrays), expected in zip(cases.items(), before, strict=True):
        assert kernels.run(name, params, arrays)[0].tobytes() == expected.tobytes()


def test_many_tiles_need_no_workspace_and_few_tiles_a_bounded_one():
    assert Gemm(4096, 4096, 4096, 1024, 4096 * 4096).workspace_bytes == 0
    few = Gemm(64, 640, 10**6, 1000, 64 * 640)
    assert 0 < few.workspace_bytes <= TARGET_BLOCKS * 64 * 64 * 4


def test_sizes_beyond_32_bits_fit_a_grid():
    features = 2**20
    params = parsed(get_op("FullyConnected"), {"num_hidden": 2**13, "no_bias": True})
    shapes = ((2**23, features), (2**13, features), (2**23, 2**13))
    *ins, out = (Operand(64, shape, FLOAT32) for shape in shapes)
    launch, = FullyConnectedKernels().launches(params, ins, [out], 0)
    assert launch.grid == (2**24, 1, 1)


def test_an_operand_that_is_not_float32_is_refused_by_name():
    params = parsed(get_op("FullyConnected"), {"num_hidden": 2, "no_bias": True})
    ins = [Operand(64, (4, 3), np.dtype(np.float16)), Operand(64, (2, 3), FLOAT32)]
    with pytest.raises(MXNetError, match="FullyConnected.*float16"):
        kernel_op("FullyConnected").launches(params, ins, [Operand(64, (4, 2), FLOAT32)], 0)


def test_declared_workspace_is_that_of_the_launches():
    params = parsed(get_op("FullyConnected"), {"num_hidden": 3})
    ins = [TensorType((5, 4000), FLOAT32), TensorType((3, 4000), FLOAT32), TensorType((3,), FLOAT32)]
    found = kernel_op("FullyConnected").algorithm(params, ins, [TensorType((5, 3), FLOAT32)])
    assert found.workspace_bytes == 4 * 5 * 3 * 4
