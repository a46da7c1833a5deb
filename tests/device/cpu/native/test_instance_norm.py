"""InstanceNorm and L2Normalization by kernels give what NumPy gives."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check, run

SHAPES = [(2, 3, 4, 5), (3, 2, 6), (9, 1, 2, 2, 2), (1, 16, 33, 9), (2, 37, 7, 5), (2, 5, 1), (0, 3, 4), (2, 0, 4),
          (3, 4, 0), (2, 3, 90, 80)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("eps", [1e-3, 0.5])
def test_instance_normalisation_and_its_gradients_agree_with_numpy(shape: tuple[int, ...], eps: float) -> None:
    rng, op, params = np.random.default_rng(0), get_op("InstanceNorm"), {"eps": eps}
    data, grad = rng.normal(3, 2, (2, *shape))
    gamma, beta = rng.normal(1, 1, (2, shape[1]))
    check("InstanceNorm", params, [data, gamma, beta], rtol=1e-5)
    _, mean, inverse = execute(op, parsed(op, params), [data, gamma, beta])
    check("_instance_norm_backward", params, [grad, data, gamma, mean, inverse], rtol=3e-5)


def test_instances_far_from_zero_keep_their_digits() -> None:
    data = np.random.default_rng(1).normal(0, 1, (2, 3, 50, 40)).astype(np.float32)
    ones = np.ones(3, np.float32), np.zeros(3, np.float32)
    near, far = (run("InstanceNorm", {"eps": 0.0}, [data + np.float32(shift), *ones])[0] for shift in (0, 4096))
    np.testing.assert_allclose(far, near, atol=2e-3)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 512, 13, 11), (3, 700, 5)], ids=str)
@pytest.mark.parametrize("mode", ["instance", "channel", "spatial"])
def test_norms_and_their_gradient_agree_with_numpy(mode: str, shape: tuple[int, ...]) -> None:
    rng, op, params = np.random.default_rng(0), get_op("L2Normalization"), {"mode": mode, "eps": 1e-3}
    data, grad = rng.normal(0, 1, (2, *shape))
    check("L2Normalization", params, [data], rtol=2e-6)
    out, norm = execute(op, parsed(op, params), [data])
    check("_l2_normalization_backward", params, [grad, out, norm], rtol=2e-6)


def test_a_matrix_is_divided_by_the_norms_of_its_rows() -> None:
    check("L2Normalization", {}, [np.random.default_rng(2).normal(0, 1, (37, 130))], rtol=2e-6)
