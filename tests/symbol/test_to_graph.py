"""The graph of a symbol: one node each, classes of variables, declared shapes and types."""
from __future__ import annotations

import numpy as np

import minigraph.symbol as sym
from minigraph.symbol import symbol_graph


def test_every_symbol_node_is_one_graph_node_in_the_same_order():
    net = sym.relu(sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc"), name="r")
    graph = symbol_graph(net)
    assert graph.name == [node.name for node in net.nodes()] == ["x", "fc_weight", "fc_bias", "fc", "r"]
    assert graph.inputs == [(), (), (), (0, 1, 2), (3,)]
    assert graph.outputs == [4] and graph.output_names == ["r_output"]


def test_hidden_outputs_are_entries_too():
    net = sym.relu(sym.BatchNorm(sym.Variable("x"), name="bn"), name="r")
    graph = symbol_graph(net)
    bn = graph.name.index("bn")
    assert len(graph.entries(bn)) == len(graph.op[bn].outputs(graph.params[bn]))
    assert graph.inputs[graph.name.index("r")] == (graph.first[bn],)


def test_variables_have_the_class_that_their_reader_decides():
    graph = symbol_graph(sym.BatchNorm(sym.Variable("x"), name="bn"))
    classes = {graph.name[i]: c for i, c in graph.variable_class.items()}
    assert classes == {"x": "argument", "bn_gamma": "argument", "bn_beta": "argument",
                       "bn_moving_mean": "auxiliary", "bn_moving_var": "auxiliary"}


def test_declared_shapes_and_types_are_initial_values():
    a = sym.Variable("a", shape=(0, 3), dtype="float16")
    b = sym.Variable("b", attr={"__shape__": "[4L, 5L]"})
    graph = symbol_graph(sym.Group([a, b, sym.Variable("c", shape=()), sym.relu(a)]))
    assert graph.shape == [(None, 3), (4, 5), None, None]
    assert graph.dtype == [np.dtype("float16"), None, None, None]


def test_outputs_may_be_variables_and_repeat():
    x = sym.Variable("x")
    graph = symbol_graph(sym.Group([x, sym.relu(x, name="r"), x]))
    assert graph.outputs == [0, 1, 0] and graph.output_names == ["x", "r_output", "x"]
