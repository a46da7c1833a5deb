"""Encodings in the place of whole values: made where that frees bytes, with the bits of none."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.explain import explain
from minigraph.networks import load_network
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import run_passes
from minigraph.planning import plan, prepare
from tests.random_graphs import random_case, results

SMALL = {"data": (2, 4, 8, 8)}
DATA = mx.sym.Variable("data")
ENCODED = ("_positive_bits", "_within_bits", "_pooling_winners", "_pooling_with_winners")


def conv(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=4, name=name)


def relu(data: mx.sym.Symbol, **options: Any) -> mx.sym.Symbol:
    return mx.sym.Activation(data, act_type="relu", **options)


def pool(data: mx.sym.Symbol) -> mx.sym.Symbol:
    return mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")


def loss(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    return mx.sym.MakeLoss(mx.sym.sum(symbol), name="loss")


def compiled(symbol: mx.sym.Symbol, program: str = "train", **options: Any) -> Compilation:
    prepared = prepare(symbol, SMALL, program=program, **options)
    return run_passes(prepared.graph, prepared.request, prepared.layout)


def ops(state: Compilation) -> list[str]:
    return [op for op in state.plan.instructions.op if op]


def encoders(symbol: mx.sym.Symbol, **options: Any) -> list[str]:
    return [op for op in ops(compiled(symbol, **options)) if op in ENCODED]


def head() -> mx.sym.Symbol:
    return relu(conv(DATA, "c0"), name="relu0")


def test_relu_before_what_does_not_need_its_output_keeps_bits():
    averages = mx.sym.Pooling(head(), global_pool=True, pool_type="avg", kernel=(1, 1))
    assert encoders(loss(averages)) == ["_positive_bits"]
    assert encoders(loss(mx.sym.Concat(head(), DATA, dim=1))) == ["_positive_bits"]
    assert encoders(loss(mx.sym.LeakyReLU(conv(DATA, "c"), slope=0.1))) == ["_positive_bits"]


def test_relu_and_a_maximum_keep_bits_and_winners():
    found = ops(compiled(loss(pool(head()))))
    assert [op for op in found if op in ENCODED] == ["_positive_bits", "_pooling_with_winners"]
    assert "_relu_backward_bits" in found and "_pooling_by_winners" in found
    assert "_activation_backward" not in found and "_pooling_backward" not in found


def test_a_bounded_activation_keeps_bits_of_its_input_where_nobody_needs_that():
    body = mx.sym.clip(mx.sym.BatchNorm(conv(DATA, "c0"), name="bn"), a_min=0, a_max=6)
    assert encoders(loss(conv(body, "c1"))) == ["_within_bits"]


def test_an_output_that_is_kept_anyway_serves():
    assert encoders(loss(conv(head(), "c1"))) == []
    assert encoders(loss(mx.sym.Group([conv(head(), "c1"), pool(head())])[0])) == []


def test_values_that_are_read_through_a_view_or_are_outputs_stay(monkeypatch):
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")     # blocks would be converted, not viewed
    assert encoders(loss(mx.sym.FullyConnected(mx.sym.Flatten(head()), num_hidden=3, name="fc"))) == []
    body = head()
    assert encoders(mx.sym.Group([body, loss(mx.sym.Concat(body, body, dim=1))])) == []


def test_two_readers_of_one_encoding_share_it():
    data = head()
    values = [mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{k}") for k in range(2)]
    found = encoders(loss(values[0] * 2.0 + values[1]), fuse=False)
    assert found.count("_positive_bits") == 1 and found.count("_pooling_winners") == 2


def test_a_chain_in_backward_reads_bits():
    data = head()
    skip = mx.sym.Concat(data, DATA, dim=1)
    found = compiled(loss(mx.sym.sum(skip) + mx.sym.sum(pool(data))))
    code = found.plan.instructions
    programs = [code.params[i].program for i in range(len(found.plan)) if code.op[i] == "_elementwise"]
    assert len(programs) == 1 and "_relu_backward_bits" in programs[0]
    assert "_positive_bits" in ops(found)


def test_encodings_can_be_switched_off_and_evaluation_has_none():
    symbol = loss(pool(head()))
    assert encoders(symbol, encode=False) == [] and encoders(symbol, program="eval") == []
    executors = [symbol.simple_bind(mx.cpu(), encode=encode, **SMALL) for encode in (False, True)]
    for executor in executors:
        executor.forward(is_train=True)
    apart, encoded = (executor.program("train").plan for executor in executors)
    assert not {*ENCODED} & {*apart.instructions.op} and "_pooling_with_winners" in encoded.instructions.op
    assert apart.fingerprint != encoded.fingerprint


def test_a_device_without_the_form_keeps_values():
    prepared = prepare(loss(pool(head())), SMALL, program="train")
    request = replace(prepared.request, fuses=lambda before, name, params: name not in ENCODED)
    assert not set(ops(run_passes(prepared.graph, request, prepared.layout))) & {*ENCODED}


def test_a_maximum_makes_its_winners_in_the_same_pass_unless_somebody_wants_them_apart():
    symbol = loss(pool(head()))
    assert "Pooling" not in ops(compiled(symbol)) and "_pooling_winners" not in ops(compiled(symbol))
    assert {"Pooling", "_pooling_winners"} <= {*ops(compiled(symbol, fuse=False))}
    prepared = prepare(symbol, SMALL, program="train")
    request = replace(prepared.request, fuses=lambda before, name, params: name != "_pooling_with_winners")
    assert {"Pooling", "_pooling_winners"} <= {*ops(run_passes(prepared.graph, request, prepared.layout))}


def test_under_a_policy_a_maximum_and_its_winners_leave_and_come_back_each_by_itself():
    found = {*ops(compiled(loss(pool(head())), memory="auto", budget="1GiB"))}
    assert {"Pooling", "_pooling_winners"} <= found and "_pooling_with_winners" not in found


def test_a_maximum_that_is_dropped_is_made_again_and_its_winners_are_those_of_plain():
    body = DATA
    for k in range(4):
        body = mx.sym.Pooling(relu(conv(body, f"c{k}")), kernel=(2, 2), stride=(1, 1), pad=(1, 1), pool_type="max")
    symbol, found, again = loss(body), [], []
    for memory in ("plain", "sublinear"):
        rng = np.random.default_rng(2)
        executor = symbol.simple_bind(mx.cpu(), memory=memory, poison=True, **SMALL)
        for array in executor.arg_dict.values():
            array[:] = rng.standard_normal(array.shape)
        executor.forward(is_train=True)
        executor.backward()
        found.append([g.asnumpy().tobytes() for g in executor.grad_arrays])
        again.append(executor.program("train").plan.instructions.op)
    assert found[0] == found[1] and again[0].count("_pooling_with_winners") == 4
    assert again[1].count("Pooling") > 4 == again[1].count("_pooling_by_winners")


def test_explain_shows_what_is_encoded_and_a_saved_symbol_does_not():
    symbol = loss(pool(head()))
    section, = (s for s in explain(prepare(symbol, SMALL, program="train")) if s.startswith("== encode"))
    assert "_positive_bits" in section and "_pooling_by_winners" in section
    assert "bits" not in symbol.tojson() and "winners" not in symbol.tojson()


def test_slices_have_encodings_of_their_own():
    state = compiled(loss(pool(head())), slices=2)
    names = [name for op, name in zip(state.plan.instructions.op, state.plan.instructions.name, strict=True)
             if op in ENCODED]
    assert len(names) == 4


def test_rows_that_end_within_a_byte_are_encoded_only_where_nothing_is_sliced():
    body = loss(mx.sym.Concat(relu(DATA * 2.0), mx.sym.Variable("more")))
    found = []
    for options in ({}, {"slices": 2}, {"memory": "auto"}):
        prepared = prepare(body, {"data": (4, 3), "more": (4, 5)}, program="train", inputs=(), fuse=False, **options)
        state = run_passes(prepared.graph, prepared.request, prepared.layout)
        found.append("_positive_bits" in ops(state))
    assert found == [True, False, False]


@pytest.mark.parametrize("kernels", ("numpy", "auto"))
@pytest.mark.parametrize("seed", range(1200, 1215))
def test_encoded_graphs_have_the_bits_of_others_and_poison_shows_nowhere(seed, kernels, monkeypatch):
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", kernels)
    case = random_case(seed)

    def run(encode: bool) -> dict[str, bytes]:
        executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, encode=encode, poison=True, **case.shapes)
        return results(case, executor, seed)
    whole, encoded = run(False), run(True)
    assert [name for name in whole if encoded[name] != whole[name]] == []


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1.0, 2.0], np.float32)


@pytest.mark.parametrize("kernels", ("numpy", "auto"))
@pytest.mark.parametrize("shape", ((2, 3, 6, 6), (1, 17, 4, 4), (3, 1, 5, 7), (0, 4, 4, 4)), ids=str)
def test_special_values_give_the_bits_of_whole_values(shape, kernels, monkeypatch):
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", kernels)
    rng = np.random.default_rng(5)
    body = relu(DATA * 1.0)
    symbol = mx.sym.Group([mx.sym.Concat(mx.sym.Pooling(body, kernel=(2, 2), stride=(2, 2), pool_type="max"),
                                         mx.sym.clip(mx.sym.Variable("other") * 1.0, a_min=0, a_max=6), dim=1)])
    other = (*shape[:2], shape[2] // 2, shape[3] // 2)
    values = {"data": rng.choice(SPECIAL, shape), "other": rng.choice(SPECIAL, other)}
    found = {}
    for encode in (False, True):
        executor = symbol.simple_bind(mx.cpu(), encode=encode, poison=True, data=shape, other=other)
        for name, value in values.items():
            executor.arg_dict[name][:] = value
        with np.errstate(all="ignore"):
            out = executor.forward(is_train=True)[0]
            executor.backward([mx.nd.array(rng.__class__(np.random.PCG64(7)).standard_normal(out.shape))])
        found[encode] = [g.asnumpy().tobytes() for g in executor.grad_arrays]
        assert ("_pooling_with_winners" in executor.program("train").plan.instructions.op) == (encode and shape[0] > 0)
    assert found[True] == found[False]


NETWORKS = [("zoo.vgg", {"depth": 11, "num_classes": 10}, (2, 3, 32, 32)),
            ("zoo.squeezenet", {"num_classes": 10}, (2, 3, 64, 64)),
            ("zoo.mobilenet", {"version": 2, "num_classes": 10}, (2, 3, 32, 32))]


@pytest.mark.parametrize("network, settings, shape", NETWORKS, ids=[name for name, *_ in NETWORKS])
def test_networks_take_fewer_bytes(network, settings, shape):
    shapes = {"data": shape}
    symbol = load_network(network, settings, shapes)
    whole, encoded = (plan(symbol, shapes, "sgd", "step", encode=e).arenas[1].bytes for e in (False, True))
    assert encoded < whole


@pytest.mark.parametrize("options", ({}, {"memory": "sublinear"}, {"memory": "auto", "slices": 2},
                                     {"memory": "vdnn_all", "host_budget": "1GiB"}), ids=str)
def test_three_steps_train_to_the_same_bits(options):
    body = mx.sym.Concat(pool(head()), mx.sym.clip(mx.sym.BatchNorm(mx.sym.Convolution(
        DATA, kernel=(2, 2), stride=(2, 2), num_filter=3, name="c1"), name="bn"), a_min=0, a_max=6),
        dim=1)
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=5, name="fc"), name="softmax")
    images = np.random.default_rng(1).standard_normal((6, 4, 8, 8)).astype(np.float32)
    found = {}
    for encode in (False, True):
        mx.random.seed(4)
        module = mx.mod.Module(symbol, encode=encode, poison=True, **(options if encode else {}))
        module.fit(mx.io.NDArrayIter(images, np.arange(6) % 5, batch_size=2), num_epoch=1, optimizer="sgd",
                   initializer=mx.init.Xavier())
        found[encode] = {name: a.asnumpy().tobytes() for part in module.get_params() for name, a in part.items()}
    assert found[True] == found[False]
