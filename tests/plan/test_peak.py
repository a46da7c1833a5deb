"""The tensors at the peak: which, whose, made and last needed where; and the advice that follows."""
from __future__ import annotations

import pytest

import minigraph as mx
from minigraph.plan.peak import advice, peak_tensors, value_layers
from minigraph.plan.plan import CLASSES
from minigraph.plan.report import report
from minigraph.planning import plan

from .build import chain, swap, training


def test_the_largest_come_first_and_equal_ones_by_birth() -> None:
    found = peak_tensors(chain())  # at instant 0: scratch 128, and data, weight and a of 64
    assert [(t.name, t.bytes) for t in found] == [("scratch", 128), ("data", 64), ("weight", 64), ("a", 64)]
    assert peak_tensors(chain(), count=2) == found[:2]


def test_a_tensor_tells_who_makes_it_and_who_needs_it_last() -> None:
    by_name = {t.name: t for t in peak_tensors(chain())}
    assert by_name["scratch"].made_by == by_name["scratch"].last_read_by == (0, "a")
    assert by_name["a"].made_by == (0, "a") and by_name["a"].last_read_by == (2, "out")  # through b and its view
    assert by_name["weight"].made_by == (-1, "start of the program")
    assert by_name["weight"].last_read_by == (3, "end of the program")
    assert by_name["data"].last_read_by == (0, "a")


def test_an_instant_other_than_the_peak_may_be_asked_for() -> None:
    assert {t.name for t in peak_tensors(swap(), instant=5)} == {"a", "b"}  # `a` is held until its copy has left


def test_a_parameter_keeps_its_name_through_an_update() -> None:
    assert "weight" in {t.name for t in peak_tensors(training(), instant=3)}


def small_network() -> mx.sym.Symbol:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    h = mx.sym.Activation(mx.sym.BatchNorm(h, name="bn"), act_type="relu", name="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=3, name="fc"), name="softmax")


def test_every_tensor_belongs_to_the_layer_whose_node_makes_or_reads_it() -> None:
    made = plan(small_network(), {"data": (2, 3, 8, 8)}, "sgd")
    layer = dict(zip(made.buffers.name, value_layers(made), strict=True))
    assert (layer["conv_weight"], layer["bn_gamma"], layer["fc_bias"]) == ("conv", "bn", "fc")
    assert (layer["conv_output"], layer["bn/batchnorm_train+relu_output"]) == ("conv", "bn")
    assert layer["fc_weight/sgd_update_weight"] == "fc"
    assert layer["conv/convolution_backward_weight_output"] == "conv"
    others = {name for name in layer.values() if not name.startswith("flatten")} - {"conv", "bn", "fc", "softmax"}
    assert others <= {"softmax_label", "__control__"}


def test_a_copy_and_what_it_brings_back_belong_to_the_layer_of_the_original() -> None:
    layers = value_layers(swap())
    assert layers[1] == layers[2] == layers[5] == "a"


@pytest.mark.parametrize("kind", CLASSES)
def test_advice_names_what_takes_most(kind) -> None:
    text = advice({kind: 75, "workspace" if kind != "workspace" else "input": 25}, "plain")
    assert "75 % of the peak" in text and (kind in text or kind in ("auxiliary", "state", "backward"))


def test_advice_on_activations_under_a_policy_is_no_longer_to_give_a_budget() -> None:
    assert "give a budget" in advice({"activation": 1}, "plain")
    assert "give a budget" not in advice({"activation": 1}, "auto")
    assert advice({}, "plain") == ""


def test_the_report_lists_the_ten_largest_and_the_advice() -> None:
    found = report(plan(small_network(), {"data": (2, 3, 8, 8)}, "sgd"))
    assert len(found.peak_tensors) == 10
    sizes = [t.bytes for t in found.peak_tensors]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) <= found.peak_live_bytes
    text = found.text()
    assert all(t.text() in text for t in found.peak_tensors) and found.advice in text
