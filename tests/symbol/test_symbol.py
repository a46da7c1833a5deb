"""Symbol: listing, picking, composing, copying, inferring."""
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minigraph.symbol as sym
from minigraph.base import MXNetError
from minigraph.symbol import NameManager


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


def mlp():
    data = sym.Variable("data")
    hidden = sym.Activation(sym.FullyConnected(data, num_hidden=8, name="fc1"), act_type="relu", name="relu1")
    return sym.FullyConnected(hidden, num_hidden=3, name="fc2")


MLP_ARGUMENTS = ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]


def test_arguments_are_listed_in_depth_first_post_order_of_first_visit():
    assert mlp().list_arguments() == MLP_ARGUMENTS
    a, b = sym.Variable("a"), sym.Variable("b")
    assert sym.Group([sym.relu(b) + a, a * b]).list_arguments() == ["b", "a"]


def test_nodes_come_after_their_inputs_and_once():
    x = sym.Variable("x")
    y = sym.relu(x, name="y")
    net = (y + x) * y
    nodes = net.nodes()
    place = {node: i for i, node in enumerate(nodes)}
    assert len(place) == len(nodes) == 4
    assert all(place[child] < place[node] for node in nodes for child, _ in node.inputs)


def test_auxiliary_states_are_what_an_operator_updates():
    net = sym.BatchNorm(mlp(), name="bn")
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.list_arguments() == [*MLP_ARGUMENTS, "bn_gamma", "bn_beta"]
    assert net.list_inputs() == [*net.list_arguments(), *net.list_auxiliary_states()]


def test_outputs_are_named_by_node_and_output():
    assert mlp().list_outputs() == ["fc2_output"]
    assert sym.Group([mlp(), sym.Variable("x")]).list_outputs() == ["fc2_output", "x"]


def test_outputs_are_picked_by_number_name_and_slice():
    internals = mlp().get_internals()
    assert internals.list_outputs() == ["data", "fc1_weight", "fc1_bias", "fc1_output", "relu1_output",
                                        "fc2_weight", "fc2_bias", "fc2_output"]
    assert internals["fc1_output"].list_arguments() == MLP_ARGUMENTS[:3]
    assert internals[-1].name == "fc2" and internals[np.int64(0)].name == "data"
    assert internals[1:3].list_outputs() == ["fc1_weight", "fc1_bias"]
    assert [s.name for s in internals][:2] == ["data", "fc1_weight"] and len(internals) == 8


def test_a_wrong_pick_says_what_there_is():
    internals = mlp().get_internals()
    with pytest.raises(ValueError, match='matches name "fc9_output"; the first outputs are data'):
        internals["fc9_output"]
    with pytest.raises(IndexError, match="it has 8"):
        internals[8]
    with pytest.raises(TypeError, match="float"):
        internals[1.0]
    with pytest.raises(ValueError, match="multiple outputs with name"):
        sym.Group([mlp(), mlp()])["fc2_output"]


def test_children_are_the_inputs_of_the_output_nodes():
    assert mlp().get_children().list_outputs() == ["relu1_output", "fc2_weight", "fc2_bias"]
    assert sym.Variable("x").get_children() is None


def test_repr_names_node_or_group():
    assert repr(mlp()) == "<Symbol fc2>"
    assert repr(sym.Group([sym.Variable("a"), mlp()])) == "<Symbol group [a, fc2]>"
    assert mlp().get_internals().name is None


def test_group_refuses_what_is_no_symbol():
    for bad in ([], ["a"], [sym.Variable("a"), 3]):
        with pytest.raises(TypeError, match="list of symbols"):
            sym.Group(bad)


def test_composing_replaces_variables_in_a_copy():
    net, other = mlp(), sym.relu(sym.Variable("image"), name="first")
    whole = net(data=other, name="renamed")
    assert whole.list_arguments() == ["image", *MLP_ARGUMENTS[1:]] and whole.name == "renamed"
    assert net.list_arguments() == MLP_ARGUMENTS and net.name == "fc2"
    assert net(other).list_arguments() == whole.list_arguments()
    assert sym.Variable("x")(x=other).list_arguments() == ["image"]


def test_composing_refuses_unknown_names_and_mixtures():
    with pytest.raises(MXNetError, match=r"name dat not found.\nCandidate arguments:\n\t\[0\]data"):
        mlp()(dat=sym.Variable("x"))
    with pytest.raises(TypeError, match="not both"):
        mlp()(sym.Variable("x"), data=sym.Variable("y"))
    with pytest.raises(TypeError, match="must be a Symbol"):
        mlp()(data=3)
    with pytest.raises(MXNetError, match="single value is required"):
        mlp()(data=sym.Group([sym.Variable("x"), sym.Variable("y")]))
    with pytest.raises(MXNetError, match="has 1 variables, got 2"):
        sym.relu(sym.Variable("x"))(sym.Variable("a"), sym.Variable("b"))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy,
                                       lambda symbol: pickle.loads(pickle.dumps(symbol))])
