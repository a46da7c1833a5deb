"""Kernels of the hinge loss agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("svm", "basic")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("svm") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("svm"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("linear", [False, True])
def test_labels_of_every_dtype_and_rows_of_any_number_agree_with_numpy(kernels, linear, kind):
    data, = random_arrays((301, 7), low=-2, high=2)
    labels = np.random.default_rng(0).integers(0, 7, 301).astype(kind)
    params = {"use_linear": linear, "margin": 0.7, "regularization_coefficient": 1.3}
    kernels.check("_svm_backward", params, [data, labels])


def test_a_label_out_of_range_gives_no_gradient(kernels):
    data = np.zeros((3, 4), np.float32)
    found, = kernels.run("_svm_backward", {}, [data, np.array([4, -1, np.nan], np.float32)])
    assert not found.any()
