"""Convolution and its gradients: CUDA kernels against NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import Kernels, every_sample, ops_without_kernel, random_arrays

FLOAT32 = np.dtype(np.float32)
KERNELS = ("conv", "basic")


def case(data: tuple[int, ...], **params: Any) -> Any:
    """A convolution by its data and parameters."""
    text = ", ".join(f"{k}={v}" for k, v in params.items())
    return pytest.param(data, params, id=f"{data} {text}".replace(" ", ""))


def check_all(kernels: Kernels, data_shape: tuple[int, ...], params: dict[str, Any], atol: float = 1e-4) -> None:
    """Forward and every gradient of one case."""
    depth = data_shape[1] // params.get("num_group", 1)
    data, weight, bias = random_arrays(data_shape, (params["num_filter"], depth, *params["kernel"]),
                                       (params["num_filter"],))
    biases = [] if params.get("no_bias") else [bias]
    out, = kernels.check("Convolution", params, [data, weight, *biases], atol=atol)
    grad, = random_arrays(out.shape, seed=1)
    alone, = kernels.check("_convolution_backward_data", params, [grad, weight, data], atol=atol)
    added, = kernels.check("_convolution_backward_data", {**params, "addend": True}, [grad, weight, data, data],
                           atol=atol)
    assert added.tobytes() == (alone + data).tobytes()
    kernels.check("_convolution_backward_weight", params, [grad, data, weight], atol=atol)
    kernels.check("_convolution_backward_bias", {}, [grad], atol=atol)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("conv")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("conv"))
def test_samples_agree_with_numpy_forward_and_backward(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)
    if op_name == "Convolution":
        check_all(kernels, sample.shapes[0], sample.params, sample.atol)


def test_a_gradient_is_added_after_all_waves_of_segments(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.gemm.SEGMENT", 8)
    for target in (2, 3, 512):
        monkeypatch.setattr("minigraph.device.cuda.gemm.TARGET_BLOCKS", target)
        check_all(kernels, (2, 3, 6, 5), {"kernel": (3, 3), "num_filter": 8, "pad": (1, 1)})


TAILS = (case((2, 65, 9, 8), kernel=(1, 1), num_filter=66), case((3, 5, 7, 7), kernel=(3, 3), num_filter=64),
         case((1, 1, 1, 1), kernel=(1, 1), num_filter=1),
         case((1, 130, 5, 13), kernel=(3, 3), num_filter=3, pad=(1, 1)),
         case((70, 3, 2, 2), kernel=(2, 2), num_filter=5))
GROUPS = (case((2, 6, 5, 6), kernel=(3, 3), num_filter=9, num_group=3, pad=(1, 1)),
          case((2, 20, 5, 5), kernel=(3, 3), num_filter=40, num_group=2),
          case((2, 18, 4, 6), kernel=(2, 2), num_filter=2, num_group=2, stride=(2, 1)),
          case((2, 2, 5, 5), kernel=(3, 3), num_filter=24, num_group=2, pad=(1, 1)),
          case((300, 3, 3, 3), kernel=(2, 2), num_filter=3, num_group=3),
          case((2, 5, 19, 18), kernel=(5, 5), num_filter=5, num_group=5, stride=(2, 2), pad=(2, 2), dilate=(1, 2)),
          case((2, 4, 7), kernel=(3,), num_filter=8, num_group=4, stride=(3,), pad=(2,)),
          case((1, 4, 3, 4, 5), kernel=(2, 2, 3), num_filter=4, num_group=4, stride=(1, 2, 2), pad=(1, 1, 0)))
STEPS = (case((2, 3, 11, 9), kernel=(3, 3), num_filter=4, stride=(2, 3), pad=(1, 1)),
         case((1, 2, 12, 13), kernel=(2, 3), num_filter=3, stride=(5, 4)),
         case((2, 3, 9, 9), kernel=(4, 4), num_filter=4, stride=(2, 2), dilate=(2, 2), pad=(3, 3)),
         case((2, 3, 14, 13), kernel=(4, 3), num_filter=4, stride=(4, 6), dilate=(2, 3), pad=(1, 2)),
         case((2, 3, 10), kernel=(3,), num_filter=3, stride=(2,), dilate=(3,), pad=(4,)),
         case((2, 2, 7, 6, 5), kernel=(3, 2, 3), num_filter=3, stride=(2, 1, 3), dilate=(1, 3, 1), pad=(1, 2, 1)),
         case((3, 3, 32, 32), kernel=(16, 16), num_filter=6, stride=(16, 16), no_bias=True))
LONG = (case((2, 150, 4, 5), kernel=(3, 3), num_filter=3, pad=(1, 1)),
        case((9, 2, 30, 31), kernel=(3, 3), num_filter=3, pad=(1, 1)),
        case((2, 3, 5, 4), kernel=(3, 3), num_filter=130))


@pytest.mark.parametrize(("data", "params"), TAILS)
def test_tails_of_tiles_agree_with_numpy(kernels, data, params):
    check_all(kernels, data, params)


@pytest.mark.parametrize(("data", "params"), GROUPS)
def test_groups_wide_and_thin_agree_with_numpy(kernels, data, params):
    check_all(kernels, data, params)


@pytest.mark.parametrize(("data", "params"), STEPS)
def test_strides_and_dilations_agree_with_numpy(kernels, data, params):
    check_all(kernels, data, params)


@pytest.mark.parametrize(("data", "params"), LONG)
def test_sums_of_several_segments_agree_with_numpy(kernels, data, params):
    check_all(kernels, data, params, atol=2e-4)


@pytest.mark.parametrize("groups", (1, 2))
def test_pixels_that_no_window_reaches_get_a_zero_gradient(kernels, groups):
    params = {"kernel": (1, 1), "num_filter": 2, "stride": (3, 3), "num_group": groups}
    grad, weight, data = random_arrays((1, 2, 2, 2), (2, 2 // groups, 1, 1), (1, 2, 5, 5))
    found, = kernels.check("_convolution_backward_data", params, [grad, weight, data])
    reached = np.zeros((5, 5), bool)
    reached[::3, ::3] = True
    assert (found[0, 0] != 0)[reached].all() and not found[0, :, ~reached].any()


@pytest.mark.parametrize("groups", (1, 2))
def test_images_beyond_the_limit_of_a_grid_axis_agree_with_numpy(kernels, groups):
    check_all(kernels, (70_000, 2, 1, 1), {"kernel": (1, 1), "num_filter": 2, "num_group": groups}, atol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
def test_images_without_channels_leave_the_bias_and_have_no_gradients(kernels, groups):
    params = {"kernel": (2, 2), "num_filter": 2, "num_group": groups}
    data, weight, bias = (np.ones(shape, np.float32) for shape in ((3, 0, 3, 3), (2, 0, 2, 2), (2,)))
    out, = kernels.check("Convolution", params, [data, weight, bias])
    np.testing.assert_array_equal(out, 1)
    assert kernels.run("_convolution_backward_data", params, [out, weight, data])[0].size == 0
    assert kernels.run("_convolution_backward_weight", params, [out, data, weight])[0].size == 0


@pytest.mark.parametrize("groups", (1, 2))
def test_an_empty_batch_gives_zero_weight_and_bias_gradients(kernels, groups):
    params = {"kernel": (2, 2), "num_filter": 2, "num_group": groups, "no_bias": True}
    data, weight = np.zeros((0, 2, 3, 3), np.float32), np.ones((2, 2 // groups, 2, 2), np.float32)
    grad = np.zeros((0, 2, 2, 2), np.float32)
    assert kernels.run("Convolution", params, [data, weight])[0].size == 0
    assert kernels.run("_convolution_backward_data", params, [grad, weight, data])[0].size == 0
    assert not kernels.run("_convolution_backward_weight", params, [grad, data, weight])[0].any()
    assert not kernels.run("_convolution_backward_bias", {}, [grad])[0].any()


@pytest.mark.parametrize("groups", (1, 2))
def test_a_slice_of_the_batch_has_the_bits_of_the_whole(kernels, groups):
    params = {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1), "no_bias": True, "num_group": groups}
    data, weight = random_arrays((5, 260, 3, 3), (4, 260 // groups, 3, 3))
    whole, = kernels.run("Convolution", params, [data, weight])
    part, = kernels.run("Convolution", params, [data[2:4], weight])
    assert part.tobytes() == whole[2:4].tobytes()
    gradient, = kernels.run("_convolution_backward_data", params, [whole, weight, data])
    part, = kernels.run("_convolution_backward_data", params, [whole[2:4], weight, data[2:4]])
    assert part.tobytes() == gradient[2:4].tobytes()


@pytest.mark.parametrize("target", (1, 3, 10_000))
def test_bits_do_not_depend_on_how_many_blocks_share_a_tile(kernels, target, monkeypatch):
    params = {"kernel": (3, 3), "num_filter": 130, "pad": (1, 1), "stride": (2, 2)}
    data, weight, bias, grad = random_arrays((8, 130, 17, 17), (130, 130, 3, 3), (130,), (8, 130, 9, 9))
    cases = {"Convolution": [data, weight, bias], "_convolution_backward_data": [grad, weight, data],
             "_convolution_backward_weight": [grad, data, weight]}
    monkeypatch.setattr("minigraph.device.cuda.conv.SEGMENT_PIXELS", 162)
    before = [kernels.run(name, params, arrays)[0] for name, arrays in cases.items()]
    monkeypatch.setattr("minigraph.device.cuda.gemm.TARGET_BLOCKS", target)
    for (name, arrays), expected in zip(cases.items(), before, strict=True):
        assert kernels.run(name, params, arrays)[0].tobytes() == expected.tobytes()


def test_an_operand_that_is_not_float32_is_refused_by_name():
    params = parsed(get_op("Convolution"), {"kernel": (1, 1), "num_filter": 2, "no_bias": True})
    ins = [Operand(64, (1, 2, 3, 3), np.dtype(np.float64)), Operand(64, (2, 2, 1, 1), FLOAT32)]
    with pytest.raises(MXNetError, match="Convolution.*float64"):
        kernel_op("Convolution").launches(params, ins, [Operand(64, (1, 2, 3, 3), FLOAT32)], 0)


def test_a_channel_of_more_than_2_31_pixels_is_refused():
    params = parsed(get_op("Convolution"), {"kernel": (1,), "num_filter": 1, "no_bias": True})
    ins = [Operand(64, (1, 1, 2**31), FLOAT32), Operand(64, (1, 1, 1), FLOAT32)]
    with pytest.raises(MXNetError, match=r"fewer than 2\^31"):
        kernel_op("Convolution").launches(params, ins, [Operand(64, (1, 1, 2**31), FLOAT32)], 0)