def test_a_copy_is_equal_and_independent(duplicate):
    net = mlp()
    other = duplicate(net)
    assert other.tojson() == net.tojson()
    other._set_attr(lr_mult="5")
    assert net.attr("lr_mult") is None and other.attr("lr_mult") == "5"


def test_symbols_hash_and_compare_by_identity_in_dictionaries():
    a, b = sym.Variable("a"), sym.Variable("a")
    assert {a: 1, b: 2}[a] == 1


def test_debug_str_lists_outputs_variables_and_operators():
    net = sym.BatchNorm(sym.Variable("x"), eps=0.1, name="bn")
    assert net.debug_str() == (
        "Symbol Outputs:\n\toutput[0]=bn(0)\nVariable:x\nVariable:bn_gamma\nVariable:bn_beta\n"
        "Variable:bn_moving_mean\nVariable:bn_moving_var\n--------------------\nOp:BatchNorm, Name=bn\n"
        "Inputs:\n"
        "\targ[0]=x(0) version=0\n\targ[1]=bn_gamma(0) version=0\n\targ[2]=bn_beta(0) version=0\n"
        "\targ[3]=bn_moving_mean(0) version=1\n\targ[4]=bn_moving_var(0) version=1\nAttrs:\n\teps=0.1\n")


def test_gradient_says_what_to_do_instead():
    with pytest.raises(MXNetError, match="bind"):
        mlp().gradient(["data"])


# -- variables that do not go together -----------------------------------------------------------------------
def test_two_variables_of_one_name_are_an_error_that_names_it():
    a, other = sym.Variable("a", shape=(2,)), sym.Variable("a", shape=(2,))
    net = a + other
    for ask in (net.list_arguments, net.list_auxiliary_states, net.list_inputs, net.infer_shape,
                net.infer_type):
        with pytest.raises(MXNetError, match="two different variables of this symbol are named 'a'"):
            ask()


def test_one_variable_used_twice_is_no_error():
    a = sym.Variable("a")
    assert (a + a).list_arguments() == ["a"]


def test_a_variable_that_is_both_state_and_input_is_an_error():
    mean = sym.Variable("m")
    net = sym.BatchNorm(sym.Variable("x"), moving_mean=mean, name="bn")
    with pytest.raises(MXNetError, match="'m' is an auxiliary state of 'bn' and an ordinary input of 'r'"):
        sym.Group([net, sym.relu(mean, name="r")]).list_arguments()


def test_a_state_must_be_a_variable():
    net = sym.BatchNorm(sym.Variable("x"), moving_mean=sym.relu(sym.Variable("m"), name="r"), name="bn")
    with pytest.raises(MXNetError, match="BatchNorm bn: 'moving_mean' is an auxiliary state.*'r'"):
        net.list_arguments()


def test_one_state_may_serve_two_operators():
    mean = sym.Variable("m")
    nets = [sym.BatchNorm(sym.Variable(f"x{i}"), moving_mean=mean, name=f"bn{i}") for i in range(2)]
    assert sym.Group(nets).list_auxiliary_states() == ["m", "bn0_moving_var", "bn1_moving_var"]


# -- inference -----------------------------------------------------------------------------------------------
def test_shapes_are_inferred_from_the_data():
    args, outs, aux = sym.BatchNorm(mlp(), name="bn").infer_shape(data=(5, 7))
    assert args == [(5, 7), (8, 7), (8,), (3, 8), (3,), (3,), (3,)]
    assert outs == [(5, 3)] and aux == [(3,), (3,)]
    assert mlp().infer_shape((5, 7)) == mlp().infer_shape(data=(5, 7))


def test_shapes_are_inferred_backwards_through_unknown_dimensions():
    a, c = sym.Variable("a", shape=(0, 10)), sym.Variable("b", shape=(12, 0))
    assert (a + c).infer_shape() == ([(12, 10), (12, 10)], [(12, 10)], [])


def test_a_given_shape_prevails_over_a_declared_one():
    x = sym.Variable("x", shape=(4, 3))
    assert sym.relu(x).infer_shape()[1] == [(4, 3)]
    assert sym.relu(x).infer_shape(x=(8, 3))[1] == [(8, 3)]


