"""Conversions between layouts move every element to its place, and zero the lanes beyond the channels."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops.registry import get_op

from .harness import check, run

SHAPES = [(2, 16, 3, 4), (3, 5, 70), (1, 40, 33, 40), (2, 17), (1, 32, 2, 1, 3), (0, 20, 4, 4), (2, 3, 64, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check("_to_blocked", {}, [data], rtol=0)
    blocked, = run("_to_blocked", {}, [data])
    blocked[..., shape[1] % 16 or 16:][:, -1:] = np.nan        # lanes beyond the channels are not read
    np.testing.assert_array_equal(run("_to_plain", {"channels": shape[1]}, [blocked])[0], data)


def test_samples() -> None:
    for name in ("_to_blocked", "_to_plain"):
        for sample in get_op(name).samples():
            check(name, sample.params, [np.random.default_rng(1).standard_normal(s) for s in sample.shapes], rtol=0)
