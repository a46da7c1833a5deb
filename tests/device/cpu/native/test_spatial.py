"""Nearest neighbours and margins by kernels are those of NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.registry import get_op
from tests.ops.harness import infer, parsed

from .harness import check

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize("shape", [(2, 3, 2, 3), (1, 16, 5, 4), (2, 21, 3, 7), (0, 2, 3, 3), (1, 2, 0, 3)], ids=str)
@pytest.mark.parametrize("scale", [1, 2, 3])
def test_enlarging_and_its_gradient_agree_with_numpy(scale: int, shape: tuple[int, ...]) -> None:
    rng, (n, c, h, w) = np.random.default_rng(0), shape
    check("_upsample", {"scale": scale}, [rng.normal(0, 1, shape)], rtol=0)
    check("_upsample_backward", {"scale": scale}, [rng.normal(0, 1, (n, c, h * scale, w * scale))], rtol=1e-6)


WIDTHS = [((2, 3, 3, 4), (0, 0, 0, 0, 1, 2, 2, 0)), ((1, 16, 5, 6), (0, 0, 0, 0, 0, 3, 4, 1)),
          ((2, 20, 4, 4), (0, 0, 0, 0, 3, 3, 3, 3)), ((1, 2, 5, 4, 6), (0, 0, 0, 0, 1, 0, 2, 2, 0, 3)),
          ((3, 17, 6), (0, 0, 0, 0, 2, 5)), ((0, 3, 4, 4), (0, 0, 0, 0, 1, 1, 1, 1)), ((2, 3, 4), (1, 1, 2, 1, 0, 2)),
          ((1, 33, 2, 3), (0, 0, 0, 0, 0, 0, 0, 0)), ((2, 3), (1, 0, 1, 2))]


@pytest.mark.parametrize("shape, widths", WIDTHS, ids=str)
@pytest.mark.parametrize("mode, value", [("constant", 0.0), ("constant", 1.5), ("edge", 0.0), ("reflect", 0.0)])
def test_margins_and_their_gradient_agree_with_numpy(shape: tuple[int, ...], widths: tuple[int, ...], mode: str,
                                                     value: float) -> None:
    params: dict[str, Any] = {"mode": mode, "pad_width": widths, "constant_value": value}
    if mode == "edge" and 0 in shape or mode == "reflect" and shape[0] <= widths[0]:
        shape = tuple(d + max(widths) for d in shape)
    op, rng = get_op("Pad"), np.random.default_rng(0)
    data = rng.normal(0, 1, shape).astype(np.float32)
    check("Pad", params, [data], rtol=0)
    (padded,) = infer(op, parsed(op, params), [data])
    check("_pad_backward", params, [rng.normal(0, 1, padded.shape), data], rtol=1e-6)


def test_margins_that_would_fill_padding_are_taken_plain_and_those_of_channels_too() -> None:
    native, op = native_op("Pad"), get_op("Pad")
    assert native is not None

    def layouts(channels: int, **params: Any) -> list[str]:
        p = parsed(op, params)
        data = np.zeros((1, channels, 4, 4), np.float32)
        outs = infer(op, p, [data])
        return [offer.outs[0] for offer in native.layouts(p, [TensorType(data.shape, FLOAT)], outs)]
    sides, whole = (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 0, 1, 1, 1, 1)
    assert len(layouts(5, mode="constant", pad_width=sides, constant_value=2.0)) == 1
    assert len(layouts(16, mode="constant", pad_width=sides, constant_value=2.0)) == 2
    assert len(layouts(16, mode="edge", pad_width=whole)) == 1
    assert len(layouts(5, mode="edge", pad_width=sides)) == 2
