"""Deconvolution by the kernels gives the NumPy definition."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.registry import get_op
from tests.ops.harness import infer, parsed

from .harness import check

CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 32, 5, 6), {"kernel": (4, 4), "num_filter": 20, "stride": (2, 2), "pad": (1, 1), "no_bias": False}),
    ((2, 16, 5, 6), {"kernel": (3, 3), "num_filter": 16, "stride": (2, 2), "pad": (1, 1), "adj": (1, 1)}),
    ((2, 32, 4, 4), {"kernel": (3, 2), "num_filter": 32, "num_group": 2, "stride": (2, 3)}),
    ((3, 16, 7), {"kernel": (5,), "num_filter": 48, "dilate": (2,), "no_bias": False}),
    ((2, 32, 6, 6), {"kernel": (4, 4), "num_filter": 32, "num_group": 32, "stride": (2, 2), "pad": (1, 1)}),
    ((2, 20, 3, 4, 5), {"kernel": (2, 3, 4), "num_filter": 32, "stride": (2, 1, 2), "pad": (0, 1, 1),
                         "no_bias": False}),
    ((0, 16, 3, 3), {"kernel": (2, 2), "num_filter": 16, "stride": (2, 2)})]


def arrays(shape: tuple[int, ...], params: dict[str, Any]) -> list[np.ndarray]:
    """Random inputs."""
    rng = np.random.default_rng(6)
    weight = (shape[1], params["num_filter"] // params.get("num_group", 1), *params["kernel"])
    bias = [] if params.get("no_bias", True) else [(params["num_filter"],)]
    return [rng.standard_normal(size).astype(np.float32) for size in (shape, weight, *bias)]


@pytest.mark.parametrize(("shape", "params"), CASES)
def test_kernels_agree_with_the_definition(shape: tuple[int, ...], params: dict[str, Any]) -> None:
    check("Deconvolution", params, arrays(shape, params), rtol=3e-6)


def test_a_bias_where_no_tap_reaches_is_left_to_numpy() -> None:
    shape, params = (2, 16, 5, 5), {"kernel": (2, 2), "num_filter": 16, "stride": (3, 3), "no_bias": False}
    op, native, given = get_op("Deconvolution"), native_op("Deconvolution"), arrays(shape, params)
    p = parsed(op, params)
    assert native is not None
    assert native.layouts(p, [TensorType(a.shape, a.dtype) for a in given], infer(op, p, given)) == ()
