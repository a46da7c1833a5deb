"""print_summary: a table of layers whose figures are right."""
from __future__ import annotations

import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.visualization import summary


def network():
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, name="bn")
    net = mx.sym.elemwise_add(mx.sym.Activation(net, act_type="relu", name="relu"), net, name="sum")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def rows(text):
    return [line.split() for line in text.splitlines() if line[0] not in "_="]


def test_layers_shapes_parameters_and_inputs_are_listed():
    found = rows(summary(network(), {"data": (2, 3, 8, 8)}))
    assert found == [
        "Layer (type) Output Shape Param # Previous Layer".split(), ["data", "(null)", "3x8x8", "0"],
        ["conv", "(Convolution)", "4x8x8", "112", "data"], ["bn", "(BatchNorm)", "4x8x8", "8", "conv"],
        ["relu", "(Activation)", "4x8x8", "0", "bn"], ["sum", "(elemwise_add)", "4x8x8", "0", "relu"], ["bn"],
        ["fc", "(FullyConnected)", "10", "2570", "sum"], ["softmax", "(SoftmaxOutput)", "10", "0", "fc"],
        ["Total", "params:", "2690"]]


def test_a_shared_weight_counts_once():
    w = mx.sym.Variable("w")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight=w, num_hidden=4, no_bias=True, name="a")
    net = mx.sym.FullyConnected(net, weight=w, num_hidden=4, no_bias=True, name="b")
    assert rows(summary(net, {"data": (1, 4)}))[-1] == ["Total", "params:", "16"]


def test_the_table_is_printed_in_the_width_asked_for(capsys):
    mx.viz.print_summary(network(), {"data": (2, 3, 8, 8)}, line_length=60)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 60 and lines[0] == "_" * 60


def test_shapes_may_be_left_out_but_not_be_too_few():
    assert rows(summary(network()))[2] == ["conv", "(Convolution)", "0", "data"]
    with pytest.warns(UserWarning, match="Cannot decide shape"), pytest.raises(MXNetError, match="leave some unknown"):
        summary(network(), {"softmax_label": (2,)})


def test_nodes_of_one_name_have_the_shapes_and_parameters_of_their_own():
    x, w, v = map(mx.sym.Variable, ("data", "w", "v"))
    net = mx.sym.FullyConnected(mx.sym.FullyConnected(x, w, num_hidden=7, no_bias=True, name="f"), v, num_hidden=2,
                                no_bias=True, name="f")
    found = rows(summary(net, {"data": (4, 3)}))
    assert found[2:4] == [["f", "(FullyConnected)", "7", "21", "data"], ["f", "(FullyConnected)", "2", "14", "f"]]
