"""Fusion: what goes together, with the bits of operators apart, in no more bytes."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.explain import explain
from minigraph.graph import Graph, GraphBuilder
from minigraph.graph.reorder import Member, assemble
from minigraph.networks import load_network
from minigraph.ops.chain import steps_of
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import run_passes
from minigraph.planning import plan, prepare
from tests.random_graphs import random_case, results

SMALL = {"data": (2, 4, 6, 6)}


@pytest.fixture(autouse=True)
def numpy_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal bits are what NumPy promises."""
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")


def var(name: str) -> mx.sym.Symbol:
    return mx.sym.Variable(name)


def norm(data: mx.sym.Symbol, name: str, **params: Any) -> mx.sym.Symbol:
    return mx.sym.BatchNorm(data, fix_gamma=False, name=name, **params)


def relu(data: mx.sym.Symbol, name: str = "relu") -> mx.sym.Symbol:
    return mx.sym.Activation(data, act_type="relu", name=name)


def conv(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True, name=name)


def compiled(symbol: mx.sym.Symbol, program: str = "train", shapes: Any = None, **options: Any) -> Compilation:
    prepared = prepare(symbol, shapes or SMALL, program=program, **options)
    return run_passes(prepared.graph, prepared.request, prepared.layout)


def ops(state: Compilation) -> list[str]:
    """The ops that run, in order."""
    return [op for op in state.plan.instructions.op if op]


def params_of(state: Compilation, name: str) -> Any:
    code = state.plan.instructions
    found, = (code.params[i] for i in range(len(state.plan)) if code.op[i] == name)
    return found


def loss(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    return mx.sym.MakeLoss(mx.sym.sum(symbol), name="loss")


def test_a_normalisation_takes_the_activation_behind_it():
    state = compiled(loss(relu(norm(conv(var("data"), "c"), "bn"))))
    assert params_of(state, "_batchnorm_train").act_type == "relu"
    assert "Activation" not in ops(state) and "_activation_backward" not in ops(state)
    assert "bn/batchnorm_train+relu" in state.plan.instructions.name


@pytest.mark.parametrize("swapped", [False, True])
def test_a_normalisation_takes_an_addition_and_the_activation_behind_it(swapped):
    data = conv(var("data"), "c")
    body = norm(conv(data, "c2"), "bn")
    total = data + body if swapped else body + data
    state = compiled(loss(relu(total)))
    found = params_of(state, "_batchnorm_train")
    assert found.act_type == "relu" and found.addend
    assert "elemwise_add" not in ops(state)


def test_of_two_normalisations_the_later_takes_the_sum():
    data = var("data")
    total = norm(conv(data, "c1"), "bn1") + norm(conv(data, "c2"), "bn2")
    state = compiled(loss(total))
    code = state.plan.instructions
    taken = {code.name[i]: code.params[i].addend for i in range(len(state.plan)) if code.op[i] == "_batchnorm_train"}
    assert list(taken.values()) == [False, True] and "bn2" in list(taken)[1]


def test_an_output_that_others_read_stays_apart():
    body = norm(conv(var("data"), "c"), "bn")
    state = compiled(mx.sym.Group([loss(relu(body)), mx.sym.BlockGrad(body)]))
    assert params_of(state, "_batchnorm_train").act_type is None
    both = compiled(loss(relu(body) + body))
    assert params_of(both, "_batchnorm_train").act_type is None


def test_a_program_output_stays_apart():
    body = norm(conv(var("data"), "c"), "bn")
    state = compiled(mx.sym.Group([body, loss(relu(body))]))
    assert params_of(state, "_batchnorm_train").act_type is None


def test_evaluation_is_fused_too():
    state = compiled(relu(norm(conv(var("data"), "c"), "bn")), "eval")
    assert params_of(state, "_batchnorm_inference").act_type == "relu"


def test_an_activation_that_needs_scratch_stays_apart():
    state = compiled(loss(mx.sym.Activation(norm(var("data"), "bn"), act_type="softrelu")))
    assert params_of(state, "_batchnorm_train").act_type is None


def test_a_data_gradient_is_added_to_the_one_that_is_there():
    data = relu(conv(var("data"), "c0"))
    state = compiled(loss(conv(data, "c1") + data))
    code = state.plan.instructions
    added = [code.params[i].addend for i in range(len(state.plan)) if code.op[i] == "_convolution_backward_data"]
    assert added == [True] and "_accumulate" not in ops(state)


def test_gradients_of_a_weight_that_is_used_at_every_step_are_added_where_they_are_computed():
    weight, bias, state = var("w"), var("b"), var("data")
    for t in range(4):
        state = mx.sym.FullyConnected(state, weight, bias, num_hidden=5, name=f"t{t}")
    found = compiled(loss(state), shapes={"data": (3, 5)})
    code = found.plan.instructions
    for kind in ("weight", "bias"):
        added = [code.params[i].addend for i in range(len(found.plan))
                 if code.op[i] == f"_fully_connected_backward_{kind}"]
        assert added == [False, True, True, True]
    assert "_accumulate" not in ops(found)


def test_the_gradient_of_a_tied_weight_does_not_keep_what_it_reads_until_the_other_one_is_there():
    """An embedding that is read again as the output's weight: its gradient there is made where the wide one dies."""
    words, weight = 400, var("embedding")
    hidden = mx.sym.Embedding(var("data"), weight, input_dim=words, output_dim=4, name="embed")
    for k in range(3):
        hidden = mx.sym.FullyConnected(hidden, num_hidden=4, flatten=False, name=f"fc{k}")
    logits = mx.sym.FullyConnected(hidden, weight, num_hidden=words, flatten=False, no_bias=True, name="tied")
    apart, fused = (compiled(loss(mx.sym.tanh(logits)), shapes={"data": (8, 5)}, fuse=f) for f in (False, True))
    code = fused.plan.instructions
    assert not any(code.params[i].addend for i in range(len(fused.plan))
                   if code.op[i] == "_fully_connected_backward_weight")
    assert fused.transient_bytes <= apart.transient_bytes


def test_a_data_gradient_waits_for_a_larger_one_with_the_small_one_that_it_reads():
    """Of its data it wants the shape alone, so that keeps nothing."""
    data = relu(norm(conv(var("data"), "c0"), "bn"))
    half = mx.sym.Convolution(data, kernel=(1, 1), stride=(2, 2), num_filter=2, no_bias=True, name="half")
    pooled = mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max")
    apart, fused = (compiled(loss(mx.sym.Concat(pooled, half)), fuse=f) for f in (False, True))
    code = fused.plan.instructions
    added = [code.params[i].addend for i in range(len(fused.plan)) if code.op[i] == "_convolution_backward_data"]
    assert added == [True] and fused.transient_bytes <= apart.transient_bytes


def test_fusion_can_be_switched_off():
    symbol = loss(relu(norm(conv(var("data"), "c"), "bn")))
    assert "Activation" in ops(compiled(symbol, fuse=False))
    executor = symbol.simple_bind(mx.cpu(), fuse=False, **SMALL)
    assert "Activation" in executor.plan.instructions.op
    assert executor.plan.fingerprint != symbol.simple_bind(mx.cpu(), **SMALL).plan.fingerprint


def test_a_device_may_refuse_a_form():
    prepared = prepare(loss(relu(norm(conv(var("data"), "c"), "bn"))), SMALL, program="train")
    request = replace(prepared.request,
                      fuses=lambda before, name, params: getattr(params, "act_type", None) != "relu")
    assert "Activation" in ops(run_passes(prepared.graph, request, prepared.layout))


def test_explain_shows_what_was_fused():
    prepared = prepare(relu(norm(var("data"), "bn")), SMALL, program="eval")
    text = "".join(section for section in explain(prepared) if section.startswith("== fuse "))
    assert "act_type='relu'" in text and "bn+relu" in text


@pytest.mark.parametrize("seed", range(900, 930))
def test_fused_graphs_have_the_bits_of_unfused_ones_and_poison_shows_nowhere(seed):
    case = random_case(seed)

    def run(fuse: bool) -> dict[str, bytes]:
        executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, fuse=fuse, poison=fuse, **case.shapes)
        return results(case, executor, seed)
    apart, fused = run(False), run(True)
    assert [name for name in apart if fused[name] != apart[name]] == []


