"""What recomputation got wrong elsewhere: masks drawn anew, statistics moved twice, nothing saved, budgets as hints."""
from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

import minigraph as mx
import zoo
from minigraph.base import OutOfMemoryError, align
from minigraph.executor import Executor
from minigraph.optimizer import SGD
from minigraph.plan.plan import AGAIN, Plan
from minigraph.plan.report import report
from minigraph.planning import plan
from tests.memory.test_policies import chain, convolutional

from .schedules import all_recomputed, in_stretches, made_for_each_reader

FORCED = [all_recomputed, made_for_each_reader]
forms = pytest.mark.parametrize("form", FORCED, ids=lambda make: make.__name__)


def repeated(found: Plan, op: str) -> int:
    """How often the plan runs an operator again."""
    code = found.instructions
    return sum(AGAIN in name and each == op for name, each in zip(code.name, code.op, strict=True))


def bind(symbol: mx.sym.Symbol, memory: str, requests: Any = "write", **shapes: tuple[int, ...]) -> Executor:
    return symbol.simple_bind(mx.cpu(), requests, memory=memory, poison=True, **shapes)


def fill(executor: Executor) -> None:
    """The same parameters for every executor of a symbol."""
    for k, (name, array) in enumerate(sorted(executor.arg_dict.items())):
        rng = np.random.default_rng(k)
        array[:] = rng.integers(0, 5, array.shape) if "label" in name else rng.uniform(-0.5, 0.5, array.shape)


def gradients(executor: Executor) -> dict[str, np.ndarray]:
    """Gradients of one training step by argument."""
    mx.random.seed(5)
    executor.forward(is_train=True)
    executor.backward()
    return {name: g.asnumpy() for name, g in executor.grad_dict.items() if g is not None}


# -- dropout -------------------------------------------------------------------------------------------------
def squared_dropout(layers: int = 1, p: float = 0.5) -> mx.sym.Symbol:
    """Half the sum of squares of x after dropout, and a copy of what is squared."""
    y = mx.sym.Variable("x")
    for k in range(layers):
        y = mx.sym.Dropout(y, p=p, name=f"drop{k}")
    return mx.sym.Group([mx.sym.MakeLoss(mx.sym.sum(y * y) * 0.5), mx.sym.BlockGrad(y * 1, name="shown")])


def dropped_out(memory: str, layers: int = 1, p: float = 0.5, steps: int = 2) -> tuple[Executor, list, list]:
    """Ones through dropout; values and gradients of some steps."""
    mx.random.seed(3)
    executor = bind(squared_dropout(layers, p), memory, x=(4096,))
    executor.arg_dict["x"][:] = 1
    values, slopes = [], []
    for _ in range(steps):
        values.append(executor.forward(is_train=True)[1].asnumpy())
        executor.backward()
        slopes.append(executor.grad_dict["x"].asnumpy())
    return executor, values, slopes


@forms
@pytest.mark.parametrize("layers", [1, 2])
def test_a_recomputed_dropout_draws_the_mask_of_its_forward(layers, form, force):
    force(form)
    executor, values, slopes = dropped_out("forced", layers)
    assert repeated(executor.plan, "_dropout") >= layers
    for y, dx in zip(values, slopes, strict=True):
        assert set(y.tolist()) == {0, 2 ** layers}
        np.testing.assert_array_equal(dx, 2 ** layers * y)
    assert (values[0] != values[1]).any(), "each step has a mask of its own"
    _, plain, _ = dropped_out("plain", layers)
    assert all(np.array_equal(a, b) for a, b in zip(plain, values, strict=True)), "the mask is that of every mode"


def test_a_stretch_recomputed_twice_has_the_same_mask_each_time(force):
    force(made_for_each_reader)
    net = mx.sym.Dropout(mx.sym.Variable("x"), p=0.5)
    net = mx.sym.tanh(net) * mx.sym.sigmoid(net) * net
    results = []
    for memory in ("plain", "forced"):
        executor = bind(mx.sym.MakeLoss(mx.sym.sum(net)), memory, x=(512,))
        fill(executor)
        results.append(gradients(executor)["x"])
    assert repeated(executor.plan, "_dropout") >= 2
    assert np.array_equal(*results) and (results[0] == 0).any() and (results[0] != 0).any()


