"""Elementwise kernels give what NumPy gives, in any layout."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import check, run

SHAPES = [(3,), (0, 4), (40_001,), (5, 7), (2, 3, 5, 4), (3, 32, 6, 6), (2, 17, 9), (0, 5, 2, 2), (1, 16, 40, 40)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["relu", "_activation_backward", "elemwise_add"])
def test_kernels_agree_with_numpy(name: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    params = {"act_type": "relu"} if name.startswith("_act") else {}
    check(name, params, [rng.standard_normal(shape) for _ in range(1 if name == "relu" else 2)])


def test_relu_keeps_nan_and_its_gradient_is_zero_at_zero() -> None:
    data = np.array([np.nan, 0, 1, -1] * 9, np.float32)
    np.testing.assert_array_equal(run("relu", {}, [data])[0], np.maximum(data, 0))
    grad = run("_activation_backward", {"act_type": "relu"}, [np.ones_like(data), np.maximum(data, 0)])[0]
    np.testing.assert_array_equal(grad, [0, 0, 1, 0] * 9)