@pytest.mark.parametrize("network, settings", [("zoo.resnet", {"depth": 20, "version": 1}),
                                               ("zoo.resnet", {"depth": 20, "version": 2})])
def test_a_residual_network_trains_to_the_same_bits_in_fewer_nodes_and_bytes(network, settings):
    shapes = {"data": (4, 3, 16, 16)}
    symbol = load_network(network, {"num_classes": 10, **settings}, shapes)
    images = np.random.default_rng(1).standard_normal((8, 3, 16, 16)).astype(np.float32)
    found = {}
    for fuse in (False, True):
        mx.random.seed(4)
        module = mx.mod.Module(symbol, fuse=fuse, poison=True)
        module.fit(mx.io.NDArrayIter(images, np.arange(8) % 10, batch_size=4), num_epoch=1, optimizer="sgd",
                   initializer=mx.init.Xavier())
        found[fuse] = {name: a.asnumpy().tobytes() for part in module.get_params() for name, a in part.items()}
    assert found[True] == found[False]
    apart, fused = (plan(symbol, shapes, "sgd", "step", fuse=f) for f in (False, True))
    assert len(fused) < len(apart) and fused.planned_bytes < apart.planned_bytes


def as_members(graph: Graph) -> list[Member | None]:
    return [Member(graph.op[i], graph.params[i], graph.name[i], graph.inputs[i], tuple(graph.entries(i)))
            for i in range(len(graph))]