@forms
def test_without_chance_and_in_evaluation_dropout_is_the_identity_when_recomputed(form, force):
    force(form)
    _, (y, _), (dx, _) = dropped_out("forced", p=0.0)
    assert set(y.tolist()) == {1} and set(dx.tolist()) == {1}
    executor = bind(squared_dropout(), "forced", x=(64,))
    executor.arg_dict["x"][:] = 1
    assert set(executor.forward(is_train=False)[1].asnumpy().tolist()) == {1}


# -- moving statistics ---------------------------------------------------------------------------------------
def normalised(memory: str) -> Executor:
    """1, 2, 3, 4 through BatchNorm with momentum 0.9, over a moving mean of 0 and variance of 1."""
    net = mx.sym.BatchNorm(mx.sym.Variable("x"), momentum=0.9, fix_gamma=False, name="bn")
    executor = bind(mx.sym.MakeLoss(mx.sym.sum(mx.sym.tanh(net * net))), memory, x=(4, 1, 1, 1))
    executor.arg_dict["x"][:] = np.arange(1, 5).reshape(4, 1, 1, 1)
    executor.arg_dict["bn_gamma"][:] = 1
    executor.aux_dict["bn_moving_var"][:] = 1
    return executor


def moving(executor: Executor) -> list[float]:
    return [executor.aux_dict[f"bn_moving_{what}"].asscalar() for what in ("mean", "var")]


@forms
def test_moving_statistics_move_once_a_step_by_the_biased_variance_when_batchnorm_is_recomputed(form, force):
    force(form)
    executor = normalised("forced")
    executor.forward(is_train=False)
    assert moving(executor) == [0, 1]
    executor.forward(is_train=True)
    np.testing.assert_allclose(moving(executor), [0.25, 1.025], rtol=1e-6)
    after_forward = moving(executor)
    executor.backward()
    assert any(AGAIN in name and "bn" in name for name in executor.plan.instructions.name)
    assert moving(executor) == after_forward
    plain = normalised("plain")
    plain.forward(is_train=True)
    plain.backward()
    assert moving(plain) == after_forward
    for name, gradient in plain.grad_dict.items():
        assert np.array_equal(gradient.asnumpy(), executor.grad_dict[name].asnumpy())


# -- when it pays --------------------------------------------------------------------------------------------
def layer(name: str) -> int:
    return int(re.search(r"(?:fc|tanh)(\d+)", name)[1])


def test_a_stretch_is_made_again_when_its_turn_comes_and_not_before():
    found = plan(chain(64), {"data": (512, 512)}, "sgd", "step", "sublinear")
    code, stretches = found.instructions, list[list[int]]()
    for i, name in enumerate(code.name):
        if AGAIN in name:
            if not stretches or stretches[-1][-1] != i - 1:
                stretches.append([])
            stretches[-1].append(i)
    assert len(stretches) >= 6
    backward = {i: layer(name) for i, name in enumerate(code.name)
                if re.match(r"(fc|tanh)\d+/\w*backward", name)}
    assert stretches[0][0] > max(i for i, op in enumerate(code.op) if op == "MakeLoss")
    for stretch in stretches:
        top = max(layer(code.name[i]) for i in stretch)
        waiting = [code.name[i] for i, number in backward.items() if i > stretch[0] and number > top + 1]
        assert not waiting, f"layers up to {top} are made again before the backward part of {waiting}"


@pytest.mark.parametrize("memory", ["sublinear", "auto"])
def test_layers_whose_inputs_are_larger_than_their_outputs_are_not_recomputed_at_a_loss(memory):
    net = mx.sym.Variable("data")
    for k in range(4):
        net = mx.sym.Convolution(net, kernel=(1, 1), num_filter=4 if k % 2 == 0 else 256, name=f"conv{k}")
    symbol = mx.sym.MakeLoss(mx.sym.mean(mx.sym.Convolution(net, kernel=(1, 1), num_filter=4)))
    plans = {m: plan(symbol, {"data": (4, 256, 8, 8)}, "sgd", "step", m) for m in ("plain", memory)}
    assert plans[memory].planned_bytes <= plans["plain"].planned_bytes


def test_where_recomputation_saves_nothing_the_plan_is_the_plain_one_and_its_report_says_so():
    symbol = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4))
    plans = [plan(symbol, {"data": (8, 64)}, "sgd", "step", memory) for memory in ("plain", "sublinear")]
    assert vars(plans[0].instructions) == vars(plans[1].instructions)
    figures = report(plans[1])
    assert (figures.recomputed, figures.recompute_flops, figures.swapped_bytes, figures.techniques) == (0, 0, 0, None)


