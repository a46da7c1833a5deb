"""Attributes: scopes, hidden keys, what auto-created variables inherit."""
from __future__ import annotations

import pickle
import threading

import pytest

import minigraph.symbol as sym
from minigraph.base import MXNetError
from minigraph.symbol import AttrScope


def test_a_scope_gives_its_attributes_to_variables_and_operators():
    with AttrScope(ctx_group="dev1", __mine__="x"):
        data = sym.Variable("data")
        out = sym.relu(data)
    assert data.attr("ctx_group") == data.attr("__ctx_group__") == "dev1"
    assert out.attr("__ctx_group__") == "dev1" and out.attr("__mine__") == "x"
    assert sym.relu(data).attr("__ctx_group__") is None


def test_inner_scopes_prevail_and_the_node_prevails_over_both():
    with AttrScope(__a__="outer", __b__="outer", __c__="outer"), AttrScope(__b__="inner", __c__="inner"):
        node = sym.Variable("v", attr={"__c__": "own"})
    assert [node.attr(key) for key in ("__a__", "__b__", "__c__")] == ["outer", "inner", "own"]


def test_a_scope_may_be_entered_again():
    scope = AttrScope(__a__="1")
    with AttrScope(__b__="2"), scope:
        assert sym.Variable("v").list_attr() == {"__a__": "1", "__b__": "2"}
    with scope:
        assert sym.Variable("v").list_attr() == {"__a__": "1"}


def test_scopes_belong_to_their_thread():
    seen = []
    with AttrScope(__a__="1"):
        thread = threading.Thread(target=lambda: seen.append(sym.Variable("v").list_attr()))
        thread.start()
        thread.join()
    assert seen == [{}]


def test_scope_values_must_be_texts():
    with pytest.raises(ValueError, match="strings"):
        AttrScope(lr_mult=1)


def test_hidden_keys_answer_to_both_spellings():
    data = sym.Variable("data", attr={"dtype": "data", "force_mirroring": "True"}, lr_mult=1)
    assert data.attr("lr_mult") == data.attr("__lr_mult__") == "1"
    assert data.attr("force_mirroring") == data.attr("__force_mirroring__") == "True"
    assert data.list_attr()["lr_mult"] == "1" and data.list_attr()["__lr_mult__"] == "1"
    assert pickle.loads(pickle.dumps(data)).list_attr() == data.list_attr()


def test_attr_dict_lists_nodes_with_what_new_variables_copied():
    data = sym.Variable("data", attr={"mood": "angry"})
    conv = sym.Convolution(data=data, name="conv", kernel=(1, 1), num_filter=1, lr_mult=1,
                           attr={"__mood__": "so so"})
    own = {"kernel": "(1, 1)", "num_filter": "1", "__mood__": "so so", "__lr_mult__": "1", "lr_mult": "1"}
    assert conv.attr_dict() == {"data": {"mood": "angry"}, "conv_weight": own, "conv_bias": own, "conv": own}


def test_a_suffixed_hidden_key_goes_to_the_one_variable_it_names():
    fc = sym.FullyConnected(sym.Variable("data"), num_hidden=2, name="fc", weight_lr_mult=1.2, wd_mult=0.3)
    attrs = fc.attr_dict()
    assert attrs["fc_weight"]["__lr_mult__"] == "1.2" and attrs["fc_weight"]["__wd_mult__"] == "0.3"
    assert "__lr_mult__" not in attrs["fc_bias"] and "__lr_mult__" not in attrs["fc"]
    assert all("weight_lr_mult" not in attrs[name] for name in attrs)


def test_a_suffixed_hidden_key_for_a_given_variable_is_refused():
    with pytest.raises(MXNetError, match="'weight' was given; set lr_mult where that variable is made"):
        sym.FullyConnected(sym.Variable("data"), sym.Variable("w"), num_hidden=2, weight_lr_mult=2)
    with pytest.raises(MXNetError, match="for an input 'wait'"):
        sym.FullyConnected(sym.Variable("data"), num_hidden=2, wait_lr_mult=2)


def test_variable_declares_shape_type_and_initializer_as_hidden_attributes():
    v = sym.Variable("v", shape=(0, 3), dtype="float16", init='["zero", {}]', wd_mult=0, __mine__=3)
    assert v.list_attr() == {"__shape__": "(0, 3)", "__dtype__": "2", "__init__": '["zero", {}]',
                             "__wd_mult__": "0", "wd_mult": "0", "__mine__": "3"}


def test_variable_takes_an_initializer_that_dumps_itself():
    class Initializer:
        def dumps(self):
            return '["one", {}]'

    assert sym.Variable("v", init=Initializer()).attr("__init__") == '["one", {}]'


def test_variable_refuses_plain_keys_other_names_and_sparse_storage():
    with pytest.raises(ValueError, match="colour"):
        sym.Variable("v", colour="red")
    with pytest.raises(TypeError, match="string"):
        sym.Variable(3)
    with pytest.raises(MXNetError, match="row_sparse"):
        sym.Variable("v", stype="row_sparse")


def test_set_attr_respells_hidden_keys_and_is_seen_by_all_symbols_of_the_node():
    out = sym.relu(sym.Variable("x"), name="r")
    out.get_internals()["r_output"]._set_attr(mirror_stage="True")
    assert out.attr("__mirror_stage__") == "True"


def test_set_attr_changes_a_parameter_but_neither_inputs_nor_to_nonsense():
    fc = sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc")
    fc._set_attr(num_hidden=3)
    assert fc.infer_shape(x=(5, 7))[1] == [(5, 3)]
    for bad, text in (({"no_bias": True}, "would change its inputs"), ({"num_hidden": "many"}, "num_hidden"),
                      ({"unheard": 1}, "unheard"), ({"weight_lr_mult": 2}, "comes too late")):
        with pytest.raises(MXNetError, match=text):
            fc._set_attr(**bad)
    assert fc.list_attr() == {"num_hidden": "3"} and fc.infer_shape(x=(5, 7))[1] == [(5, 3)]


def test_set_attr_on_a_group_names_the_remedy():
    with pytest.raises(MXNetError, match="pick one by"):
        sym.Group([sym.Variable("a"), sym.Variable("b")])._set_attr(lr_mult=1)


def test_moving_statistics_are_given_their_initial_values_unless_the_user_chose():
    mean = sym.Variable("m", init='["one", {}]')
    net = sym.BatchNorm(sym.Variable("x"), moving_mean=mean, name="bn")
    attrs = net.attr_dict()
    assert attrs["m"]["__init__"] == '["one", {}]' and attrs["bn_moving_var"]["__init__"] == '["one", {}]'
    attrs = sym.BatchNorm(sym.Variable("x"), name="bn").attr_dict()
    assert attrs["bn_moving_mean"]["__init__"] == '["zero", {}]' and "bn_gamma" not in attrs
