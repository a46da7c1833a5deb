"""Convolution kernels give the NumPy definition for all sizes they take: tails, groups, strides, pads, dilation."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.registry import get_op
from tests.ops.harness import infer, parsed

from .harness import check, run, threads

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((2, 32, 9, 11), {"kernel": (3, 3), "num_filter": 32, "pad": (1, 1)}),
    "3x3 of one block": ((5, 16, 33, 35), {"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}),
    "3x3 of three blocks to five": ((2, 48, 7, 7), {"kernel": (3, 3), "num_filter": 80, "pad": (1, 1)}),
    "3x3 of odd rows in pairs": ((1, 32, 5, 5), {"kernel": (3, 3), "num_filter": 64, "pad": (1, 1)}),
    "3x3 stride 2": ((3, 32, 12, 13), {"kernel": (3, 3), "num_filter": 48, "pad": (1, 1), "stride": (2, 2)}),
    "1x1": ((2, 64, 7, 9), {"kernel": (1, 1), "num_filter": 96}),
    "1x1 wide": ((1, 16, 40, 41), {"kernel": (1, 1), "num_filter": 16}),
    "1x1 stride 2": ((2, 32, 9, 8), {"kernel": (1, 1), "num_filter": 64, "stride": (2, 2)}),
    "1x1 padded": ((2, 32, 4, 4), {"kernel": (1, 1), "num_filter": 32, "pad": (1, 2)}),
    "7x7 first": ((2, 3, 35, 33), {"kernel": (7, 7), "num_filter": 64, "pad": (3, 3), "stride": (2, 2)}),
    "3x3 first": ((3, 3, 16, 17), {"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}),
    "5x5 of one channel": ((2, 1, 14, 14), {"kernel": (5, 5), "num_filter": 20}),
    "tails": ((2, 20, 8, 8), {"kernel": (3, 3), "num_filter": 50, "pad": (1, 1)}),
    "tail of one": ((2, 17, 6, 7), {"kernel": (2, 3), "num_filter": 1, "pad": (0, 2)}),
    "few channels": ((2, 6, 12, 12), {"kernel": (5, 5), "num_filter": 16}),
    "asymmetric": ((2, 16, 9, 14), {"kernel": (3, 5), "num_filter": 16, "stride": (2, 3), "pad": (2, 1)}),
    "dilated": ((2, 32, 15, 16), {"kernel": (3, 3), "num_filter": 16, "dilate": (2, 3), "pad": (2, 3)}),
    "dilated and strided": ((2, 16, 17, 18), {"kernel": (3, 3), "num_filter": 16, "dilate": (2, 2), "stride": (2, 2),
                                              "pad": (1, 2)}),
    "dilated first": ((2, 3, 15, 16), {"kernel": (3, 3), "num_filter": 16, "dilate": (2, 2)}),
    "stride past kernel": ((2, 16, 11, 11), {"kernel": (2, 2), "num_filter": 32, "stride": (3, 4)}),
    "groups of blocks": ((2, 64, 6, 6), {"kernel": (3, 3), "num_filter": 96, "num_group": 2, "pad": (1, 1)}),
    "small groups": ((2, 32, 9, 9), {"kernel": (3, 3), "num_filter": 32, "num_group": 8, "pad": (1, 1)}),
    "small groups, stride 2": ((2, 32, 9, 9), {"kernel": (3, 3), "num_filter": 32, "num_group": 4, "stride": (2, 2)}),
    "groups of one": ((2, 32, 9, 9), {"kernel": (3, 3), "num_filter": 32, "num_group": 32, "pad": (1, 1)}),
    "groups of one in one block": ((2, 4, 8, 8), {"kernel": (3, 3), "num_filter": 4, "num_group": 4, "pad": (2, 2)}),
    "small groups in one block": ((2, 16, 8, 8), {"kernel": (3, 3), "num_filter": 16, "num_group": 4, "pad": (1, 1)}),
    "groups of one, tail, stride 2": ((2, 20, 9, 12), {"kernel": (3, 3), "num_filter": 20, "num_group": 20,
                                                      "pad": (1, 1), "stride": (2, 2)}),
    "groups of one, 5x5 dilated": ((2, 16, 19, 33), {"kernel": (5, 5), "num_filter": 16, "num_group": 16, "pad": (2, 5),
                                                    "dilate": (1, 2)}),
    "groups of one, pad past kernel": ((9, 16, 3, 2), {"kernel": (2, 2), "num_filter": 16, "num_group": 16,
                                                       "pad": (3, 4)}),
    "groups of one, wide": ((3, 24, 7, 23), {"kernel": (3, 3), "num_filter": 24, "num_group": 24, "pad": (1, 1)}),
    "groups of one, wide, stride 2": ((3, 24, 9, 31), {"kernel": (3, 3), "num_filter": 24, "num_group": 24,
                                                      "pad": (0, 1), "stride": (1, 2)}),
    "groups of one, 7x4": ((2, 20, 12, 15), {"kernel": (7, 4), "num_filter": 20, "num_group": 20, "pad": (3, 2)}),
    "groups of one, 1x1, strided": ((5, 20, 9, 8), {"kernel": (1, 1), "num_filter": 20, "num_group": 20,
                                                   "stride": (2, 3)}),
    "groups of one, many images": ((70, 16, 7, 7), {"kernel": (3, 3), "num_filter": 16, "num_group": 16,
                                                   "pad": (1, 1)}),
    "groups of one, many images, stride 2": ((70, 16, 14, 14), {"kernel": (3, 3), "num_filter": 16, "num_group": 16,
                                                                "pad": (1, 1), "stride": (2, 2)}),
    "1-D": ((2, 32, 19), {"kernel": (5,), "num_filter": 32, "stride": (2,), "pad": (2,)}),
    "1-D first": ((2, 4, 19), {"kernel": (3,), "num_filter": 32}),
    "1-D padded": ((3, 48, 33), {"kernel": (3,), "num_filter": 20, "pad": (1,)}),
    "1-D dilated": ((2, 20, 40), {"kernel": (4,), "num_filter": 32, "dilate": (3,), "pad": (5,)}),
    "1-D groups": ((2, 64, 17), {"kernel": (3,), "num_filter": 64, "num_group": 2, "stride": (2,), "pad": (1,)}),
    "3-D": ((2, 32, 5, 6, 7), {"kernel": (3, 3, 3), "num_filter": 48, "pad": (1, 1, 1)}),
    "3-D tails": ((2, 20, 4, 5, 6), {"kernel": (2, 3, 2), "num_filter": 10, "pad": (0, 1, 1)}),
    "3-D strided": ((2, 16, 7, 9, 8), {"kernel": (3, 3, 3), "num_filter": 32, "stride": (2, 3, 2), "pad": (1, 0, 1)}),
    "3-D dilated": ((2, 16, 9, 9, 10), {"kernel": (3, 2, 3), "num_filter": 16, "dilate": (2, 3, 2), "pad": (2, 2, 0),
                                        "stride": (2, 1, 3)}),
    "3-D 1x1x1": ((2, 32, 3, 5, 4), {"kernel": (1, 1, 1), "num_filter": 64}),
    "3-D 1x1x1 strided": ((2, 32, 3, 5, 4), {"kernel": (1, 1, 1), "num_filter": 16, "stride": (2, 1, 2)}),
    "3-D of planes": ((2, 32, 3, 9, 8), {"kernel": (1, 3, 3), "num_filter": 32, "pad": (0, 1, 1)}),
    "3-D of one plane, padded": ((2, 16, 1, 8, 8), {"kernel": (1, 3, 3), "num_filter": 16, "pad": (1, 1, 1)}),
    "3-D first": ((2, 3, 6, 12, 12), {"kernel": (3, 5, 5), "num_filter": 16, "stride": (1, 2, 2), "pad": (1, 2, 2)}),
    "3-D first, padded": ((2, 1, 9, 10, 11), {"kernel": (3, 3, 3), "num_filter": 8, "pad": (1, 1, 1)}),
    "3-D first, dilated": ((3, 4, 9, 8, 9), {"kernel": (2, 3, 2), "num_filter": 20, "stride": (2, 1, 2),
                                            "pad": (2, 0, 1), "dilate": (3, 2, 1)}),
    "3-D groups": ((2, 64, 3, 5, 5), {"kernel": (2, 3, 3), "num_filter": 32, "num_group": 2, "pad": (1, 1, 1)}),
    "3-D small groups": ((2, 32, 4, 5, 5), {"kernel": (3, 3, 3), "num_filter": 32, "num_group": 4, "pad": (1, 1, 1)}),
    "3-D groups of one": ((2, 32, 5, 6, 19), {"kernel": (3, 3, 3), "num_filter": 32, "num_group": 32,
                                             "pad": (1, 1, 1)}),
    "3-D groups of one, tail, strided": ((3, 20, 7, 9, 8), {"kernel": (3, 2, 3), "num_filter": 20, "num_group": 20,
                                                           "stride": (2, 3, 2), "pad": (1, 0, 2)}),
    "3-D groups of one, dilated": ((2, 17, 9, 9, 20), {"kernel": (3, 2, 3), "num_filter": 17, "num_group": 17,
                                                      "stride": (1, 2, 1), "dilate": (3, 2, 2), "pad": (2, 2, 0)}),
    "3-D groups of one, pad past kernel": ((2, 16, 3, 2, 4), {"kernel": (2, 2, 2), "num_filter": 16, "num_group": 16,
                                                             "pad": (3, 1, 2)}),
    "1-D groups of one": ((2, 20, 37), {"kernel": (3,), "num_filter": 20, "num_group": 20, "stride": (2,),
                                        "pad": (2,)}),
    "3-D not padded, many blocks": ((1, 208, 3, 14, 15), {"kernel": (3, 3, 3), "num_filter": 32}),
    "3-D pad past kernel": ((2, 16, 3, 2, 4), {"kernel": (2, 2, 2), "num_filter": 16, "pad": (3, 1, 2)}),
    "3-D stride past kernel": ((2, 16, 7, 5, 5), {"kernel": (2, 1, 2), "num_filter": 16, "stride": (3, 2, 4)}),
    "3-D many images": ((40, 16, 4, 6, 6), {"kernel": (3, 3, 3), "num_filter": 16, "pad": (1, 1, 1)}),
    "pad past kernel": ((2, 16, 5, 5), {"kernel": (2, 2), "num_filter": 16, "pad": (3, 3)}),
    "many input blocks": ((2, 400, 7, 7), {"kernel": (3, 3), "num_filter": 32, "pad": (1, 1)}),
    "wide rows": ((1, 64, 3, 900), {"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}),
    "3x3 of whole tiles": ((3, 32, 8, 16), {"kernel": (3, 3), "num_filter": 48, "pad": (1, 1)}),
    "3x3 padded most": ((2, 16, 6, 7), {"kernel": (3, 3), "num_filter": 80, "pad": (2, 2)}),
    "3x3 not padded": ((2, 80, 10, 13), {"kernel": (3, 3), "num_filter": 16}),
    "3x3 of many tiles": ((7, 64, 30, 21), {"kernel": (3, 3), "num_filter": 64, "pad": (1, 0)}),
    "3x3 of one pixel more": ((9, 144, 5, 9), {"kernel": (3, 3), "num_filter": 112, "pad": (1, 1)}),
    "many images of one output": ((40, 16, 19, 19), {"kernel": (3, 3), "num_filter": 16, "dilate": (10, 10),
                                                      "pad": (1, 1)}),
    "many images of few outputs, strided": ((70, 48, 5, 6), {"kernel": (1, 1), "num_filter": 64, "stride": (2, 2)}),
    "many images of few outputs": ((70, 32, 3, 3), {"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}),
    "many images": ((70, 16, 8, 8), {"kernel": (3, 3), "num_filter": 16, "pad": (1, 1)}),
}


WINOGRAD = {"winograd": 1e-5}
"""Bound of Winograd's convolutions: they round several times as much as sums of products do."""


