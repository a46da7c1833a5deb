"""Images in tiles: the convolutions of torch, little scratch however large an image is, and bits by shape alone."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from minigraph.base import Shape, TensorType
from minigraph.ops import conv_geometry, get_op, tiles
from minigraph.ops.op import Workspace

from .harness import gradients, infer, parsed, run
from .test_slices import form_of, in_slices

RNG = np.random.default_rng(3)
F4 = np.dtype(np.float32)
CASES: dict[str, tuple[Shape, dict[str, Any]]] = {
    "padded": ((2, 3, 23, 17), {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4}),
    "strided": ((1, 4, 41, 46), {"kernel": (3, 2), "stride": (2, 3), "pad": (2, 0), "num_filter": 6, "num_group": 2}),
    "dilated": ((1, 2, 40, 30), {"kernel": (3, 3), "dilate": (5, 2), "stride": (2, 1), "pad": (7, 1), "num_filter": 3}),
    "gaps": ((1, 2, 70, 60), {"kernel": (1, 2), "stride": (4, 3), "num_filter": 3}),
    "pixelwise": ((2, 5, 20, 21), {"kernel": (1, 1), "num_filter": 3}),
    "wide padding": ((1, 2, 17, 18), {"kernel": (2, 2), "pad": (6, 3), "num_filter": 2}),
    "line": ((1, 3, 700), {"kernel": (5,), "pad": (2,), "num_filter": 4}),
    "volume": ((1, 2, 7, 9, 8), {"kernel": (3, 2, 3), "pad": (1, 1, 1), "num_filter": 3}),
    "strided volume":
        ((1, 2, 13, 15, 14), {"kernel": (2, 2, 3), "stride": (2, 2, 2), "pad": (0, 1, 1), "num_filter": 2})}


def arrays_of(name: str, dtype: type = np.float64) -> tuple[dict[str, Any], list[np.ndarray]]:
    data, params = CASES[name]
    weight = (params["num_filter"], data[1] // params.get("num_group", 1), *params["kernel"])
    return params, [RNG.standard_normal(s).astype(dtype) for s in (data, weight, weight[:1])]


def tiles_of(params: dict[str, Any], data: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    g = conv_geometry.geometry(parsed(get_op("Convolution"), params), data, out)
    return len(g.tiles()), len(g.adjoint_tiles())


@pytest.mark.parametrize("light_weight", [0, 10**9], ids=["columns", "rows"])
@pytest.mark.parametrize("tile_bytes", [1, 6000])
@pytest.mark.parametrize("name", CASES)
def test_convolutions_in_tiles_and_their_gradients_are_those_of_torch(name: str, tile_bytes: int, light_weight: int,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(conv_geometry, "LIGHT_WEIGHT", light_weight)
    monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
    p, arrays = arrays_of(name)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = getattr(torch, f"conv{len(p['kernel'])}d")(
        *tensors, stride=p.get("stride", 1), padding=p.get("pad", 0), dilation=p.get("dilate", 1),
        groups=p.get("num_group", 1))
    out, = run("Convolution", p, arrays)
    np.testing.assert_allclose(out, expected.detach().numpy(), 1e-12, 1e-12)
    assert tile_bytes > 1 or max(tiles_of(p, arrays[0], out)) > 1
    head = RNG.standard_normal(out.shape)
    expected.backward(torch.tensor(head))
    for found, tensor in zip(gradients("Convolution", p, arrays, [head]), tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad.numpy(), 1e-11, 1e-11)


LARGE: list[tuple[Shape, dict[str, Any]]] = [
    ((1, 64, 1024, 2048), {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64}),
    ((2, 64, 1024, 2048), {"kernel": (3, 3), "pad": (1, 1), "stride": (2, 2), "num_filter": 64}),
    ((1, 64, 1024, 2048), {"kernel": (1, 1), "num_filter": 64}),
    ((1, 512, 300, 300), {"kernel": (3, 3), "pad": (1, 1), "num_filter": 512}),
    ((1, 64, 132, 132, 116), {"kernel": (3, 3, 3), "num_filter": 64}),
    ((1, 32, 64, 1024, 1024), {"kernel": (3, 3, 3), "pad": (1, 1, 1), "num_filter": 32}),
    ((1, 16, 1 << 22), {"kernel": (9,), "num_filter": 16}),
    ((1, 16, 1, 1 << 22), {"kernel": (1, 9), "num_filter": 16})]


@pytest.mark.parametrize(("data", "params"), LARGE, ids=str)
def test_scratch_does_not_grow_with_the_image(data: Shape, params: dict[str, Any]) -> None:
    weight = (params["num_filter"], data[1], *params["kernel"])
    forward = get_op("Convolution")
    _, (out,) = forward.infer_shape(parsed(forward, {**params, "no_bias": True}), [data, weight], [None])
    for name, own, ins, result in (
            ("Convolution", {"no_bias": True}, [data, weight], out),
            ("_convolution_backward_data", {}, [out, weight, data], data),
            ("_convolution_backward_data", {"addend": True}, [out, weight, data, data], data),
            ("_convolution_backward_weight", {}, [out, data, weight], weight),
            ("_convolution_backward_weight_resume", {}, [out, data, weight, weight], weight)):
        op = get_op(name)
        for algorithm in op.algorithms(parsed(op, {**params, **own}), [TensorType(s, F4) for s in ins],
                                       [TensorType(result, F4)]):
            assert algorithm.workspace_bytes <= (64 << 20) + 3 * 4 * prod(weight), (name, own)


@pytest.mark.parametrize("name", ["padded", "strided", "pixelwise", "volume"])
def test_slices_of_images_in_tiles_have_the_bits_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE_BYTES", 4000)
    data, params = CASES[name]
    data = (5, *data[1:])
    weight = (params["num_filter"], data[1] // params.get("num_group", 1), *params["kernel"])
    _, (out,) = get_op("Convolution").infer_shape(parsed(get_op("Convolution"), params), [data, weight, None], [None])
    for op, shapes in (("Convolution", [data, weight, weight[:1]]), ("_convolution_backward_data", [out, weight, data]),
                       ("_convolution_backward_weight", [out, data, weight])):
        case = (op, params, shapes)
        form = form_of(case)
        assert form is not None
        whole = in_slices(case, form, 5)[0]
        assert in_slices(case, form, 2)[0].tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", ["padded", "strided", "gaps", "volume"])
def test_an_addend_and_little_scratch_change_no_bit_in_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE_BYTES", 4000)
    p, (x, w, _) = arrays_of(name, np.float32)
    out, = run("Convolution", {**p, "no_bias": True}, [x, w])
    assert min(tiles_of(p, x, out)) > 1
    more = RNG.standard_normal(x.shape).astype(F4)
    alone, = run("_convolution_backward_data", p, [out, w, x])
    added, = run("_convolution_backward_data", {**p, "addend": True}, [out, w, x, more])
    assert (alone + more).tobytes() == added.tobytes()
    for op, own, ins in (("Convolution", {"no_bias": True}, [x, w]), ("_convolution_backward_data", {}, [out, w, x]),
                         ("_convolution_backward_weight", {}, [out, x, w])):
        of, q = get_op(op), parsed(get_op(op), {**p, **own})
        found = set()
        for algorithm in of.algorithms(q, [TensorType(a.shape, F4) for a in ins], infer(of, q, ins)):
            made = [np.full(t.shape, np.nan, F4) for t in infer(of, q, ins)]
            of.compute(q, ins, made, Workspace(np.full(algorithm.workspace_bytes, 255, np.uint8)))
            found.add(made[0].tobytes())
        assert len(found) == 1
