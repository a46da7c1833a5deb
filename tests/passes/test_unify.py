"""Common subexpressions: computed once where that keeps nothing longer, with the same bits."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.planning import plan

SHAPES = {"data": (4, 6)}


@pytest.fixture(autouse=True)
def numpy_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")


def counted(symbol: mx.sym.Symbol, op: str, program: str = "train", **options: Any) -> int:
    return plan(symbol, SHAPES, program=program, inputs=[], **options).instructions.op.count(op)


def twice(op: Any) -> mx.sym.Symbol:
    """The sum of an op's value and a function of the same value computed again."""
    data = mx.sym.Variable("data")
    return mx.sym.MakeLoss(mx.sym.sum(op(data) * mx.sym.sort(op(data))))


def test_the_same_value_is_computed_once():
    assert counted(twice(mx.sym.softmax), "softmax") == 1
    assert counted(twice(mx.sym.softmax), "softmax", fuse=False) == 2


def test_gradients_have_the_same_bits():
    found = {}
    for fuse in (False, True):
        executor = twice(mx.sym.softmax).simple_bind(mx.cpu(), fuse=fuse, poison=True, **SHAPES)
        executor.arg_dict["data"][:] = np.linspace(-1, 1, 24).reshape(4, 6)
        outs = executor.forward(is_train=True)[0].asnumpy().tobytes()
        executor.backward()
        found[fuse] = outs, executor.grad_dict["data"].asnumpy().tobytes()
    assert found[True] == found[False]


def test_random_values_and_different_params_are_not_the_same():
    assert counted(twice(lambda x: mx.sym.Dropout(x, p=0.5)), "_dropout") == 2
    data = mx.sym.Variable("data")
    both = mx.sym.MakeLoss(mx.sym.softmax(data, axis=0) * mx.sym.sort(mx.sym.softmax(data, axis=1)))
    assert counted(both, "softmax") == 2


def test_a_value_that_is_gone_by_then_is_computed_again():
    data = mx.sym.Variable("data")
    early = mx.sym.sum(mx.sym.softmax(data))
    late = mx.sym.broadcast_add(early, mx.sym.softmax(data))
    assert counted(late, "softmax", "eval") == 2


def test_two_outputs_keep_bytes_of_their_own():
    data = mx.sym.Variable("data")
    both = mx.sym.Group([mx.sym.softmax(data), mx.sym.softmax(data)])
    assert counted(both, "softmax", "eval") == 2