def arrays(shape: tuple[int, ...], params: dict[str, Any], name: str) -> list[np.ndarray]:
    """Random inputs of an op of the family."""
    op = get_op("Convolution")
    rng = np.random.default_rng(3)
    weight = (params["num_filter"], shape[1] // params.get("num_group", 1), *params["kernel"])
    data, filters = rng.standard_normal(shape), rng.standard_normal(weight)
    bias = rng.standard_normal(params["num_filter"])
    (out,) = infer(op, parsed(op, params), [data, filters, bias])
    grad = rng.standard_normal(out.shape)
    return {"Convolution": [data, filters, bias], "_convolution_backward_data": [grad, filters, data],
            "_convolution_backward_weight": [grad, data, filters],
            "_convolution_activated": [data, filters, bias]}[name]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["Convolution", "_convolution_backward_data", "_convolution_backward_weight"])
def test_kernels_agree_with_the_definition(name: str, case: str) -> None:
    shape, params = CASES[case]
    check(name, params, arrays(shape, params, name), rtol=1e-5 if name.endswith("weight") else 3e-6, rtols=WINOGRAD)


@pytest.mark.parametrize("pad", [0, 1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_filters_of_one_channel_agree_with_the_definition_at_any_width(stride: int, pad: int) -> None:
    for width in range(1 if pad else 3, 23):
        shape = (1, 16, 3 + width % 4, width)
        params = {"kernel": (3, 3), "num_filter": 16, "num_group": 16, "pad": (pad, pad), "stride": (stride, stride)}
        for name in ("Convolution", "_convolution_backward_data", "_convolution_backward_weight"):
            check(name, params, arrays(shape, params, name), rtol=1e-5 if name.endswith("weight") else 3e-6)


@pytest.mark.parametrize("case", ["groups of one, wide", "groups of one, wide, stride 2", "groups of one, many images",
                                  "3-D groups of one"])
def test_threads_and_slices_change_no_bit_of_the_gradients_of_filters_of_one_channel(case: str) -> None:
    shape, params = CASES[case]
    name = "_convolution_backward_weight"
    grad, data, filters = (a.astype(np.float32) for a in arrays(shape, params, name))
    (whole,) = run(name, params, [grad, data, filters])
    with threads(2):
        (apart,) = run(name, params, [grad, data, filters])
    types = [TensorType(a.shape, a.dtype) for a in (grad, data, filters)], [TensorType(filters.shape, filters.dtype)]
    native = native_op(name)
    assert native is not None
    chunk = native.algorithms(parsed(get_op(name), params), *types)[0].chunk_rows
    (running,) = run(name, params, [grad[:chunk], data[:chunk], filters])
    for n in range(chunk, shape[0], chunk):
        (running,) = run(f"{name}_resume", params, [grad[n:n + chunk], data[n:n + chunk], filters, running])
    assert whole.tobytes() == apart.tobytes() == running.tobytes()


@pytest.mark.parametrize("name", ["Convolution", "_convolution_backward_data"])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_and_slices_change_no_bit_of_filters_of_one_channel(name: str, stride: int) -> None:
    shape = (3, 48, 37, 41)
    params = {"kernel": (3, 3), "num_filter": 48, "num_group": 48, "pad": (1, 1), "stride": (stride, stride)}
    given, filters, *rest = (a.astype(np.float32) for a in arrays(shape, params, name))
    with threads(2):
        (whole,) = run(name, params, [given, filters, *rest])
    alone = [run(name, params, [given[n:n + 1], filters, *[a[n:n + 1] if a.ndim == 4 else a for a in rest]])[0]
             for n in range(shape[0])]
    assert whole.tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("case", ["3x3", "3x3 stride 2", "1x1 stride 2", "tails", "groups of one",
                                  "groups of one, tail, stride 2", "many input blocks", "3-D strided"])
def test_a_data_gradient_is_added_to_another_one_last(case: str) -> None:
    shape, params = CASES[case]
    addend = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    name = "_convolution_backward_data"
    given = [a.astype(np.float32) for a in arrays(shape, params, name)]
    check(name, {**params, "addend": True}, [*given, addend], rtol=3e-6, rtols=WINOGRAD)
    (alone,) = run(name, params, given)
    (both,) = run(name, {**params, "addend": True}, [*given, addend])
    np.testing.assert_array_equal(both, alone + addend)


@pytest.mark.parametrize("case", ["3x3", "1x1 stride 2", "tails", "groups of one", "7x7 first",
                                  "many input blocks", "1-D", "3-D tails"])
def test_relu_follows_in_the_same_pass_with_the_bits_of_two(case: str) -> None:
    shape, params = CASES[case]
    given = [a.astype(np.float32) for a in arrays(shape, params, "Convolution")]
    activated = {**params, "act_type": "relu"}
    check("_convolution_activated", activated, given, rtol=3e-6, rtols=WINOGRAD)
    (alone,) = run("Convolution", params, given)
    (both,) = run("_convolution_activated", activated, given)
    assert both.tobytes() == np.maximum(alone, 0).tobytes()


def test_activations_that_take_a_pass_of_their_own_are_not_fused() -> None:
    native = native_op("_convolution_activated")
    assert native is not None
    for act_type, fused in (("relu", True), ("sigmoid", False), ("tanh", False)):
        p = parsed(get_op("_convolution_activated"), {"kernel": (3, 3), "num_filter": 16, "act_type": act_type})
        assert native.fuses(p) is fused


def test_winograd_is_a_class_of_its_own_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, params = CASES["3x3"]
    op, given = get_op("Convolution"), arrays(shape, params, "Convolution")
    p, native = parsed(op, params), native_op("Convolution")
    assert native is not None
    types = [TensorType(a.shape, np.dtype(np.float32)) for a in given], infer(op, p, given)

    def classes() -> list[str]:
        return [a.numeric_class for a in native.algorithms(p, *types)]
    assert classes() == ["winograd", "native"]
    monkeypatch.setenv("MINIGRAPH_CPU_WINOGRAD", "0")
    assert classes() == ["native", "winograd"]


@pytest.mark.parametrize("name", ["Convolution", "_convolution_backward_data"])
def test_how_winograd_is_cut_takes_no_bit_and_the_lean_cut_takes_less(name: str) -> None:
    shape, params = CASES["3x3 of many tiles"]
    given = [a.astype(np.float32) for a in arrays(shape, params, name)]
    fast, lean = (run(name, params, given, algorithm=f"native.winograd{kind}")[0] for kind in ("", "-lean"))
    assert fast.tobytes() == lean.tobytes()
    alone = [run(name, params, [given[0][n:n + 1], given[1], *[a[n:n + 1] if a.ndim == 4 else a for a in given[2:]]])[0]
             for n in range(shape[0])]
    assert fast.tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("shape", [(2, 20, 9, 7), (0, 16, 3, 3), (300, 16, 4), (1, 1, 70, 70)], ids=str)
def test_the_bias_gradient_agrees_with_the_definition(shape: tuple[int, ...]) -> None:
    check("_convolution_backward_bias", {}, [np.random.default_rng(5).standard_normal(shape)])


@pytest.mark.parametrize("name", ["Convolution", "_convolution_backward_data"])
def test_an_empty_batch_is_no_work(name: str) -> None:
    params = {"kernel": (3, 3), "num_filter": 16}
    check(name, params, arrays((0, 16, 5, 5), params, name))


@pytest.mark.parametrize(("shape", "params"), [
    ((2, 48, 5, 5), {"kernel": (3, 3), "num_filter": 24, "num_group": 3}),
    ((2, 32, 40, 40), {"kernel": (33, 33), "num_filter": 16})], ids=["odd groups", "many taps"])
def test_what_the_kernels_do_not_take_is_left_to_numpy(shape: tuple[int, ...], params: dict[str, Any]) -> None:
    op, native = get_op("Convolution"), native_op("Convolution")
    given = arrays(shape, params, "Convolution")
    p = parsed(op, params)
    assert native is not None
    assert native.layouts(p, [TensorType(a.shape, a.dtype) for a in given], infer(op, p, given)) == ()
