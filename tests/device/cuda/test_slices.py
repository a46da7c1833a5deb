"""Kernels on slices of the batch: cut at multiples of their chunks, they have the bits of the whole."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.device.cuda.families import import_families
from minigraph.device.cuda.launch import kernel_op
from minigraph.ops.registry import get_op
from tests.ops.harness import execute
from tests.ops.test_extended_memory import Case
from tests.ops.test_slices import STAGED, form_of, given, in_slices, types

from .harness import Kernels

import_families()
KERNELS = ("conv", "dense", "norm", "random", "basic")
CONV: dict[str, Any] = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 7}
THIN = {**CONV, "num_filter": 6, "num_group": 6}
IMAGES, LARGE, ROWS, VECTOR = (5, 6, 66, 65), (3, 2, 100, 90), (300, 6), (6,)
BACKWARD: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, []), ({"act_type": "relu"}, [VECTOR, VECTOR]), ({"act_type": "tanh", "addend": True}, [IMAGES])]
"""What follows a normalisation, and what its gradient's stages read for it."""
SPREAD = {"rtol": 1e-4, "atol": 1e-3}
CASES: list[Case] = [
    ("Convolution", CONV, [IMAGES, (7, 6, 3, 3), (7,)]),
    ("_convolution_backward_data", CONV, [(5, 7, 66, 65), (7, 6, 3, 3), IMAGES]),
    ("_convolution_backward_weight", CONV, [(5, 7, 66, 65), IMAGES, (7, 6, 3, 3)]),
    ("_convolution_backward_weight", THIN, [IMAGES, IMAGES, (6, 1, 3, 3)]),
    ("_convolution_backward_bias", {}, [IMAGES]), ("_convolution_backward_bias", {}, [LARGE]),
    ("_convolution_backward_bias", {}, [(9, 6, 40, 40)]),
    ("FullyConnected", {"num_hidden": 9}, [ROWS, (9, 6), (9,)]),
    ("_fully_connected_backward_data", {"num_hidden": 9}, [(300, 9), (9, 6), ROWS]),
    ("_fully_connected_backward_weight", {"num_hidden": 9}, [(300, 9), ROWS, (9, 6)]),
    ("_fully_connected_backward_bias", {}, [ROWS]),
    ("_dropout", {"p": 0.4, "ordinal": 3}, [(30, 7), (8,)]),
    ("_batchnorm_moments", {}, [IMAGES]), ("_batchnorm_moments", {}, [LARGE]), ("_batchnorm_moments", {}, [ROWS]),
    ("_batchnorm_apply", {"act_type": "relu", "addend": True}, [IMAGES, VECTOR, VECTOR, IMAGES, *[VECTOR] * 3]),
    *[("_batchnorm_backward_sums", {"count": 21450, **p}, [IMAGES, IMAGES, VECTOR, VECTOR, VECTOR, *saved])
      for p, saved in BACKWARD],
    *[("_batchnorm_backward_data", {"count": 21450, **p}, [IMAGES, IMAGES, VECTOR, VECTOR, VECTOR, *saved, (2, 6)])
      for p, saved in BACKWARD if not p.get("addend")],
]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)])
def test_slices_of_the_batch_have_the_bits_of_the_whole(kernels: Kernels, case: Case) -> None:
    op, form, (p, arrays) = get_op(case[0]), form_of(case), given(case)
    assert form is not None
    whole = kernels.execute(op, p, arrays)
    for out, close in zip(whole, execute(op, p, arrays), strict=True):
        np.testing.assert_allclose(out, close, **SPREAD)
    chunk = kernel_op(op.name).algorithm(p, types(arrays), types(whole)).chunk_rows
    batch = arrays[form.ins.index(True)].shape[0]
    assert chunk < batch, "the case is too small to be cut"
    for length in {chunk, chunk * max(1, batch // 2 // chunk)}:
        for out, wanted in zip(in_slices(case, form, length, kernels.execute), whole, strict=True):
            assert out.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("follows", "reads_output"), STAGED)
def test_stages_of_batch_normalisation_have_its_bits(kernels: Kernels, follows: dict[str, Any],
                                                     reads_output: bool) -> None:
    draw = np.random.default_rng(2)
    images, grad, more = draw.uniform(-1, 1, (3, *IMAGES)).astype(np.float32)
    gamma, beta = draw.uniform(0.5, 1, (2, 6)).astype(np.float32)
    own = {"fix_gamma": False, **follows}
    whole, addend = {**own, "count": images.size // 6}, [more] * bool(follows.get("addend"))
    out, mean, var, rest = kernels.run("_batchnorm_train", own, [images, gamma, beta, *addend])
    moments, = kernels.run("_batchnorm_moments", {}, [images])
    statistics = kernels.run("_batchnorm_statistics", {"count": whole["count"]}, [moments])
    found = [*kernels.run("_batchnorm_apply", own, [images, gamma, beta, *addend, *statistics]), *statistics]
    saved = [] if not follows else [out] if reads_output else [beta, rest]
    back = kernels.run("_batchnorm_backward", own, [grad, images, gamma, mean, var, *saved])
    sums, *sloped = kernels.run("_batchnorm_backward_sums", whole, [grad, images, gamma, mean, var, *saved])
    if sloped:
        grad, saved, whole = sloped[0], [], {**whole, "act_type": None, "addend": False}
    made = kernels.run("_batchnorm_backward_data", whole, [grad, images, gamma, mean, var, *saved, sums])
    found += [*made, *kernels.run("_batchnorm_backward_params", {}, [sums, var]), *sloped]
    for one, other in zip(found, [out, mean, var, rest, *back], strict=True):
        assert one.tobytes() == other.tobytes()


def test_rows_are_taken_and_placed_where_they_are_not_aligned(kernels: Kernels) -> None:
    data = np.arange(33, dtype=np.float32).reshape(11, 3)
    assert (kernels.run("_take_rows", {"first": 3, "rows": 5}, [data])[0] == data[3:8]).all()
    whole, = kernels.run("_place_rows", {"first": 5}, [data, -data[:4]])
    assert (whole == np.concatenate([data[:5], -data[:4], data[9:]])).all()
    assert (kernels.run("_first_rows", {"batch": 11}, [data])[0] == data).all()
