"""Layers with an activation in the same pass: CUDA kernels against NumPy and against the layer alone."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("conv", "dense")


def test_every_op_has_a_kernel():
    assert not ops_without_kernel("activated")


@pytest.mark.parametrize(("op_name", "sample"), every_sample("activated"))
def test_samples_agree_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("target", [2, 3, 512])
def test_the_activation_comes_after_the_last_segment(kernels, monkeypatch, target):
    monkeypatch.setattr("minigraph.device.cuda.gemm.SEGMENT", 8)
    monkeypatch.setattr("minigraph.device.cuda.gemm.TARGET_BLOCKS", target)
    data, weight, bias = random_arrays((5, 70), (9, 70), (9,), low=-1.0)
    plain, = kernels.run("FullyConnected", {"num_hidden": 9}, [data, weight, bias])
    found, = kernels.check("_fully_connected_activated", {"num_hidden": 9, "act_type": "relu"}, [data, weight, bias])
    np.testing.assert_array_equal(found, np.maximum(plain, 0))
