"""Depth: 50,000 nodes in a row at the default recursion limit, and work that grows in proportion."""
from __future__ import annotations

import gc
import pickle
import sys

import numpy as np
import pytest

import minigraph as mx
from minigraph.graph.printer import format_graph
from minigraph.plan import printer, serialize
from minigraph.symbol.to_graph import symbol_graph


def chain(depth: int) -> mx.sym.Symbol:
    """h <- h + 1e-6 h, `depth` times: two nodes a step."""
    h = mx.sym.Variable("x")
    for _ in range(depth):
        h = h + 1e-6 * h
    return h


def test_a_chain_of_50000_nodes_is_built_bound_run_printed_saved_and_deleted(tmp_path) -> None:
    assert sys.getrecursionlimit() <= 1000
    depth = 25_000
    symbol = chain(depth)
    executor = symbol.simple_bind(mx.cpu(), x=(4,))
    executor.arg_dict["x"][:] = np.ones(4)
    out, = executor.forward(is_train=True)
    expected = np.float32(1)
    for _ in range(depth):
        expected = expected + np.float32(1e-6) * expected
    np.testing.assert_array_equal(out.asnumpy(), np.full(4, expected))
    executor.backward([np.ones(4)])
    np.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), np.full(4, expected), rtol=1e-3)
    plan = executor.plan
    assert len(printer.format_plan(plan).splitlines()) > 2 * depth
    assert len(format_graph(symbol_graph(symbol)).splitlines()) > 2 * depth
    serialize.save(plan, tmp_path / "chain.plan.gz")
    assert serialize.load(tmp_path / "chain.plan.gz").planned_bytes == plan.planned_bytes
    symbol.save(str(tmp_path / "chain-symbol.json"))
    assert mx.sym.load(str(tmp_path / "chain-symbol.json")).list_arguments() == ["x"]
    assert pickle.loads(pickle.dumps(symbol)).list_arguments() == ["x"]
    del executor, symbol, plan
    gc.collect()


def test_bytes_of_a_chain_do_not_grow_with_its_depth() -> None:
    planned = [chain(n).simple_bind(mx.cpu(), x=(1000,), grad_req="null").program("eval").plan.planned_bytes
               for n in (10, 1000)]
    assert planned[0] == planned[1]


@pytest.mark.parametrize("terms", [2, 3, 7, 8, 9, 64, 1000])
def test_a_value_added_to_itself_many_times_has_that_many_times_its_gradient(terms: int) -> None:
    x = mx.sym.Variable("x")
    inner = mx.sym.relu(x)
    total = inner
    for _ in range(terms - 1):
        total = total + inner
    executor = mx.sym.Group([total, mx.sym.add_n(*[x] * terms)]).simple_bind(mx.cpu(), x=(1,), grad_req="add",
                                                                             poison=True)
    executor.arg_dict["x"][:] = 3
    executor.grad_dict["x"][:] = 1
    outputs = executor.forward(is_train=True)
    assert [o.asscalar() for o in outputs] == [3 * terms, 3 * terms]
    executor.backward([np.ones(1), np.ones(1)])
    assert executor.grad_dict["x"].asscalar() == 2 * terms + 1


def test_work_per_node_is_flat(monkeypatch) -> None:
    """Inference visits, share decisions and packing placements per node do not grow with the graph."""
    from minigraph.graph import infer
    visits = 0
    original = infer._visit

    def counted(*args):
        nonlocal visits
        visits += 1
        return original(*args)
    monkeypatch.setattr(infer, "_visit", counted)
    per_node = []
    for depth in (500, 2000):
        visits = 0
        chain(depth).simple_bind(mx.cpu(), x=(4,))
        per_node.append(visits / (2 * depth))
    assert per_node[1] <= per_node[0] * 1.05
