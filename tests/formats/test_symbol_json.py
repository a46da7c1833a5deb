"""MXNet's `-symbol.json`: real files of every generation, the writer's bytes, upgrades, and damaged texts."""
from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import minigraph.symbol as sym
from minigraph.base import MXNetError
from minigraph.formats import params
from minigraph.formats.dmlc_json import array, block, quote, text_map
from minigraph.formats.symbol_json import dumps, loads
from minigraph.symbol import AttrScope, NameManager, Symbol

COMPAT = Path(__file__).parents[2].parent / "shared" / "compat"
pytestmark = pytest.mark.filterwarnings("ignore:the symbol was written by MXNet")


def real_text(name: str) -> str:
    path = COMPAT / name
    if not path.exists():
        pytest.skip(f"the real MXNet file {name} is not beside the project")
    return path.read_text()


def real_symbol(name: str) -> Symbol:
    return loads(real_text(name))


# -- real files ----------------------------------------------------------------------------------------------
SINCE_09 = ["go-symbol.json", "testnetv1-symbol.json", "sm-symbol.json", "test_mnist_model-symbol.json",
            "test_model_with_dropout-symbol.json", "NewsGroups-symbol.json", "mkldnn_model1-symbol.json",
            "resnet152-symbol.json", "clojure_test-symbol.json", "cifar_resnet20_v1-symbol.json",
            "cifar_resnet20_v2-symbol.json"]


@pytest.mark.parametrize("name", SINCE_09)
def test_a_real_file_is_written_back_byte_for_byte(name):
    symbol = real_symbol(name)
    assert dumps(symbol) == real_text(name).removesuffix("\n")


@pytest.mark.parametrize("name", SINCE_09)
def test_a_copy_and_a_pickle_of_a_real_file_are_written_byte_for_byte_too(name):
    symbol = real_symbol(name)
    text = dumps(symbol)
    assert dumps(symbol.__copy__()) == text and dumps(pickle.loads(pickle.dumps(symbol))) == text


@pytest.mark.parametrize("name", SINCE_09)
def test_composing_makes_a_real_file_one_of_today(name):
    symbol = real_symbol(name)
    text = dumps(sym.Group([symbol]))
    document = json.loads(text)
    assert document["attrs"] == {"mxnet_version": ["int", 10901]}
    assert all("attr" not in node and "param" not in node for node in document["nodes"])
    again = loads(text)
    assert dumps(again) == text and again.attr_dict() == symbol.attr_dict()


MLP_OF_3 = ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias", "fc3_weight", "fc3_bias",
            "softmax_label"]
