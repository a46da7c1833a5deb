"""Steps on gpu(0) whose values are kept, swapped or computed again by their cost: the bits of the plain plan."""
from __future__ import annotations

import pytest

import minigraph as mx
from minigraph.memory.policies import POLICIES, Strategy
from minigraph.memory.schedule import DROP, IN
from tests.memory.test_hybrid import Tight, kinds
from tests.passes.test_slice import assert_same, convolutional, everything, labelled

from .processes import run


def one_step(share: float, slices: int) -> None:
    shapes, policy = labelled(8, 3, 16, 16), Tight(1.0, share)
    whole, _ = everything(convolutional(2), shapes, mx.gpu(0), steps=1)
    POLICIES["tight"] = Strategy(policy, "lowest")
    found, _ = everything(convolutional(2), shapes, mx.gpu(0), steps=1, memory="tight", host_budget="1GiB",
                          slices=slices, encode=False)  # whole values, so that slices have something to move
    counted = kinds(policy.steps)
    assert counted[DROP] > 0 and (counted[IN] > 0) == (share > 0), counted
    assert_same(found, whole)


@pytest.mark.parametrize(("share", "slices"), [(0.0, 1), (1e6, 1), (1e6, 2)])
def test_a_tight_step_has_the_bits_of_the_plain_plan(share: float, slices: int) -> None:
    run(one_step, share, slices)