def test_incomplete_shapes_give_nones_and_a_warning_that_names_them():
    with pytest.warns(UserWarning, match=r"Cannot decide shape .*\n\tdata: \(\)"):
        assert mlp().infer_shape() == (None, None, None)
    with pytest.warns(UserWarning, match=r"data: \(0, 7\)"):
        assert mlp().infer_shape(data=(0, 7)) == (None, None, None)


def test_the_warning_lists_ten_arguments_at_most():
    net = sym.add_n(*(sym.Variable(f"v{i}") for i in range(12)))
    with pytest.warns(UserWarning, match="v9") as record:
        net.infer_shape()
    assert "v10" not in str(record[0].message) and str(record[0].message).endswith("...")


def test_partial_inference_gives_what_is_known():
    args, outs, _ = mlp().infer_shape_partial(data=(0, 7))
    assert args == [(0, 7), (8, 7), (8,), (3, 8), (3,)] and outs == [(0, 3)]
    assert sym.relu(sym.Variable("x")).infer_shape_partial() == ([()], [()], [])


def test_a_contradiction_names_operator_node_and_shapes():
    with pytest.raises(MXNetError) as error:
        mlp().infer_shape(data=(5, 7), fc1_weight=(8, 6))
    assert all(part in str(error.value) for part in ("FullyConnected", "fc1", "(8, 6)", "7"))


def test_an_unknown_argument_lists_the_known_ones():
    with pytest.raises(MXNetError, match=r"InferShape: Keyword argument name dat not .*\n.*\n\t\[0\]data\n"):
        mlp().infer_shape(dat=(5, 7))
    with pytest.raises(MXNetError, match="InferType: Keyword argument name dat not found"):
        mlp().infer_type(dat="float32")
    with pytest.raises(MXNetError, match="6 shapes were given, the symbol has 5 arguments"):
        mlp().infer_shape(*[(1, 1)] * 6)
    with pytest.raises(ValueError, match="either by positional or kwargs"):
        mlp().infer_shape((5, 7), data=(5, 7))


def test_what_is_no_shape_is_refused():
    with pytest.raises(TypeError, match="the shape of 'data'.*'5x7'"):
        mlp().infer_shape(data="5x7")
    with pytest.raises(MXNetError, match="negative dimension"):
        mlp().infer_shape(data=(5, -7))
    with pytest.raises(MXNetError, match="variable 'v': __shape__='four' is no shape"):
        sym.relu(sym.Variable("v", attr={"__shape__": "four"})).infer_shape()


def test_types_are_inferred_and_declared():
    args, outs, aux = sym.BatchNorm(mlp(), name="bn").infer_type(data="float32")
    assert set(args) == {np.float32} and outs == [np.float32] and aux == [np.float32] * 2
    x = sym.Variable("x", dtype="float64")
    assert sym.relu(x).infer_type() == ([np.float64], [np.float64], [])
    with pytest.raises(MXNetError, match="variable 'v': __dtype__='77'"):
        sym.relu(sym.Variable("v", attr={"__dtype__": "77"})).infer_type()


def test_incomplete_types_give_nones_and_a_warning():
    with pytest.warns(UserWarning, match="Cannot decide type .*\n\tdata"):
        assert mlp().infer_type() == (None, None, None)


# -- binding -------------------------------------------------------------------------------------------------
@pytest.fixture
def executor(monkeypatch):
    """The two functions that bind replaced by ones that return what they were given."""
    from minigraph import bind as module

    monkeypatch.setattr(module, "simple_bind", lambda *args, **options: (args, options))
    monkeypatch.setattr(module, "bind", lambda *args, **options: (args, options))


def test_simple_bind_parts_shapes_from_options(executor):
    net = mlp()
    args, options = net.simple_bind("ctx", data=(5, 7), fc1_bias=8, memory="auto", budget="1GB", disk=None)
    assert args[0] is net and args[1:] == ("ctx", "write", None, {"data": (5, 7), "fc1_bias": (8,)})
    assert options == {"memory": "auto", "budget": "1GB", "disk": None, "shared_exec": None}


def test_bind_passes_its_options_through(executor):
    args, options = mlp().bind("ctx", {"data": 1}, None, "add", None, memory="auto", host_budget=3)
    assert args[1:] == ("ctx", {"data": 1}, None, "add", None)
    assert options == {"memory": "auto", "host_budget": 3, "shared_exec": None}


@pytest.mark.parametrize("refused", ["group2ctx", "stype_dict", "shared_arg_names", "shared_buffer"])
def test_what_is_not_supported_is_refused_by_name(executor, refused):
    with pytest.raises(MXNetError, match=f"{refused} is not supported"):
        mlp().simple_bind("ctx", data=(5, 7), **{refused: {"a": "b"}})
