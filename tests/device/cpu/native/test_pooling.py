"""Pooling kernels give what NumPy gives, in any layout."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check, run

SHAPES: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    *((sample.params, (2, channels, *sample.shapes[0][2:]))  # type: ignore[index]
      for sample in get_op("Pooling").samples() for channels in (3, 32)),
    ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, (2, 20, 13, 14)),
    ({"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False},
     (1, 16, 9, 70)),
    ({"kernel": (2, 2), "stride": (3, 3)}, (1, 17, 8, 8)), ({"global_pool": True, "pool_type": "avg"}, (3, 20, 31, 7)),
    ({"kernel": (2, 3, 2), "stride": (2, 2, 1), "pad": (1, 1, 0)}, (2, 20, 5, 7, 6)),
    ({"kernel": (2, 2, 2), "stride": (2, 2, 2), "pool_type": "avg"}, (3, 16, 4, 6, 8)),
    ({"kernel": (3,), "stride": (2,), "pad": (1,), "pool_type": "sum"}, (2, 33, 19)),
    ({"kernel": (2, 2), "stride": (2, 2)}, (2, 16, 64, 64))]


@pytest.mark.parametrize("params, shape", SHAPES, ids=str)
def test_forward_and_backward_agree_with_numpy(params: dict[str, Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-4, 5, shape).astype(np.float32)        # with ties
    check("Pooling", params, [data], rtol=1e-6)
    out = run("Pooling", params, [data])[0]
    windowed_maximum = params.get("pool_type", "max") == "max" and not params.get("global_pool")
    grad = rng.standard_normal(out.shape)
    check("_pooling_backward", params, [grad, data, *([out] if windowed_maximum else [])], rtol=2e-6)


@pytest.mark.parametrize("params", [{"kernel": (2, 2), "stride": (2, 2)}, {"global_pool": True}], ids=str)
def test_a_nan_wins_as_in_numpy(params: dict[str, Any]) -> None:
    data = np.random.default_rng(0).standard_normal((2, 16, 4, 4)).astype(np.float32)
    data[0, 3, 1, 1] = np.nan
    forward, backward = get_op("Pooling"), get_op("_pooling_backward")
    p = parsed(forward, params)
    out, = run("Pooling", params, [data])
    np.testing.assert_array_equal(out, execute(forward, p, [data])[0])
    arrays = [np.ones_like(out), data, *([] if "global_pool" in params else [out])]
    np.testing.assert_array_equal(run("_pooling_backward", params, arrays)[0], execute(backward, p, arrays)[0])
