"""Kernels that repeat a tensor along axes agree with NumPy, and so do their gradients."""
from __future__ import annotations

import pytest

from minigraph.base import MXNetError

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("shape", "broadcast", "basic")


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("expanding") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("expanding"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("shape", "target"), [((1, 7, 1), (5, 7, 300)), ((3, 1), (3, 1)), ((1,), (4001,)),
                                               ((0, 1), (0, 5)), ((2, 1) * 4, (2, 3, 2, 1, 2, 4, 2, 1))])
def test_a_tensor_is_repeated_to_any_shape(kernels, shape, target):
    kernels.check("broadcast_to", {"shape": target}, random_arrays(shape), rtol=0, atol=0)


@pytest.mark.parametrize(("op_name", "params", "shape"), [
    ("tile", {"reps": (3, 1, 2)}, (4, 5, 70)), ("tile", {"reps": (600,)}, (3, 2)), ("tile", {"reps": (1, 1)}, (2, 2)),
    ("repeat", {"repeats": 700, "axis": 1}, (3, 2, 2)), ("repeat", {"repeats": 3}, (41, 9)),
    ("tile", {"reps": (2, 2, 2, 2)}, (2, 2, 2, 2)), ("tile", {"reps": (2, 2)}, (0, 3))])
def test_copies_and_the_sums_of_their_gradients_agree_with_numpy(kernels, op_name, params, shape):
    data, = random_arrays(shape)
    out, = kernels.check(op_name, params, [data], rtol=0, atol=0)
    kernels.check(f"_{op_name}_backward", params, [*random_arrays(out.shape), data])


def test_copies_along_more_than_four_axes_are_refused(kernels):
    with pytest.raises(MXNetError, match="at most 8 dimensions"):
        kernels.run("tile", {"reps": (2,) * 5}, random_arrays((2,) * 5))
