"""Operator functions: how arguments become inputs, parameters and attributes."""
from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

import minigraph.symbol as sym
from minigraph import base
from minigraph.base import MXNetError
from minigraph.ops.registry import get_op, names, public_names


def test_inputs_not_given_become_variables_after_those_given_by_position_and_name():
    data, bias = sym.Variable("data"), sym.Variable("b")
    fc = sym.FullyConnected(data, bias=bias, num_hidden=4, name="fc")
    assert fc.list_arguments() == ["data", "fc_weight", "b"]
    assert sym.FullyConnected(num_hidden=4, name="fc").list_arguments() == ["fc_data", "fc_weight", "fc_bias"]


def test_none_leaves_an_input_to_be_made():
    data, bias = sym.Variable("data"), sym.Variable("b")
    by_position = sym.FullyConnected(data, None, bias, num_hidden=4, name="f")
    by_name = sym.FullyConnected(data, weight=None, bias=bias, num_hidden=4, name="f")
    assert by_position.list_arguments() == by_name.list_arguments() == ["data", "f_weight", "b"]


def test_no_bias_takes_the_bias_away():
    fc = sym.FullyConnected(sym.Variable("data"), num_hidden=4, no_bias=True, name="fc")
    assert fc.list_arguments() == ["data", "fc_weight"]
    with pytest.raises(MXNetError, match=r"Keyword argument name bias not found.\n.*\n\t\[0\]data"):
        sym.FullyConnected(sym.Variable("data"), bias=sym.Variable("b"), num_hidden=4, no_bias=True)


def test_parameters_may_follow_the_inputs_by_position():
    x = sym.Variable("x")
    assert sym.Cast(x, "float16").attr("dtype") == "float16"
    with pytest.raises(MXNetError, match="input 'weight' must be a Symbol, got int"):
        sym.FullyConnected(x, 10)
    with pytest.raises(MXNetError, match="by position and by name"):
        sym.Cast(x, "float16", dtype="float32")


def test_attributes_are_exactly_the_texts_of_what_was_set():
    conv = sym.Convolution(sym.Variable("x"), kernel=(3, 3), num_filter=np.int64(8), no_bias=True,
                           workspace=512, cudnn_tune="off", layout=None)
    assert conv.list_attr() == {"kernel": "(3, 3)", "num_filter": "8", "no_bias": "True", "workspace": "512",
                                "cudnn_tune": "off", "layout": "None"}


def test_a_dtype_is_written_by_name_however_it_was_given():
    x = sym.Variable("x")
    spellings = ("float16", np.float16, np.dtype("float16"))
    assert {sym.Cast(x, dtype=dtype).attr("dtype") for dtype in spellings} == {"float16"}


def test_operators_of_any_number_of_inputs_count_them():
    a, b, c = (sym.Variable(n) for n in "abc")
    total = sym.add_n(a, b, c, name="s")
    assert total.attr("num_args") == "3" and total.list_arguments() == ["a", "b", "c"]
    assert sym.add_n(a, num_args=2, name="s").list_arguments() == ["a", "s_arg1"]
    with pytest.raises(MXNetError, match="takes one input or more"):
        sym.add_n()
    with pytest.raises(MXNetError, match="positional arguments must each be a Symbol, got list"):
        sym.add_n([a, b])


def test_an_unknown_keyword_lists_the_candidates():
    with pytest.raises(MXNetError) as error:
        sym.FullyConnected(sym.Variable("x"), num_hiden=3)
    assert all(word in str(error.value) for word in ("'num_hiden'", "num_hidden", "no_bias", "weight"))
    with pytest.raises(MXNetError, match=r"argument name date not found.\nCandidate arguments:\n\t\[0\]data"):
        sym.relu(date=sym.Variable("x"))


def test_too_many_or_doubled_inputs_are_refused():
    x = sym.Variable("x")
    with pytest.raises(MXNetError, match=r"requires 1 \(data\), provided 2"):
        sym.relu(x, x)
    with pytest.raises(MXNetError, match="by position and by name"):
        sym.relu(x, data=x)
    with pytest.raises(MXNetError, match="'data' must be a Symbol, got ndarray"):
        sym.relu(data=np.zeros(3))


