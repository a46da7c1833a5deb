"""Kernels of losses over all alignments agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("ctc", "basic")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("ctc") == {"CTCLoss"}     # which expands


@pytest.mark.parametrize(("op_name", "sample"), [c for c in every_sample("ctc") if c.values[0] != "CTCLoss"])
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("blank", ["first", "last"])
def test_labels_of_more_states_than_threads_and_lengths_of_every_dtype_agree_with_numpy(kernels, blank, kind):
    time, batch, classes, count = 170, 2, 9, 150
    logs, grad = random_arrays((time, batch, classes), (batch,), low=-3, high=-1)
    rng = np.random.default_rng(0)
    label = rng.integers(1, classes - 1, (batch, count)).astype(kind)
    label[0, 60:] = -1
    lengths = [np.array(given, kind) for given in ((time, 140), (count, 100))]
    params = {"blank_label": blank, "use_data_lengths": True, "use_label_lengths": True}
    loss, alphas = kernels.check("_ctc_loss", params, [logs, label, *lengths], rtol=1e-4)
    found, = kernels.check("_ctc_loss_backward", params, [grad, loss, alphas, logs, label, *lengths], rtol=2e-3)
    np.testing.assert_allclose(-found[:140].sum(2) / grad, np.ones((140, 2)), rtol=1e-3)


def test_labels_and_lengths_out_of_range_are_no_addresses(kernels):
    logs, = random_arrays((4, 3, 5), low=-3, high=-1)
    label = np.array([[1, 7, 2], [np.nan, 1, 1], [1, 2, 3]], np.float32)
    params = {"use_data_lengths": True}
    loss, _ = kernels.run("_ctc_loss", params, [logs, label, np.array([4, 4, 99], np.float32)])
    padded = np.array([[1, 0, 0], [0, 0, 0], [1, 2, 3]], np.float32)
    expected, _ = kernels.run("_ctc_loss", params, [logs, padded, np.array([4, 4, 0], np.float32)])
    np.testing.assert_array_equal(loss, expected)
