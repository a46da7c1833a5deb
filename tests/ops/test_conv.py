"""Convolution: against a direct sum and torch, shapes both ways, errors, bits and scratch."""
from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest

import minigraph.ops.conv_geometry as conv_geometry
from minigraph.base import TensorType
from minigraph.ops.op import ShapeError, Workspace
from minigraph.ops.registry import get_op

from .harness import EagerBuilder, gradients, numeric_gradient, parsed, run

RNG = np.random.default_rng(7)
OP = get_op("Convolution")
F4 = np.dtype(np.float32)
K3 = {"kernel": (3, 3), "pad": (1, 1)}


def infer(params, ins, outs=(None,)):
    return OP.infer_shape(parsed(OP, params), list(ins), list(outs))


def direct(params, data, weight, bias=None):
    """Convolution as its definition says, one tap at a time, in float64."""
    axes = len(params["kernel"])
    stride, dilate = params.get("stride", (1,) * axes), params.get("dilate", (1,) * axes)
    pad, groups = params.get("pad", (0,) * axes), params.get("num_group", 1)
    data = np.pad(data.astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in pad)))
    size = [(x - d * (k - 1) - 1) // s + 1
            for x, k, s, d in zip(data.shape[2:], weight.shape[2:], stride, dilate, strict=True)]
    out = np.zeros((len(data), groups, weight.shape[0] // groups, *size))
    parts = data.reshape(len(data), groups, -1, *data.shape[2:])
    filters = weight.reshape(groups, -1, *weight.shape[1:])
    for tap in product(*map(range, weight.shape[2:])):
        window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                       for t, d, o, s in zip(tap, dilate, size, stride, strict=True))
        out += np.einsum("ngc...,gfc->ngf...", parts[(..., *window)], filters[(..., *tap)])
    out = out.reshape(len(data), -1, *size)
    return out if bias is None else out + bias.reshape(-1, *(1,) * axes)


@pytest.mark.parametrize("sample", OP.samples(), ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_outputs_are_the_definition(sample, dtype, tolerance):
    arrays = [RNG.standard_normal(s).astype(dtype) for s in sample.shapes]
    out, = run("Convolution", sample.params, arrays)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, direct(sample.params, *arrays), tolerance, tolerance)


@pytest.mark.parametrize("light_weight", [0, 10**9], ids=["columns", "rows"])
@pytest.mark.parametrize("sample", OP.samples(), ids=str)
def test_both_forms_give_the_outputs_and_gradients_of_torch(sample, light_weight, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(conv_geometry, "LIGHT_WEIGHT", light_weight)
    p, axes = sample.params, len(sample.params["kernel"])
    arrays = [RNG.standard_normal(s) for s in sample.shapes]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = getattr(torch, f"conv{axes}d")(
        *tensors, stride=p.get("stride", 1), padding=p.get("pad", 0), dilation=p.get("dilate", 1),
        groups=p.get("num_group", 1))
    out, = run("Convolution", p, arrays)
    np.testing.assert_allclose(out, expected.detach().numpy(), 1e-12, 1e-12)
    g = RNG.standard_normal(out.shape)
    expected.backward(torch.tensor(g))
    for found, tensor in zip(gradients("Convolution", p, arrays, [g]), tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad.numpy(), 1e-11, 1e-12)


@pytest.mark.parametrize("stride", [(1, 1), (2, 1)])
def test_gradients_are_those_of_central_differences(stride):
    params = {**K3, "num_filter": 2, "stride": stride}
    arrays = [RNG.standard_normal(s) for s in ((2, 2, 4, 3), (2, 2, 3, 3), (2,))]
    g = RNG.standard_normal(run("Convolution", params, arrays)[0].shape)
    for i, found in enumerate(gradients("Convolution", params, arrays, [g])):
        np.testing.assert_allclose(found, numeric_gradient("Convolution", params, arrays, i, g), 1e-6, 1e-7)


def test_weight_bias_and_output_shapes_follow_from_data():
    params = {"kernel": (3, 5), "num_filter": 8, "num_group": 2, "stride": (2, 1), "pad": (1, 0),
              "dilate": (1, 2)}
    assert infer(params, [(4, 6, 9, 11), None, None]) == ([(4, 6, 9, 11), (8, 3, 3, 5), (8,)], [(4, 8, 5, 3)])


def test_channels_follow_from_the_weight_and_the_batch_from_the_output():
    params = {**K3, "num_filter": 4, "num_group": 2, "no_bias": True}
    ins, outs = infer(params, [None, (4, 3, 3, 3)], [(5, 4, None, None)])
    assert ins[0] == (5, 6, None, None) and outs == [(5, 4, None, None)]


def test_nothing_known_is_no_error():
    ins, outs = infer({**K3, "num_filter": 4}, [None, None, None])
    assert ins == [(None,) * 4, (4, None, 3, 3), (4,)] and outs == [(None, 4, None, None)]


@pytest.mark.parametrize("params, data, weight, message", [
    ({}, (1, 3, 8, 8), (4, 2, 3, 3), r"weight has shape \(4, 2, 3, 3\).*\(1, 3, 8, 8\).*\(4, 3, 3, 3\)"),
    ({}, (1, 3, 8), None, r"data has shape \(1, 3, 8\), of 3 axes"),
    ({"num_group": 2}, (1, 3, 8, 8), None, "3 channels.*num_group 2"),
    ({"num_group": 3}, (1, 3, 8, 8), None, "num_filter 4 cannot be parted into num_group 3"),
    ({"pad": (0, 0)}, (1, 3, 2, 8), None, r"kernel \(3, 3\) reaches over 3 .* has 2"),
    ({"stride": (1,)}, (1, 3, 8, 8), None, "stride .* has 1 axes and kernel .* has 2"),
    ({"stride": (0, 1)}, (1, 3, 8, 8), None, "stride .* below 1"),
    ({"layout": "NCW"}, (1, 3, 8, 8), None, "layout NCW .* must be NCHW")])
def test_errors_name_what_was_given_and_what_was_expected(params, data, weight, message):
    with pytest.raises(ShapeError, match=message):
        infer({**K3, "num_filter": 4, **params}, [data, weight, None])


@pytest.mark.parametrize("image", [4, 16])
def test_slices_at_chunk_boundaries_have_the_bits_of_the_whole(image):
    x, w, b = (RNG.standard_normal(s).astype(F4) for s in ((21, 3, image, image), (5, 3, 3, 3), (5,)))
    params = {**K3, "num_filter": 5}
    whole, = run("Convolution", params, [x, w, b])
    data_grad, = run("_convolution_backward_data", params, [whole, w, x])
    cuts = [slice(0, 8), slice(8, 16), slice(16, 21)]
    outs = [run("Convolution", params, [x[s], w, b])[0] for s in cuts]
    grads = [run("_convolution_backward_data", params, [whole[s], w, x[s]])[0] for s in cuts]
    assert np.concatenate(outs).tobytes() == whole.tobytes()
    assert np.concatenate(grads).tobytes() == data_grad.tobytes()


def test_weight_gradients_are_sums_over_chunks_in_ascending_order():
    x, w = (RNG.standard_normal(s).astype(F4) for s in ((16, 3, 4, 4), (5, 3, 3, 3)))
    g, params = RNG.standard_normal((16, 5, 4, 4)).astype(F4), {**K3, "num_filter": 5}
    cuts = slice(0, 8), slice(8, 16)
    parts = [run("_convolution_backward_weight", params, [g[s], x[s], w])[0] for s in cuts]
    whole, = run("_convolution_backward_weight", params, [g, x, w])
    assert (parts[0] + parts[1]).tobytes() == whole.tobytes()


def test_an_empty_batch_gives_empty_outputs_and_zero_parameter_gradients():
    arrays = [np.empty((0, 3, 5, 5)), np.ones((4, 3, 3, 3)), np.ones(4)]
    out, = run("Convolution", {**K3, "num_filter": 4}, arrays)
    assert out.shape == (0, 4, 5, 5)
    data, weight, bias = gradients("Convolution", {**K3, "num_filter": 4}, arrays, [out])
    assert data.shape == (0, 3, 5, 5) and not weight.any() and not bias.any()


def test_scratch_is_tiled_and_stays_far_below_whole_columns():
    p = parsed(OP, {**K3, "num_filter": 64, "no_bias": True})
    big = [TensorType(s, F4) for s in ((1, 64, 1024, 2048), (64, 64, 3, 3))]
    one = OP.algorithms(p, big, [TensorType((1, 64, 1024, 2048), F4)])[0].workspace_bytes
    many = OP.algorithms(p, [TensorType((9, *big[0].shape[1:]), F4), big[1]],
                         [TensorType((9, 64, 1024, 2048), F4)])[0].workspace_bytes
    assert one == many < 9 * big[0].nbytes / 2


@pytest.mark.parametrize("image", [6, 20])
def test_all_scratch_that_grows_is_planned(image):
    n, c = 16, 16
    params = {**K3, "num_filter": c, "no_bias": True}
    x = RNG.standard_normal((n, c, image, image)).astype(F4)
    w = RNG.standard_normal((c, c, 3, 3)).astype(F4)
    for stride in ((1, 1), (2, 2)):
        p = {**params, "stride": stride}
        g, = run("Convolution", p, [x, w])
        for name, ins, out in (("Convolution", [x, w], np.empty_like(g)),
                               ("_convolution_backward_data", [g, w, x], np.empty_like(x)),
                               ("_convolution_backward_weight", [g, x, w], np.empty_like(w))):
            op = get_op(name)
            q = parsed(op, p)
            types = [TensorType(a.shape, F4) for a in ins]
            nbytes = op.algorithms(q, types, [TensorType(out.shape, F4)])[0].workspace_bytes
            memory = np.zeros(nbytes, np.uint8)
            op.compute(q, ins, [out], Workspace(memory))
            tracemalloc.start()
            with np.errstate():
                np.setbufsize(2048)     # NumPy's own buffers: that many elements a strided operand
                op.compute(q, ins, [out], Workspace(memory))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 32 << 10, (name, peak)


def test_only_wanted_gradients_are_computed_parameters_before_data():
    arrays = [np.ones((2, 3, 4, 4)), np.ones((4, 3, 3, 3)), np.ones(4)]
    b = EagerBuilder()
    params, head = {**K3, "num_filter": 4}, [np.ones((2, 4, 4, 4))]
    gradients("Convolution", params, arrays, head, builder=b)
    assert [op.rsplit("_", 1)[1] for op in b.ops[1:]] == ["bias", "weight", "data"]
    found = gradients("Convolution", params, arrays, head, [False, True, False])
    assert found[0] is None and found[2] is None and found[1] is not None
    assert gradients("Convolution", params, arrays, [None]) == [None] * 3


def test_cost_counts_two_operations_a_multiplication():
    p = parsed(OP, {**K3, "num_filter": 4, "num_group": 2, "no_bias": True})
    types = [TensorType(s, F4) for s in ((2, 6, 5, 5), (4, 3, 3, 3), (2, 4, 5, 5))]
    assert OP.cost(p, types[:2], types[2:]).flops == 2 * (2 * 4 * 5 * 5) * (3 * 3 * 3)