def test_a_delayed_reader_still_comes_before_a_change_of_what_it_reads():
    b = GraphBuilder(Graph())
    old, data = (b.variable(name, (3,), np.float32, "parameter") for name in ("old", "data"))
    b.scope = "reader"
    late, = b.node("elemwise_add", (old, data))
    b.scope = "other"
    other, = b.node("negative", (data,))
    b.scope = "change"
    b.node("_assign", (old, data))
    graph = b.graph
    assert assemble(graph, as_members(graph)).name == graph.name
    members = as_members(graph)
    reader = graph.node_of[late]
    members[reader] = replace(members[reader], inputs=(old, other))
    assert [n.split("/")[0] for n in assemble(graph, members).name] == ["old", "data", "other", "reader", "change"]


def test_nodes_that_read_in_a_circle_are_refused_by_name():
    b = GraphBuilder(Graph())
    first, = b.node("negative", (b.variable("x", (3,), np.float32, "parameter"),))
    second, = b.node("negative", (first,))
    members = as_members(b.graph)
    members[1] = replace(members[1], inputs=(second,))
    with pytest.raises(MXNetError, match="negative and 1 other nodes wait for each other"):
        assemble(b.graph, members)


def test_a_recomputed_normalisation_reads_the_statistics_of_the_first_one():
    body = var("data")
    for k in range(6):
        body = relu(norm(conv(body, f"c{k}"), f"bn{k}"), f"relu{k}")
    code = compiled(loss(body), memory="sublinear").plan.instructions
    again = [code.op[i] for i, name in enumerate(code.name) if "bn" in name and "/again" in name]
    assert again and set(again) == {"_batchnorm_apply"}
    whole = compiled(loss(body), memory="sublinear", fuse=False).plan.instructions
    again = [whole.op[i] for i, name in enumerate(whole.name) if "batchnorm_train/again" in name]
    assert again and set(again) == {"_batchnorm_apply"}


def chains_of(state: Compilation) -> list[list[str]]:
    """The ops of each chain that runs."""
    code = state.plan.instructions
    return [[step.op.name for step in steps_of(code.params[i].program)]
            for i in range(len(state.plan)) if code.op[i] == "_elementwise"]


def test_elementwise_ops_in_a_row_become_one_op():
    a, b, c = var("data"), var("b"), var("c")
    symbol = mx.sym.sqrt(a * b + c) * 0.5
    state = compiled(symbol, "eval", {"data": (40, 500)})
    assert ops(state) == ["_elementwise"] and len(state.plan.instructions.reads[0]) == 3
    assert chains_of(state) == [["elemwise_mul", "elemwise_add", "sqrt", "_mul_scalar"]]


def test_what_backward_reads_is_not_joined():
    symbol = mx.sym.MakeLoss(mx.sym.sum(mx.sym.negative(mx.sym.exp(mx.sym.tanh(var("data") * 2.0)))))
    forward, backward = chains_of(compiled(symbol, "train", {"data": (4, 5)}, inputs=[]))
    assert forward == ["_mul_scalar", "tanh"]       # its output and exp's are read again
    assert backward == ["negative", "elemwise_mul", "_activation_backward", "_mul_scalar"]


def test_a_chain_does_not_wait_for_an_operand_while_two_of_its_own_are_held():
    """(a + b) is smaller than a and b, so it is not put off until c is there."""
    pool = mx.sym.Pooling(var("data"), kernel=(3, 3), pad=(1, 1), pool_type="max")
    a, b = mx.sym.Pooling(pool, kernel=(3, 3), pad=(1, 1), pool_type="avg"), mx.sym.sort(pool)
    total = (a + b) + mx.sym.sort(mx.sym.transpose(pool, axes=(0, 1, 3, 2)))
    apart, fused = (compiled(total, "eval", fuse=f) for f in (False, True))
    assert fused.transient_bytes <= apart.transient_bytes


@pytest.mark.parametrize("size", [1, 100, 8192, 8193, 40000])
def test_a_chain_has_the_bits_of_its_ops_alone_at_any_size(size):
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    symbol = mx.sym.softsign(mx.sym.tanh(a * b) / (mx.sym.sigmoid(a) + 2.0)) - mx.sym.square(b)
    found = {}
    for fuse in (False, True):
        executor = symbol.simple_bind(mx.cpu(), grad_req="write", fuse=fuse, poison=True, a=(size,), b=(size,))
        rng = np.random.default_rng(2)
        for array in executor.arg_arrays:
            array[:] = rng.standard_normal(size)
        outs = [executor.forward(is_train=True)[0].asnumpy()]
        executor.backward(np.ones(size, np.float32))
        found[fuse] = [a.tobytes() for a in (*outs, *(g.asnumpy() for g in executor.grad_arrays))]
        found[fuse].append(executor.forward()[0].asnumpy().tobytes())
    assert found[True] == found[False]


@pytest.mark.parametrize("layer, fused", [
    (lambda x: conv(x, "layer"), "_convolution_activated"),
    (lambda x: mx.sym.FullyConnected(x, num_hidden=3, name="layer"), "_fully_connected_activated")])
def test_a_layer_of_weights_takes_the_activation_behind_it(layer, fused):
    state = compiled(loss(relu(layer(var("data")))), encode=False)
    assert params_of(state, fused).act_type == "relu" and "Activation" not in ops(state)
    assert "_activation_backward" in ops(state)