LISTINGS = {
    "go-symbol.json": (["data", "pred_weight", "pred_bias", "softmax_label"], [], ["softmax_output"]),
    "sm-symbol.json": (["data", "fc1_weight", "fc1_bias", "lin_reg_label"], [], ["lro_output"]),
    "clojure_test-symbol.json": (MLP_OF_3, [], ["softmax_output"]),
    "testnetv1-symbol.json": (
        ["data", "conv1_weight", "conv1_bias", "conv2_weight", "conv2_bias", "fullyconnected0_weight",
         "fullyconnected0_bias", "softmaxoutput1_label"], [], ["softmaxoutput1_output"]),
    "test_mnist_model-symbol.json": (
        ["data", *(f"fullyconnected{i}_{p}" for i in range(3) for p in ("weight", "bias")), "softmax_label"],
        [], ["softmax_output"]),
    "test_model_with_dropout-symbol.json": ([*MLP_OF_3[:5], "softmax_label"], [], ["softmax_output"]),
    "NewsGroups-symbol.json": (
        ["data", "vocab_embed_weight", *(f"convolution{i}_{p}" for i in range(3) for p in ("weight", "bias")),
         "fullyconnected0_weight", "fullyconnected0_bias", "softmax_label"], [], ["softmax_output"]),
    "save_000800.json": (
        [*MLP_OF_3[:7], "batchnorm0_gamma", "batchnorm0_beta", "softmax_label"],
        ["batchnorm0_moving_mean", "batchnorm0_moving_var"], ["softmax_output"]),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_real_file_lists_arguments_states_and_outputs(name):
    symbol = real_symbol(name)
    assert (symbol.list_arguments(), symbol.list_auxiliary_states(), symbol.list_outputs()) == LISTINGS[name]


@pytest.mark.parametrize("name, nodes, arguments, states, first_state, output", [
    ("cifar_resnet20_v1-symbol.json", 179, 66, 42, "cifarresnetv10_batchnorm0_running_mean",
     "cifarresnetv10_dense0_fwd_output"),
    ("cifar_resnet20_v2-symbol.json", 176, 64, 40, "cifarresnetv20_batchnorm0_running_mean",
     "cifarresnetv20_dense0_fwd_output"),
    ("resnet152-symbol.json", 1286, 465, 306, "bn_data_moving_mean", "softmax_output"),
    ("mkldnn_model1-symbol.json", 73, 34, 0, None, "softmax_output"),
])
def test_a_large_real_file_lists_as_many(name, nodes, arguments, states, first_state, output):
    symbol = real_symbol(name)
    assert len(symbol.nodes()) == nodes and len(symbol.list_arguments()) == arguments
    found = symbol.list_auxiliary_states()
    assert len(found) == states and (found[0] if found else None) == first_state
    assert symbol.list_outputs() == [output]


@pytest.mark.parametrize("name, arrays, shapes", [
    ("go-symbol.json", "go.params", {"data": (5,), "softmax_label": (5,)}),
    ("sm-symbol.json", "sm.params", {"data": (5, 2)}),
    ("testnetv1-symbol.json", "testnetv1-0000.params", {"data": (5, 3, 224, 224)}),
    ("test_mnist_model-symbol.json", "test_mnist_model-0010.params", {"data": (5, 1, 28, 28)}),
    ("cifar_resnet20_v1-symbol.json", "cifar_resnet20_v1-0000.params", {"data": (5, 3, 32, 32)}),
    ("cifar_resnet20_v2-symbol.json", "cifar_resnet20_v2-0000.params", {"data": (5, 3, 32, 32)}),
])
def test_inferred_shapes_are_those_of_the_trained_arrays(name, arrays, shapes):
    symbol = real_symbol(name)
    args, _, aux = symbol.infer_shape(**shapes)
    inferred = {f"arg:{n}": s for n, s in zip(symbol.list_arguments(), args, strict=True)}
    inferred.update((f"aux:{n}", s) for n, s in zip(symbol.list_auxiliary_states(), aux, strict=True))
    stored = {n: a.shape for n, a in params.loads((COMPAT / arrays).read_bytes()).items()}
    inputs = {n for n in inferred if n == "arg:data" or n.endswith("label")}
    assert {n: s for n, s in inferred.items() if n not in inputs} == stored


def test_a_08_file_gets_the_attributes_of_the_net_that_it_was_made_from():
    old = real_symbol("save_000800.json").attr_dict()
    with NameManager(), AttrScope(ctx_group="stage1"):
        data = sym.Variable("data", lr_mult=0.2)
        weight = sym.Variable("fc1_weight", lr_mult=1.2)
        net = sym.FullyConnected(data, weight=weight, name="fc1", num_hidden=128, wd_mult=0.3)
        net = sym.Activation(net, name="relu1", act_type="relu")
    with NameManager(), AttrScope(ctx_group="stage2"):
        net = sym.FullyConnected(net, name="fc2", num_hidden=64, lr_mult=0.01)
        net = sym.Activation(net, name="relu2", act_type="relu")
        net = sym.FullyConnected(net, name="fc3", num_hidden=10)
        net = sym.BatchNorm(net, name="batchnorm0")
        net = sym.SoftmaxOutput(net, name="softmax")
    for node, attrs in net.attr_dict().items():
        for key, text in attrs.items():
            if key.startswith("__"):
                assert old[node].get(key) == text, (node, key)
    assert (old["fc1_weight"]["__lr_mult__"], old["data"]["__lr_mult__"], old["fc1"]["__wd_mult__"]) == (
        "1.2", "0.2", "0.3")
    assert old["fc1_weight"]["weight_lr_mult"] == "1.2" and "weight_lr_mult" not in old["fc1"]
    assert old["batchnorm0_moving_var"]["__init__"] == '["one", {}]'
    real = real_symbol("save_000800.json")
    assert real.infer_shape(data=(1, 200)) == net.infer_shape(data=(1, 200))
    assert json.loads(dumps(real))["attrs"] == {"mxnet_version": ["int", 10901]}


# -- the writer ----------------------------------------------------------------------------------------------
def test_a_composed_symbol_is_written_as_mxnet_191_does():
    net = sym.BatchNorm(sym.Variable("x"), eps=0.001, fix_gamma=False, name="bn")
    assert net.tojson() == '''{
  "nodes": [
    {
      "op": "null", 
      "name": "x", 
      "inputs": []
    }, 
    {
      "op": "null", 
      "name": "bn_gamma", 
      "attrs": {
        "eps": "0.001", 
        "fix_gamma": "False"
      }, 
      "inputs": []
    }, 
    {
      "op": "null", 
      "name": "bn_beta", 
      "attrs": {
        "eps": "0.001", 
        "fix_gamma": "False"
      }, 
      "inputs": []
    }, 
    {
      "op": "null", 
      "name": "bn_moving_mean", 
      "attrs": {
        "__init__": "[\\"zero\\", {}]", 
        "eps": "0.001", 
        "fix_gamma": "False"
      }, 
      "inputs": []
    }, 
    {
      "op": "null", 
      "name": "bn_moving_var", 
      "attrs": {
        "__init__": "[\\"one\\", {}]", 
        "eps": "0.001", 
        "fix_gamma": "False"
      }, 
      "inputs": []
    }, 
    {
      "op": "BatchNorm", 
      "name": "bn", 
      "attrs": {
        "eps": "0.001", 
        "fix_gamma": "False"
      }, 
      "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 1], [4, 0, 1]]
    }
  ], 
  "arg_nodes": [0, 1, 2, 3, 4], 
  "node_row_ptr": [0, 1, 2, 3, 4, 5, 8], 
  "heads": [[5, 0, 0]], 
  "attrs": {"mxnet_version": ["int", 10901]}
}'''


def test_arrays_break_into_lines_beyond_ten_items():
    assert array(map(str, range(10)), 1) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    assert array("abcdefghijk", 1) == "[\n    " + ", \n    ".join("abcdefghijk") + "\n  ]"
    assert array([], 1) == "[]" and block("[]", [], 0) == "[]"


def test_objects_break_into_lines_beyond_one_item():
    assert text_map({"a": "1"}, 0) == '{"a": 1}'
    assert text_map({"a": "1", "b": "2"}, 0) == '{\n  "a": 1, \n  "b": 2\n}'


def test_only_five_characters_are_escaped():
    assert quote('a"b\\c\nd\re\tf/é') == '"a\\"b\\\\c\\nd\\re\\tf/é"'


def test_names_and_attributes_of_any_text_survive():
    odd = 'tab\t "quote" \\ é \x01'
    net = sym.relu(sym.Variable("x é", attr={"__note__": odd}), name="r")
    again = loads(dumps(net))
    assert again.list_arguments() == ["x é"] and again.attr_dict()["x é"]["__note__"] == odd


def test_a_symbol_of_many_outputs_keeps_them():
    internals = sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc").get_internals()
    big = sym.Group([internals, internals, internals])
    assert loads(dumps(big)).list_outputs() == big.list_outputs()


# -- provenance ----------------------------------------------------------------------------------------------
def document(version=10200, key="attrs", op="FullyConnected", **changes):
    """A small file: fully connected layer over two variables."""
    attrs = {"no_bias": "True", "num_hidden": "2"}
    nodes = [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
             {"op": op, "name": "fc", key: attrs, "inputs": [[0, 0, 0], [1, 0, 0]]}]
    made = {"nodes": nodes, "arg_nodes": [0, 1], "node_row_ptr": [0, 1, 2, 3], "heads": [[2, 0, 0]],
            "attrs": {"mxnet_version": ["int", version]}}
    return {**made, **changes}


def read(made) -> Symbol:
    return loads(json.dumps(made))


def test_the_writers_key_version_and_graph_attributes_are_kept_until_something_changes():
    made = document(version=1100, key="attr")
    made["attrs"]["is_np_shape"] = ["int", 1]
    symbol = read(made)
    assert json.loads(dumps(symbol)) == made
    symbol.get_internals()["fc_output"]._set_attr(lr_mult=2)
    changed = json.loads(dumps(symbol))
    assert changed["attrs"] == {"mxnet_version": ["int", 10901]}
    assert changed["nodes"][2]["attrs"]["__lr_mult__"] == "2"


def test_an_alias_is_kept_when_unchanged_and_canonical_when_composed():
    made = document(op="_Plus")
    del made["nodes"][2]["attrs"]
    symbol = read(made)
    assert json.loads(dumps(symbol))["nodes"][2]["op"] == "_Plus"
    assert json.loads(dumps(sym.relu(symbol)))["nodes"][2]["op"] == "elemwise_add"


def test_entry_versions_are_kept_and_do_not_part_equal_entries():
    made = document(op="_Plus")
    del made["nodes"][2]["attrs"]
    made["nodes"][2]["inputs"] = [[0, 0, 3], [0, 0, 0]]
    del made["nodes"][1]
    made.update(heads=[[1, 0, 7]], arg_nodes=[0], node_row_ptr=[0, 1, 2])
    made["nodes"][1]["name"] = "sum"
    symbol = read(made)
    assert symbol.list_arguments() == ["x"]
    assert json.loads(dumps(symbol)) == made


def test_a_picked_output_is_written_as_of_today():
    symbol = read(document())
    assert '"int", 10200' in dumps(symbol) and '"int", 10901' in dumps(symbol[0])


def test_nodes_that_no_head_needs_are_dropped():
    made = document()
    made["nodes"].append({"op": "null", "name": "lost", "inputs": []})
    made["node_row_ptr"].append(4)
    symbol = read(made)
    assert symbol.list_arguments() == ["x", "w"]
    assert json.loads(dumps(symbol)) == document()


# -- upgrades ------------------------------------------------------------------------------------------------
def test_entries_of_two_and_all_three_attribute_keys_are_read():
    made = document()
    made["nodes"][2].update(attrs={"num_hidden": "2"}, attr={"wd_mult": "0.5"}, param={"no_bias": "True"},
                            inputs=[[0, 0], [1, 0]], backward_source_id=-1, unheard_of={"a": 1})
    symbol = read(made)
    assert symbol.list_attr() == {"num_hidden": "2", "no_bias": "True", "__wd_mult__": "0.5",
                                  "wd_mult": "0.5"}


def test_a_missing_version_means_08_which_lists_no_states():
    made = document(op="BatchNorm")
    del made["attrs"], made["node_row_ptr"]
    made["nodes"][2] = {"op": "BatchNorm", "name": "bn", "param": {"eps": "0.01"}, "attr": {"ctx_group": "a"},
                        "inputs": [[0, 0], [1, 0], [2, 0]]}
    made["nodes"].insert(2, {"op": "null", "name": "b", "inputs": []})
    made.update(heads=[[3, 0]], arg_nodes=[0, 1, 2])
    symbol = read(made)
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    attrs = symbol.attr_dict()
    assert attrs["bn_moving_mean"]["__init__"] == '["zero", {}]' and attrs["bn_moving_mean"]["eps"] == "0.01"
    assert attrs["bn_moving_var"]["__ctx_group__"] == "a" and "__init__" not in attrs["bn"]


def test_initial_values_of_states_are_set_before_094_only():
    def states_of(version):
        with NameManager():
            made = json.loads(dumps(sym.BatchNorm(sym.Variable("x"), name="bn")))
        for node in made["nodes"]:
            node.pop("attrs", None)
        made["attrs"]["mxnet_version"][1] = version
        return read(made).attr_dict()

    assert states_of(903)["bn_moving_mean"] == {"__init__": '["zero", {}]'}
    assert states_of(904) == {}


def test_hidden_keys_move_to_the_variable_they_name_or_stay():
    made = document()
    made["nodes"][2]["attrs"].update(weight_lr_mult="3", mirror_stage="True", bias_wd_mult="4")
    made["nodes"][0]["attrs"] = {"weight_lr_mult": "5", "lr_mult": "6"}
    attrs = read(made).attr_dict()
    assert attrs["w"] == {"__lr_mult__": "3", "lr_mult": "3"}
    assert attrs["fc"]["__mirror_stage__"] == "True" and attrs["fc"]["bias_wd_mult"] == "4"
    assert attrs["x"]["weight_lr_mult"] == "5" and attrs["x"]["__lr_mult__"] == "6"


def test_a_newer_file_is_read_with_a_warning():
    with pytest.warns(UserWarning, match="MXNet 3.1.4"):
        read(document(version=30104))


def test_tuning_attributes_are_ignored_and_kept():
    made = document()
    made["nodes"][2]["attrs"].update(workspace="512", cudnn_tune="off", __mine__="x")
    assert json.loads(dumps(read(made))) == made


# -- damaged texts -------------------------------------------------------------------------------------------
def changed(path, value):
    """The small file with one place replaced."""
    made = document()
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize("made, text", [
    (3, "must be an object.*a number"), ([], "must be an object.*an array"), ({}, "'nodes' is missing"),
    ({"nodes": []}, "'heads' is missing"),
    (changed(["nodes"], {}), "nodes: it must be an array, got an object"),
    (changed(["heads"], []), "heads is empty"),
    (changed(["heads"], [[9, 0, 0]]), r"heads\[0\]: it reads node 9"),
    (changed(["heads"], [[2, 1, 0]]), r"heads\[0\]: it reads output 1 of node 2 \('fc'\), which has 1"),
    (changed(["heads", 0], "fc"), r"heads\[0\]: it must be \[node, output\]"),
    (changed(["nodes", 1], 7), "node 1: it must be an object, got a number"),
    (changed(["nodes", 1, "op"], None), "node 1: 'op' must be a text, got nothing"),
    (changed(["nodes", 1, "name"], 3), "node 1: 'name' must be a text"),
    (changed(["nodes", 2, "op"], "Unheard"), r"node 2 \('fc'\): there is no operator 'Unheard'"),
    (changed(["nodes", 2, "inputs", 0], [2, 0, 0]), r"node 2 \('fc'\) inputs\[0\]: it reads node 2.*cyclic"),
    (changed(["nodes", 2, "inputs", 0], [-1, 0, 0]), r"node 2 \('fc'\) inputs\[0\]: it must be"),
    (changed(["nodes", 2, "inputs", 0], [0, 0.5, 0]), r"inputs\[0\]: it must be"),
    (changed(["nodes", 2, "inputs", 0], [0]), r"inputs\[0\]: it must be"),
    (changed(["nodes", 2, "inputs"], 3), r"node 2 \('fc'\) inputs: it must be an array"),
    (changed(["nodes", 2, "inputs"], [[0, 0, 0]]), r"takes 2 inputs \(data, weight\), the node has 1"),
    (changed(["nodes", 0, "inputs"], [[0, 0, 0]]), r"node 0 \('x'\) inputs\[0\]: it reads node 0"),
    (changed(["nodes", 1, "inputs"], [[0, 0, 0]]), r"node 1 \('w'\): a variable"),
    (changed(["nodes", 2, "attrs"], ["no_bias"]), "attrs: it must be an object of texts"),
    (changed(["nodes", 2, "attrs", "num_hidden"], 2), "attrs: it must be an object of texts"),
    (changed(["nodes", 2, "attrs", "num_hidden"], "two"), r"node 2 \('fc'\): .* fc: .*num_hidden='two'"),
    (changed(["nodes", 2, "attrs", "num_hiden"], "2"), r"node 2 \('fc'\).*'num_hiden'.*num_hidden"),
    (changed(["nodes", 2, "control_deps"], [0]), "control_deps are not supported"),
    (changed(["arg_nodes"], [2]), "arg_nodes: 2 is not the number of a variable"),
    (changed(["arg_nodes"], ["x"]), "arg_nodes: 'x' is not"),
    (changed(["node_row_ptr"], [0, 1]), "node_row_ptr: it must be 4 ascending numbers"),
    (changed(["node_row_ptr", 2], 9), "node_row_ptr: it must be 4 ascending numbers"),
    (changed(["attrs"], []), "attrs: it must be an object"),
    (changed(["attrs", "mxnet_version"], "1.9"), "mxnet_version must be like"),
])
def test_a_damaged_file_is_one_clear_error_with_its_place(made, text):
    with pytest.raises(MXNetError, match="symbol JSON.*" + text):
        read(made)


def test_every_truncation_is_a_clear_error():
    text = dumps(sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc"))
    for length in range(0, len(text) - 1):
        with pytest.raises(MXNetError, match="symbol JSON, line"):
            loads(text[:length])


def places(value, path=()):
    """Paths to everything inside a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("junk", [None, True, -1, 2, 10**30, 0.5, "", "x", [], [0], [[0, 0, 0]], {},
                                  {"a": "b"}])
def test_junk_in_any_place_gives_a_symbol_or_one_clear_error(junk):
    refused = 0
    for path in places(document()):
        try:
            dumps(read(changed(path, junk)))
        except MXNetError as error:
            assert str(error).startswith("symbol JSON")
            refused += 1
    assert refused > 20


def test_a_number_too_long_for_python_is_a_clear_error():
    with pytest.raises(MXNetError, match="symbol JSON"):
        loads('{"nodes": ' + "9" * 5000 + "}")


def test_nesting_too_deep_for_json_is_a_clear_error():
    with pytest.raises(MXNetError, match="nests far deeper"):
        loads("[" * 100_000)


def test_errors_of_load_name_the_file(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(MXNetError, match=r"a\.json: symbol JSON, line 1"):
        sym.load(tmp_path / "a.json")
    with pytest.raises(MXNetError, match=r"b\.json is no symbol file: byte 0 is not UTF-8"):
        sym.load(tmp_path / "b.json")
    with pytest.raises(TypeError, match="takes a text, got dict"):
        sym.load_json({})


def test_save_and_load_keep_the_symbol(tmp_path):
    net = sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc")
    net.save(tmp_path / "net-symbol.json")
    assert (tmp_path / "net-symbol.json").read_bytes() == net.tojson().encode()
    assert sym.load(str(tmp_path / "net-symbol.json")).tojson() == net.tojson()
