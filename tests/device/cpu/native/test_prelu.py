"""prelu by kernels gives what NumPy gives, with a slope for each channel and with one for all."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import check, run

SHAPES = [(2, 3, 4), (3, 16, 5, 5), (2, 35, 3, 7), (5, 7), (300, 33), (1, 1, 9), (0, 3, 2), (3, 4, 0), (2, 20, 2, 3, 2),
          (2, 5, 40, 70)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("one", [False, True], ids=["channels", "one"])
def test_output_and_gradients_agree_with_numpy(shape: tuple[int, ...], one: bool) -> None:
    rng = np.random.default_rng(0)
    data, grad = rng.normal(0, 1, (2, *shape))
    gamma = rng.normal(0, 1, 1 if one else shape[1])
    check("_prelu", {}, [data, gamma], rtol=1e-6)
    check("_prelu_backward_data", {}, [grad, data, gamma], rtol=1e-6)
    check("_prelu_backward_gamma", {}, [grad, data, gamma], rtol=1e-5)


def test_the_gradient_of_slopes_of_many_places_is_not_off() -> None:
    data, grad = np.full((4, 1, 512, 512), -1.0, np.float32), np.full((4, 1, 512, 512), 0.1, np.float32)
    (found,) = run("_prelu_backward_gamma", {}, [grad, data, np.zeros(1, np.float32)])
    np.testing.assert_allclose(found, -data.size * float(np.float32(0.1)), rtol=1e-6)


def test_zero_and_nan_have_the_slopes_of_the_definition() -> None:
    data = np.array([[np.nan], [0.0], [-0.0], [2.0], [-2.0]], np.float32)
    (out,) = run("_prelu", {}, [data, np.array([0.5], np.float32)])
    np.testing.assert_array_equal(out.ravel(), [np.nan, 0, 0, 2, -1])
    (slope,) = run("_prelu_backward_data", {}, [np.ones_like(data), data, np.array([0.5], np.float32)])
    np.testing.assert_array_equal(slope.ravel(), [0, 0.5, 0.5, 1, 0.5])