def test_a_symbol_of_several_outputs_cannot_be_an_input():
    pair = sym.Group([sym.Variable("a"), sym.Variable("b")])
    with pytest.raises(MXNetError, match="Argument 0 of relu is a tuple, single value is required.*a, b"):
        sym.relu(pair)
    with pytest.raises(MXNetError, match="is a tuple, single value is required"):
        sym.relu(data=pair)
    with pytest.raises(MXNetError, match="is a tuple, single value is required"):
        pair + 1


def test_a_missing_parameter_names_operator_and_node():
    with pytest.raises(MXNetError, match="FullyConnected fc: parameter 'num_hidden'"):
        sym.FullyConnected(sym.Variable("x"), name="fc")


def test_every_public_operator_has_a_documented_function():
    for name, op in public_names():
        function = getattr(sym, name)
        assert function.__name__ == name
        assert all(field in function.__doc__ for field in op.Params.__dataclass_fields__)
        assert {"name", "attr"} <= set(inspect.signature(function).parameters)
        assert (name in dir(sym)) == (not name.startswith("_"))


def test_function_signature_is_inputs_then_parameters():
    parameters = list(inspect.signature(sym.FullyConnected).parameters)
    assert parameters[:4] == ["data", "weight", "bias", "num_hidden"]


def test_an_unknown_operator_is_an_attribute_error():
    assert "NoSuchOperator" not in names()
    with pytest.raises(AttributeError, match="NoSuchOperator"):
        _ = sym.NoSuchOperator


def test_method_forms_take_the_symbol_as_first_input():
    x = sym.Variable("x")
    assert x.sum(axis=1).infer_shape(x=(2, 3))[1] == [(2,)]
    assert x.astype("float16").infer_type(x="float32")[1] == [np.float16]
    assert x.relu().list_arguments() == ["x"]


def test_hidden_outputs_are_not_shown():
    net = sym.BatchNorm(sym.Variable("x"), name="bn")
    assert len(net) == 1 and net.list_outputs() == ["bn_output"]
    assert [name for name in net.get_internals().list_outputs() if name.startswith("bn_o")] == ["bn_output"]


def test_outputs_of_one_operator_are_picked_and_joined():
    parts = sym.SliceChannel(sym.Variable("x"), num_outputs=3, name="s")
    assert parts.list_outputs() == ["s_output0", "s_output1", "s_output2"]
    joined = sym.Concat(parts[0], parts["s_output2"], dim=1, name="c")
    assert joined.list_attr() == {"num_args": "2", "dim": "1"}
    assert joined.infer_shape(x=(2, 6))[1] == [(2, 4)]
    assert sym.Concat(arg1=parts[0], arg0=parts[1], name="c").list_arguments() == ["x"]


def test_a_method_takes_parameters_by_position_and_by_name():
    x = sym.Variable("x")
    assert x.reshape((0, -1)).infer_shape(x=(2, 3, 4))[1] == [(2, 12)]
    assert x.reshape(shape=(-1,)).attr("shape") == "(-1,)"
    with pytest.raises(AttributeError):
        _ = x.no_such_operator


def test_two_value_functions_take_symbols_and_numbers():
    a, b = sym.Variable("a"), sym.Variable("b")
    assert sym.maximum(a, b).nodes()[-1].op.name == "_maximum"
    assert sym.maximum(2, a).nodes()[-1].op.name == "_maximum_scalar"
    assert sym.minimum(a, 2).attr("scalar") == "2"
    assert sym.pow(a, 2).nodes()[-1].op.name == "_power_scalar"
    assert sym.pow(2, 3) == 8 and sym.maximum(1, 2) == 2 and sym.hypot(3, 4) == 5
    with pytest.raises(TypeError, match="maximum takes"):
        sym.maximum(a, "b")


@pytest.mark.parametrize("operation", [lambda a: a.__iadd__(1), lambda a: a.__imul__(1), bool])
def test_in_place_operators_and_truth_raise(operation):
    with pytest.raises(sym.NotImplementedForSymbol) as error:
        operation(sym.Variable("a"))
    assert isinstance(error.value, MXNetError)


