"""The graph of a symbol: one node each, classes of variables, declared shapes and types."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.symbol as sym
from minigraph.base import MXNetError
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


@pytest.mark.parametrize("known,args,outs", [
    ({"x": (0, 3, 4), "y": (2, 0, 5)}, [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)]),
    ({"x": (2, 3, 0), "y": ()}, [(2, 3, 0), ()], [()]),
    ({"x": (), "y": ()}, [(), ()], [()]),
    ({"x": (3, 0, 0), "y": (0, 4, 0)}, [(3, 0, 4), (3, 4, 0)], [(3, 0, 0)]),
])
def test_partial_inference_tells_the_known_dimensions_of_a_product(known, args, outs):
    product = sym.batch_dot(sym.Variable("x"), sym.Variable("y"))
    assert product.infer_shape_partial(**known) == (args, outs, [])


def test_a_convolution_of_stride_1_tells_the_lengths_of_its_data():
    def lengths(**params):
        made = sym.Convolution(sym.Variable("a", shape=(0, 10, 0, 0)), num_filter=21, name="c", **params)
        return (made + sym.Variable("o", shape=(5, 21, 32, 30))).infer_shape_partial()[0][0]

    assert lengths(kernel=(3, 3), pad=(1, 1)) == (5, 10, 32, 30)
    assert lengths(kernel=(3, 2), dilate=(2, 1), pad=(1, 0)) == (5, 10, 34, 31)
    assert lengths(kernel=(3, 3), pad=(1, 1), stride=(2, 1)) == (5, 10, 0, 30)


def test_partial_inference_of_types_tells_what_is_known():
    layer = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc")
    half = [np.float16] * 3
    assert layer.infer_type_partial() == ([None] * 3, [None], [])
    assert layer.infer_type_partial(x="float16") == (half, [np.float16], [])
    both = sym.Group([layer, sym.Variable("y")])
    assert both.infer_type_partial(x="float16") == ([*half, None], [np.float16, None], [])


def test_the_number_of_elements_is_one_number_whatever_the_shape():
    assert sym.size_array(sym.Variable("x")).infer_shape_partial()[1] == [(1,)]
    assert sym.shape_array(sym.Variable("x")).infer_shape_partial(x=(0, 3))[1] == [(2,)]


def test_a_dimension_of_minus_1_of_a_constant_is_left_to_inference():
    ones = sym.ones((-1, 2))
    assert ones.infer_shape_partial()[1] == [(0, 2)]
    assert (ones + sym.Variable("x", shape=(3, 0))).infer_shape()[1] == [(3, 2)]
    assert (sym.transpose(sym.Variable("a", shape=(0, 3))) + sym.ones((-1, 4))).infer_shape()[0] == [(4, 3)]


def test_a_node_seen_before_its_shapes_are_known_must_agree_with_them():
    v, x = sym.Variable("v"), sym.Variable("x")
    both = sym.transpose(v, name="t") + (x + v)
    with pytest.raises(MXNetError, match=r"transpose t\(v \(2, 3\)\).*\(3, 2\) and \(2, 3\) differ"):
        both.infer_shape(x=(2, 3))
    assert both.infer_shape(x=(3, 3))[0] == [(3, 3)] * 2