# -- segments ------------------------------------------------------------------------------------------------
@forms
def test_weights_of_a_first_stretch_learn_although_the_data_wants_no_gradient(form, force):
    force(form)
    net = mx.sym.Variable("data")
    for k in range(2):
        net = mx.sym.Convolution(net, kernel=(1,), num_filter=3, name=f"conv{k}")
    symbol = mx.sym.MakeLoss(mx.sym.sum(mx.sym.FullyConnected(net, num_hidden=2, name="fc") * 2))
    requests = {name: "null" if name == "data" else "write" for name in symbol.list_arguments()}
    found = {}
    for memory in ("plain", "forced"):
        executor = bind(symbol, memory, requests, data=(2, 1, 1))
        fill(executor)
        found[memory] = gradients(executor)
    assert repeated(executor.plan, "Convolution") >= 2
    assert set(found["plain"]) == {f"{n}_{kind}" for n in ("conv0", "conv1", "fc") for kind in ("weight", "bias")}
    for name, gradient in found["plain"].items():
        assert gradient.any() and np.array_equal(gradient, found["forced"][name]), name
    code = executor.plan.instructions
    assert [name for name, op in zip(code.name, code.op, strict=True) if op == "_convolution_backward_data"] == [
        "conv1/convolution_backward_data"]
    assert not any("data_grad" in name and "conv0" in name for name in executor.plan.buffers.name)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 15, 16, 17, 31])