def test_augmented_assignment_raises_and_leaves_the_symbol():
    a = before = sym.Variable("a")
    with pytest.raises(sym.NotImplementedForSymbol, match="a = a - b"):
        a -= 1
    assert a is before


def test_numpy_numbers_are_numbers_on_either_side():
    a = sym.Variable("a")
    assert (np.float32(0.5) * a).attr("scalar") == "0.5"
    assert (a - np.int64(2)).attr("scalar") == "2"


def test_operators_with_anything_else_are_type_errors():
    with pytest.raises(TypeError):
        sym.Variable("a") + "b"
    assert (sym.Variable("a") == "b") is False


def test_constants_have_shape_and_type_without_inputs():
    assert sym.zeros((2, 3)).infer_shape()[1] == [(2, 3)]
    assert sym.ones((2,), dtype="float16").infer_type()[1] == [np.float16]


def test_numbers_of_numpy_in_a_parameter_are_written_as_pythons():
    x = sym.Variable("x")
    assert sym.transpose(x, axes=tuple(np.array([1, 0]))).attr("axes") == "(1, 0)"
    assert sym.transpose(x, axes=np.array([1, 0])).attr("axes") == "(1, 0)"
    assert sym.Reshape(x, shape=[np.int64(-1), 2]).attr("shape") == "[-1, 2]"
    assert sym.clip(x, np.float32(0.1), np.int32(2)).attr("a_min") == "0.1"


def test_abs_of_a_symbol_is_the_operator():
    with sym.NameManager():
        assert abs(sym.Variable("x")).name == "abs0"


def test_bool_of_a_symbol_is_refused_by_the_error_that_base_has_too():
    with pytest.raises(base.NotImplementedForSymbol, match="bool"):
        bool(sym.Variable("x"))


@pytest.mark.parametrize("name", ["asnumpy", "asscalar", "wait_to_read", "copy", "detach", "backward", "as_in_context"])
def test_methods_that_need_values_are_refused(name):
    with pytest.raises(base.NotImplementedForSymbol, match=f"{name} is not implemented for Symbol.*outputs"):
        getattr(sym.Variable("x"), name)()


def test_parts_are_cut_by_a_method_too():
    assert sym.Variable("x").split_v2((1,), axis=1).infer_shape(x=(2, 3))[1] == [(2, 1), (2, 2)]


def test_an_operator_is_composed_anew_of_a_nodes_attributes():
    parts = sym.split(sym.Variable("x"), num_outputs=2, name="s")._gen_atomic_symbol()
    assert len(parts) == 2 and parts.list_outputs() == ["s_output0", "s_output1"]
    again = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc")._gen_atomic_symbol()
    assert again.list_arguments() == ["fc_data", "fc_weight", "fc_bias"] and again.attr("num_hidden") == "3"
    with pytest.raises(MXNetError, match="no application of one operator"):
        sym.Variable("x")._gen_atomic_symbol()


@pytest.mark.parametrize("name,order", [
    ("Convolution", "kernel stride dilate pad num_filter num_group no_bias layout"),
    ("Deconvolution", "kernel stride dilate pad adj target_shape num_filter num_group no_bias layout"),
    ("Pooling", "kernel pool_type global_pool pooling_convention stride pad p_value count_include_pad layout"),
    ("BatchNorm", "eps momentum fix_gamma use_global_stats output_mean_var axis"),
    ("LRN", "alpha beta knorm nsize"), ("SequenceMask", "use_sequence_length value axis"),
    ("SpatialTransformer", "target_shape transform_type sampler_type"), ("random_uniform", "low high shape ctx dtype"),
    ("random_normal", "loc scale shape ctx dtype"), ("_full", "shape ctx dtype value"),
    ("UpSampling", "scale num_filter sample_type multi_input_mode num_args"),
    ("_arange", "start stop step repeat infer_range ctx dtype"), ("clip", "a_min a_max"),
    ("Embedding", "input_dim output_dim dtype sparse_grad"), ("topk", "axis k ret_typ is_ascend dtype"),
])
def test_parameters_by_position_are_in_mxnets_order(name, order):
    listed = [field.name for field in dataclasses.fields(get_op(name).Params)]
    assert listed == [key for key in order.split() if key in listed]
