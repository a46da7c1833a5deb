"""Winners of windowed maxima and gradients by them: CUDA kernels against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from tests.ops.test_bits import GRADIENTS, POOLED, SPECIAL

from .harness import every_sample, ops_without_kernel

KERNELS = ("pool",)


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("pool_winners")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("pool_winners"))
def test_samples_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("special", (False, True))
@pytest.mark.parametrize("params, shape", POOLED, ids=str)
def test_gradients_by_winners_have_the_bits_of_those_by_values(kernels, params, shape, special):
    rng = np.random.default_rng(0)
    data = rng.integers(-2, 3, shape).astype(np.float32)     # with ties
    if special:
        data = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), data)
    out, = kernels.run("Pooling", params, [data])
    winners, = kernels.check("_pooling_winners", params, [data, out])
    assert [a.tobytes() for a in kernels.check("_pooling_with_winners", params, [data])] == [out.tobytes(),
                                                                                            winners.tobytes()]
    grad = rng.choice(GRADIENTS, out.shape) if special else rng.standard_normal(out.shape).astype(np.float32)
    found, = kernels.run("_pooling_by_winners", {**params, "size": shape[2:]}, [grad, winners])
    assert found.tobytes() == kernels.run("_pooling_backward", params, [grad, data, out])[0].tobytes()
