"""Depth: long chains and the deepest networks are planned, trained, printed, saved and deleted."""
from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.graph.printer import format_graph
from minigraph.plan import printer, serialize
from minigraph.symbol.to_graph import symbol_graph
from zoo import mlp, resnet

from .test_cases_graph import bound, gradients


@pytest.mark.parametrize("depth", [2_500, 10_000])
def test_a_deep_chain_is_planned_trained_printed_saved_and_deleted(depth: int, tmp_path: Any) -> None:
    limit, h = sys.getrecursionlimit(), mx.sym.Variable("x")
    for _ in range(depth):
        h = h + 1e-6 * h
    assert h.infer_shape(x=(3,))[1] == [(3,)]
    executor = bound(h, "plain", dtype=np.float64, x=[1, 2, 3])
    expected = (1 + 1e-6) ** depth
    np.testing.assert_allclose(gradients(executor)["x"], [expected] * 3, 1e-9)
    np.testing.assert_allclose(executor.outputs[0].asnumpy(), expected * np.arange(1, 4), 1e-9)
    plan = executor.program("train").plan
    assert len(printer.format_plan(plan).splitlines()) > 2 * depth
    assert len(format_graph(symbol_graph(h)).splitlines()) > 2 * depth
    serialize.save(plan, tmp_path / "chain.plan.gz")
    assert serialize.load(tmp_path / "chain.plan.gz").planned_bytes == plan.planned_bytes
    del executor, h, plan
    gc.collect()
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("name", ["residual network of 1001 layers", "perceptron of 2000 layers"])
def test_the_deepest_networks_train_on_a_tiny_batch(name: str) -> None:
    """A gradient reaches the first layer, and sharing takes fewer bytes than none."""
    if name.startswith("residual"):
        symbol, shape, first = resnet.get_symbol(10, 1001, version=2, image_shape=(3, 8, 8)), (1, 3, 8, 8), "conv0"
    else:
        symbol, shape, first = mlp.get_symbol(3, hidden=(4,) * 2000, act_type="tanh"), (2, 4), "fc1"
    executor = symbol.simple_bind(mx.cpu(), data=shape, poison=True)
    arguments, states, rng = executor.arg_dict, executor.aux_dict, np.random.default_rng(0)
    for argument, array in arguments.items():
        if argument.endswith("weight") and array.shape == (4, 4):
            array[:] = np.eye(4)        # so that a gradient comes through two thousand layers
        else:
            array[:] = 1 if "label" in argument or "gamma" in argument else rng.normal(0, 0.05, array.shape)
    for state, array in states.items():
        array[:] = float("var" in state)
    probability = executor.forward(is_train=True)[0].asnumpy()
    executor.backward()
    np.testing.assert_allclose(probability.sum(1), 1, 1e-5)
    found = {n: g.asnumpy() for n, g in executor.grad_dict.items()}
    assert all(np.isfinite(g).all() for g in found.values())
    assert any(found[n].any() for n in found if n.startswith(first) and n.endswith("weight"))
    figures = executor.program("train").plan.figures
    assert figures.nodes > 2000 and figures.lower_bound_bytes <= executor.plan.planned_bytes < figures.naive_bytes
