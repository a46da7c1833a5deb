"""Steps in slices of the batch: the bits of the plain plan, in less memory than any single operator takes whole."""
from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.executor import Executor
from minigraph.optimizer import SGD
from minigraph.plan.plan import AGAIN, SLICE, Plan
from minigraph.planning import least_budget, plan, prepare
from zoo import alexnet, densenet, resnet, unet

from ..random_graphs import random_case, results, seeds

CLASSES = 5


def labelled(*data: int) -> dict[str, tuple[int, ...]]:
    return {"data": data, "softmax_label": data[:1]}


def convolutional(filters: int = 16) -> mx.sym.Symbol:
    """The beginning of a VGG: two convolutions over whole images, and a classifier of whole images' means."""
    h = mx.sym.Variable("data")
    for k in range(2):
        h = mx.sym.Activation(mx.sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=f"conv{k}"),
                              act_type="relu", name=f"relu{k}")
    h = mx.sym.Pooling(h, kernel=(8, 8), stride=(8, 8), pool_type="max", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=CLASSES, name="fc"), name="softmax")


def networks() -> dict[str, tuple[Any, dict[str, tuple[int, ...]], int]]:
    """Small networks of the zoo: symbol, shapes and slices."""
    small = {"num_classes": CLASSES}
    return {
        "convolutional": (convolutional(4), labelled(5, 3, 32, 32), 3),
        "alexnet": (alexnet.get_symbol(hidden=8, **small), labelled(4, 3, 67, 67), 2),
        "resnet": (resnet.get_symbol(depth=8, image_shape=(3, 20, 20), **small), labelled(36, 3, 20, 20), 2),
        "densenet": (densenet.get_symbol(blocks=(2, 2), growth=4, p=0.2, **small), labelled(10, 3, 32, 32), 5),
        "unet": (unet.get_symbol(image_shape=(1, 20, 20), levels=2, filters=4, padded=True, batch_norm=True, **small),
                 {"data": (6, 1, 20, 20), "softmax_label": (6, 20, 20)}, 3)}


def everything(symbol: Any, shapes: dict[str, tuple[int, ...]], context: mx.Context | None = None, steps: int = 3,
               **options: Any) -> tuple[dict[str, np.ndarray], Executor]:
    """Outputs of some steps, parameters, states and statistics after them, and then gradients and an evaluation."""
    mx.random.seed(4)
    requests = {name: "null" if name in shapes else "write" for name in symbol.list_arguments()}
    exe = Executor(symbol, context or mx.cpu(), shapes, inputs=tuple(shapes), grad_req=requests, poison=True, **options)
    optimizer = SGD(learning_rate=0.05, momentum=0.9, wd=1e-4, rescale_grad=1 / shapes["data"][0])
    exe.set_updater(optimizer)
    draw = np.random.default_rng(1)
    for name, array in exe.arg_dict.items():
        array[:] = draw.uniform(-0.1, 0.1, array.shape) + name.endswith("gamma")
    for name, array in exe.aux_dict.items():
        array[:] = float(name.endswith("var"))
    found = {}
    for k in range(steps):
        feeds = {name: (draw.integers(0, CLASSES, shape) if "label" in name else draw.uniform(-1, 1, shape))
                 .astype(np.float32) for name, shape in shapes.items()}
        found.update((f"output {i} of step {k}", out.asnumpy())
                     for i, out in enumerate(exe.step(optimizer.control, **feeds)))
    for held in (exe.arg_dict, exe.aux_dict):
        found.update((name, array.asnumpy()) for name, array in held.items())
    found.update((f"{name} state", states[0].asnumpy()) for name, states in exe.states.items())
    exe.forward(is_train=True, **feeds)
    exe.backward()
    found.update((f"{name} gradient", array.asnumpy()) for name, array in exe.grad_dict.items() if array is not None)
    found.update((f"evaluated {i}", out.asnumpy()) for i, out in enumerate(exe.forward(is_train=False, **feeds)))
    return found, exe


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []
    assert all(np.isfinite(array).all() for array in one.values())


def slices_of(found: Plan) -> set[str]:
    return {number for name in found.instructions.name for number in re.findall(SLICE + r"(\d+)", name)}


@pytest.mark.parametrize("name", networks())
def test_networks_in_slices_have_the_bits_of_the_plain_plan(name: str) -> None:
    symbol, shapes, slices = networks()[name]
    whole, _ = everything(symbol, shapes)
    cut, exe = everything(symbol, shapes, slices=slices)
    assert len(slices_of(exe.program("step").plan)) >= 2
    assert_same(cut, whole)


@pytest.mark.parametrize("seed", seeds()[:25])
def test_random_graphs_in_slices_have_the_bits_of_the_plain_plan(seed: int) -> None:
    case = random_case(seed)

    def run(**options: Any) -> dict[str, bytes]:
        executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, poison=True, **options, **case.shapes)
        return results(case, executor, seed)
    whole = run(memory="naive")
    for options in ({"slices": 2}, {"slices": 3, "memory": "sublinear"}, {"slices": 2, "memory": "naive"}):
        cut = run(**options)
        assert [name for name in whole if whole[name] != cut[name]] == []


BATCH = labelled(32, 3, 48, 48)
LAYER = 32 * 16 * 48 * 48 * 4
"""Bytes of each convolution's output."""


