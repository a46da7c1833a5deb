"""Steps in slices on gpu(0): the bits of the plain plan, outputs, gradients, statistics and parameters alike."""
from __future__ import annotations

import pytest

import minigraph as mx
from tests.passes.test_slice import assert_same, convolutional, everything, labelled, networks, slices_of

from .processes import run


def one_network(name: str) -> None:
    symbol, shapes, slices = networks()[name]
    whole, _ = everything(symbol, shapes, mx.gpu(0), steps=1)
    cut, exe = everything(symbol, shapes, mx.gpu(0), steps=1, slices=slices)
    assert len(slices_of(exe.program("step").plan)) >= 2
    assert_same(cut, whole)


def under_a_budget() -> None:
    shapes, layer = labelled(8, 3, 64, 64), 8 * 4 * 64 * 64 * 4
    whole, _ = everything(convolutional(4), shapes, mx.gpu(0), steps=1)
    cut, exe = everything(convolutional(4), shapes, mx.gpu(0), steps=1, budget=int(1.9 * layer))
    plan = exe.program("step").plan
    assert slices_of(plan) and plan.planned_bytes <= int(1.9 * layer)
    assert_same(cut, whole)


@pytest.mark.parametrize("name", ["convolutional", "alexnet", "densenet", "unet"])
def test_networks_in_slices_have_the_bits_of_the_plain_plan(name: str) -> None:
    run(one_network, name)


def test_a_budget_that_only_slices_meet_is_kept() -> None:
    run(under_a_budget)
