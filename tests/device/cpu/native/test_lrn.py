"""Local response normalisation by kernels gives what NumPy gives, plain and blocked."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.device.cpu.native.lrn import MOST_PLACES
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check

SHAPES = [(2, 5, 3, 2), (1, 16, 4, 4), (2, 20, 9, 7), (3, 33, 17), (2, 3), (40, 7), (1, 40, 2, 3, 5), (1, 1, 6, 6),
          (0, 4, 3, 3), (2, 0, 3, 3), (2, 4, 0, 3), (1, 96, 27, 27)]
PARAMS: list[dict[str, Any]] = [{"nsize": 5, "alpha": 0.5}, {"nsize": 1, "alpha": 0.7, "knorm": 1.0},
                                {"nsize": 9, "alpha": 0.3, "beta": 0.5}, {"nsize": 97, "alpha": 0.3}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_both_directions_agree_with_numpy(params: dict[str, Any], shape: tuple[int, ...]) -> None:
    rng, op = np.random.default_rng(0), get_op("LRN")
    data, grad = rng.normal(0, 2, (2, *shape))
    check("LRN", params, [data], rtol=2e-6)
    _, norm = execute(op, parsed(op, params), [data])
    check("_lrn_backward", params, [grad, data, norm], rtol=2e-6)


def test_so_many_channels_that_a_tile_does_not_fit_are_left_to_numpy() -> None:
    op, native = get_op("LRN"), native_op("LRN")
    assert native is not None
    types = [TensorType((1, MOST_PLACES - 16 + extra, 2, 2), np.dtype(np.float32)) for extra in (0, 1)]
    found = [native.layouts(parsed(op, {"nsize": 3}), [t], [t, t]) for t in types]
    assert found[0] and not found[1]
    check("LRN", {"nsize": 3, "alpha": 1.0}, [np.random.default_rng(1).normal(0, 1, types[0].shape)], rtol=2e-6)