def test_a_budget_below_a_single_operators_tensors_is_kept_and_measured() -> None:
    budget = int(1.2 * LAYER)  # a convolution alone reads one layer and writes another
    cut, exe = everything(convolutional(), BATCH, steps=1, budget=budget)
    planned = exe.program("step").plan
    assert slices_of(planned) and planned.planned_bytes <= budget
    whole, plain = everything(convolutional(), BATCH, steps=1)
    assert plain.program("step").plan.planned_bytes > 2 * LAYER
    assert_same(cut, whole)
    feeds = {name: np.zeros(shape, np.float32) for name, shape in BATCH.items()}
    control = SGD(learning_rate=0.0).control
    exe.step(control, **feeds)
    tracemalloc.start()
    exe.step(control, **feeds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024 + sum(array.nbytes for array in feeds.values())  # given inputs are kept to be looked at


def test_the_least_budget_in_slices_is_taken_and_one_byte_less_refused() -> None:
    program = prepare(convolutional(), BATCH, "sgd", memory="auto")
    least = least_budget(program)
    assert least < 1.2 * LAYER
    assert plan(convolutional(), BATCH, "sgd", budget=least).planned_bytes <= least
    with pytest.raises(OutOfMemoryError, match=str(least)):
        plan(convolutional(), BATCH, "sgd", budget=least - 1)


def test_a_larger_budget_is_never_slower_and_enough_of_it_needs_no_slices() -> None:
    plain = plan(convolutional(), BATCH, "sgd")
    least = least_budget(prepare(convolutional(), BATCH, "sgd", memory="auto"))
    seconds = []
    for budget in np.linspace(least, plain.planned_bytes, 7).tolist():
        found = plan(convolutional(), BATCH, "sgd", budget=int(budget))
        seconds.append(found.figures.step_seconds)
    assert seconds == sorted(seconds, reverse=True)
    assert not slices_of(found)


def test_forward_and_backward_of_a_slice_go_together_where_nothing_asks_for_the_whole_batch() -> None:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=16, name="conv")
    h = mx.sym.Pooling(mx.sym.Activation(h, act_type="relu"), kernel=(48, 48), pool_type="avg", name="pool")
    symbol = mx.sym.SoftmaxOutput(mx.sym.Flatten(h), name="softmax")
    whole, cut = plan(symbol, BATCH, "sgd"), plan(symbol, BATCH, "sgd", slices=8)
    assert cut.planned_bytes < 0.4 * whole.planned_bytes
    names = cut.instructions.name
    assert not any(AGAIN in name for name in names)
    first = max(i for i, name in enumerate(names) if f"{SLICE}0" in name)
    assert first < min(i for i, name in enumerate(names) if f"{SLICE}1" in name)


def test_training_in_parts_keeps_forward_before_backward() -> None:
    found = plan(convolutional(), BATCH, program="train", slices=4)
    assert slices_of(found)
    forward = found.ranges["forward"][1]
    assert not any("backward" in name for name in found.instructions.name[:forward])


def test_slices_that_a_shortcut_reads_are_held_no_longer_than_for_the_branch_beside_it() -> None:
    """The graph's order has the shortcut behind the branch, and its gradient before the branch's."""
    def normalised(data: mx.sym.Symbol, name: str, filters: int, stride: int = 1) -> mx.sym.Symbol:
        return mx.sym.BatchNorm(mx.sym.Convolution(data, kernel=(1, 1), stride=(stride, stride), num_filter=filters,
                                                   no_bias=True, name=name), name=f"{name}_bn")
    trunk = mx.sym.Activation(normalised(mx.sym.Variable("data"), "first", 32), act_type="relu")
    branch = mx.sym.Activation(normalised(trunk, "narrow", 8, 2), act_type="relu")
    h = normalised(branch, "wide", 64) + normalised(trunk, "shortcut", 64, 2)
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=CLASSES), name="softmax")
    found = plan(symbol, labelled(32, 3, 96, 96), program="train", slices=4).instructions.name

    def at(node: str, number: int) -> int:
        return found.index(f"{node}{SLICE}{number}")
    assert at("narrow", 0) < at("shortcut", 0) < at("narrow", 1)
    assert at("shortcut", 3) < at("wide", 0)
    gradient = "/convolution_backward_data"
    assert at(f"wide{gradient}", 3) < at(f"shortcut{gradient}", 0)
    weight = "/convolution_backward_weight"
    assert at(f"shortcut{weight}", 0) < at(f"narrow{weight}", 1)


def test_a_last_slice_may_be_shorter_and_one_slice_changes_nothing() -> None:
    found = plan(convolutional(), labelled(10, 3, 48, 48), "sgd", slices=4)
    rows = [shape[0] for shape, name in zip(found.buffers.shape, found.buffers.name, strict=True)
            if re.fullmatch(rf"conv0\+relu0{SLICE}\d+_output", name)]
    assert rows == [3, 3, 3, 1]
    assert not slices_of(plan(convolutional(), BATCH, "sgd", slices=1))


def test_chunks_that_are_longer_than_a_slice_run_whole() -> None:
    """A fully connected layer is defined over chunks of 128 rows."""
    for batch, whole in ((32, True), (256, False)):
        found = plan(convolutional(2), labelled(batch, 3, 16, 16), "sgd", slices=2)
        assert any(name == "fc" for name in found.instructions.name) == whole


def test_slices_below_one_are_refused() -> None:
    with pytest.raises(mx.base.MXNetError, match="slices=0"):
        plan(convolutional(), BATCH, "sgd", slices=0)


def test_check_modes_compares_slices_with_the_whole() -> None:
    _, exe = everything(convolutional(2), labelled(8, 3, 16, 16), steps=1, slices=4)
    assert "agree in every bit" in str(exe.check_modes("plain"))
