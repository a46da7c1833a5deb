"""Kernels of local response normalisation agree with NumPy."""
from __future__ import annotations

import pytest

from .harness import every_sample, ops_without_kernel, random_arrays


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("lrn") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("lrn"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("shape", [(2, 40, 7, 9), (3, 5), (1, 1, 2001), (0, 3, 2)])
@pytest.mark.parametrize("nsize", [1, 5, 11])
def test_windows_cut_at_the_first_and_last_channel_agree_with_numpy(kernels, shape, nsize):
    params = {"nsize": nsize, "alpha": 0.7, "beta": 0.6, "knorm": 1.5}
    data, grad = random_arrays(shape, shape, low=-2, high=2)
    _, norm = kernels.check("LRN", params, [data])
    kernels.check("_lrn_backward", params, [grad, data, norm])


def test_many_images_go_piece_by_piece_and_give_the_same_bits(kernels, monkeypatch):
    params = {"nsize": 3, "alpha": 0.5}
    data, grad = random_arrays((37, 4, 3), (37, 4, 3))
    _, norm = kernels.run("LRN", params, [data])
    whole, = kernels.run("_lrn_backward", params, [grad, data, norm])
    monkeypatch.setattr("minigraph.device.cuda.lrn.PIECE_BYTES", 1)
    pieces, = kernels.check("_lrn_backward", params, [grad, data, norm])
    assert pieces.tobytes() == whole.tobytes()