def test_any_number_of_stretches_gives_the_gradients_of_plain(length, force):
    symbol = chain(length, width=8)
    reference = bind(symbol, "plain", data=(4, 8))
    fill(reference)
    expected = gradients(reference)
    for count in sorted({1, 2, length // 2 + 1, length, length + 1}):
        force(in_stretches(count))
        executor = bind(symbol, "forced", data=(4, 8))
        fill(executor)
        found = gradients(executor)
        assert all(np.array_equal(expected[name], found[name]) for name in expected), count


@pytest.mark.parametrize("depth", [20, 32, 56, 110])
def test_residual_networks_of_all_depths_need_less_and_no_depth_jumps(depth):
    peaks = []
    for blocks in (depth, depth + 6):
        symbol = zoo.get("resnet")(num_classes=10, depth=blocks, image_shape=(3, 32, 32))
        plain, lean = (plan(symbol, {"data": (4, 3, 32, 32)}, "sgd", "step", m) for m in ("plain", "sublinear"))
        peaks.append(lean.arenas[1].bytes)
        assert lean.arenas[1].bytes <= 0.65 * plain.arenas[1].bytes
    assert abs(peaks[1] - peaks[0]) <= 0.25 * peaks[0]


@pytest.mark.parametrize("blocks", [3, 4, 5, 9])
@pytest.mark.parametrize("memory", ["sublinear", "auto"])
def test_blocks_left_over_at_the_end_give_the_gradients_of_plain(memory, blocks):
    found = {}
    for each in ("plain", memory):
        budget = None
        if each == "auto":
            with pytest.raises(OutOfMemoryError) as refused:
                convolutional(blocks).simple_bind(mx.cpu(), budget=1, data=(2, 3, 8, 8)).program("train")
            budget = refused.value.asked_bytes
        executor = convolutional(blocks).simple_bind(mx.cpu(), memory=each, budget=budget, poison=True,
                                                     data=(2, 3, 8, 8))
        fill(executor)
        found[each] = gradients(executor)
    assert repeated(executor.plan, "Convolution") + repeated(executor.plan, "Activation") > 0
    assert all(np.array_equal(gradient, found[memory][name]) for name, gradient in found["plain"].items())


# -- budgets -------------------------------------------------------------------------------------------------
def budgeted(budget: int | str | None, memory: str = "auto") -> Executor:
    symbol = convolutional(12)
    inputs = ("data", "softmax_label")
    requests = {n: "null" if n in inputs else "write" for n in symbol.list_arguments()}
    executor = Executor(symbol, mx.cpu(), {"data": (8, 3, 16, 16)}, inputs=inputs, grad_req=requests, memory=memory,
                        budget=budget)
    executor.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    return executor


def test_every_accepted_budget_holds_as_the_measured_high_water_mark_and_every_other_is_refused_before_running():
    largest = budgeted(None, "plain").plan.planned_bytes
    with pytest.raises(OutOfMemoryError) as refused:
        budgeted(1).program("step")
    least = refused.value.asked_bytes
    assert least < 0.5 * largest
    feeds = {"data": np.zeros((8, 3, 16, 16), np.float32), "softmax_label": np.zeros(8, np.float32)}
    for budget in (largest, int(0.75 * largest), largest // 2, least):
        executor = budgeted(budget)
        control = SGD(learning_rate=0.1, momentum=0.9).control
        for _ in range(3):  # the caches of Python and NumPy fill once
            executor.step(control, **feeds)
        tracemalloc.start()
        executor.step(control, **feeds)
        beyond = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        held = sum(arena.size for arena in executor.group.memory.arenas.values())
        assert held == executor.plan.planned_bytes <= budget and beyond <= 64 * 1024
    for budget in (least - 1, 1, 0):
        with pytest.raises(OutOfMemoryError) as refused:
            budgeted(budget).program("step")
        text = str(refused.value)
        assert f"the least that it can do with is {least} bytes" in text and refused.value.asked_bytes == least
        assert re.search(r"peak is at instruction \d+, \S+, where the largest are \S+ \(\S+ \S+, \w+ of \w+\)", text)


# -- in place ------------------------------------------------------------------------------------------------
@forms
def test_operators_that_cannot_work_in_place_are_not_made_to_by_recomputation(form, force):
    force(form)
    net = mx.sym.transpose(mx.sym.Variable("x"), axes=(0, 3, 1, 2))
    symbol = mx.sym.transpose(net, axes=(0, 2, 3, 1), name="out") * 1
    results = []
    for memory in ("plain", "forced"):
        executor = bind(symbol, memory, x=(1, 2, 3, 4))
        fill(executor)
        out = executor.forward(is_train=True)[0].asnumpy()
        assert np.array_equal(out, executor.arg_dict["x"].asnumpy())
        executor.backward(out)
        results.append(executor.grad_dict["x"].asnumpy())
    assert np.array_equal(*results) and np.array_equal(results[0], out)


# -- scratch and half precision ------------------------------------------------------------------------------
def test_scratch_of_a_convolution_is_planned_reported_on_its_own_line_and_does_not_grow_with_the_batch(monkeypatch):
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")    # kernels keep a small sum of weights for each image
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=64, no_bias=True)
    largest = {}
    for batch in (1, 4):
        found = plan(mx.sym.MakeLoss(mx.sym.sum(net)), {"data": (batch, 64, 1024, 2048)}, "sgd", "step", "plain")
        scratch = [b for b in found.instructions.workspace if b >= 0]
        largest[batch] = max(found.buffers.bytes[b] for b in scratch)
        assert all(found.buffers.buffer_class[b] == "workspace" for b in scratch)
        assert all(found.buffers.offset[b] + align(found.buffers.bytes[b]) <= found.arenas[1].bytes for b in scratch)
        figures = report(found)
        assert 0 < figures.by_class["workspace"] <= align(largest[batch])    # what is live at the peak
        assert re.search(r"^  workspace +\d", figures.text(), re.MULTILINE)
    assert largest[1] == largest[4]
    columns_bytes = 64 * 9 * 1024 * 2048 * 4
    assert largest[1] < columns_bytes / 2


@pytest.mark.parametrize("memory", ["plain", "sublinear"])
def test_half_precision_gradients_of_an_embedding_are_summed_in_single_precision(memory):
    net = mx.sym.Embedding(mx.sym.Variable("ids"), input_dim=3, output_dim=2, name="emb")
    executor = net.simple_bind(mx.cpu(), {"emb_weight": "add"}, {"emb_weight": "float16", "ids": "float32"},
                               memory=memory, poison=True, ids=(25000,))
    executor.arg_dict["ids"][:] = np.arange(25000) % 2
    executor.grad_dict["emb_weight"][:] = 1
    executor.forward(is_train=True)
    executor.backward(np.full((25000, 2), 0.01, np.float16))
    found = executor.grad_dict["emb_weight"].asnumpy()
    assert found.dtype == np.float16 and found.tolist() == [[126, 126], [126, 126], [1, 1]]
