"""50,000 operators in a row: nothing recurses, and every step's work is in proportion to nodes."""
from __future__ import annotations

import copy
import gc
import pickle
import sys

import pytest

import minigraph.symbol as sym
from minigraph.symbol import node as node_module
from minigraph.symbol import symbol as symbol_module
from minigraph.symbol import to_graph

DEPTH = 50_000
NODES = 2 * DEPTH + 1


@pytest.fixture(scope="module")
def chain():
    assert sys.getrecursionlimit() <= 1000 or "pytest" in sys.modules
    h = sym.Variable("x")
    for _ in range(DEPTH):
        h = h + 1e-6 * h
    return h


@pytest.fixture
def visits(monkeypatch):
    """Counts the nodes that walks visit."""
    counted = [0]
    walk = node_module.topological_nodes

    def counting(outputs):
        nodes = walk(outputs)
        counted[0] += len(nodes)
        return nodes

    monkeypatch.setattr(node_module, "topological_nodes", counting)
    monkeypatch.setattr(symbol_module, "topological_nodes", counting)
    return counted


def test_composing_operators_visits_no_node(visits):
    h = sym.Variable("x")
    for _ in range(100):
        h = sym.FullyConnected(h + 1e-6 * h, num_hidden=3)
    assert visits == [0]


def test_a_deep_chain_lists_and_prints_in_one_walk(chain, visits):
    assert chain.list_arguments() == ["x"] and visits == [NODES]
    assert chain.list_auxiliary_states() == [] and visits == [2 * NODES]
    assert len(chain.debug_str().splitlines()) == 1 + 1 + 1 + DEPTH * (3 + 1 + 2) + DEPTH * (3 + 2)
    assert visits == [3 * NODES]
    assert len(chain.get_internals()) == NODES and repr(chain).startswith("<Symbol ")


def test_a_deep_chain_infers_in_one_walk(chain, visits):
    assert chain.infer_shape(x=(2, 3)) == ([(2, 3)], [(2, 3)], [])
    assert visits[0] <= 2 * NODES


def test_a_deep_chain_becomes_a_graph_of_as_many_nodes(chain):
    graph = to_graph.symbol_graph(chain)
    assert len(graph) == NODES and graph.num_entries == NODES


def test_a_deep_chain_copies_composes_and_is_deleted(chain, visits):
    other = copy.copy(chain)
    assert visits == [NODES]
    replaced = other(x=sym.Variable("y"))
    assert replaced.list_arguments() == ["y"]
    del other, replaced
    gc.collect()
    assert chain.list_arguments() == ["x"]


def test_a_deep_chain_is_saved_and_loaded(chain, tmp_path, visits):
    path = tmp_path / "deep-symbol.json"
    chain.save(path)
    assert visits[0] <= 2 * NODES
    loaded = sym.load(path)
    assert loaded.tojson() == path.read_text()
    assert len(loaded.nodes()) == NODES


def test_a_deep_chain_pickles(chain):
    assert len(pickle.loads(pickle.dumps(chain)).nodes()) == NODES
