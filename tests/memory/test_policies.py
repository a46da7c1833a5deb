"""Policies: what they save, what they keep, and that a budget in bytes is a promise."""
from __future__ import annotations

import tracemalloc
from math import ceil, isqrt

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError, align
from minigraph.executor import Executor
from minigraph.memory.policies import POLICIES
from minigraph.optimizer import SGD
from minigraph.planning import plan

MIB = 2**20


def chain(length: int, width: int = 512) -> mx.sym.Symbol:
    """`length` equal layers of 1 MiB at batch 512: fully connected and tanh."""
    h = mx.sym.Variable("data")
    for k in range(length):
        h = mx.sym.FullyConnected(h, num_hidden=width, no_bias=True, name=f"fc{k}")
        h = mx.sym.Activation(h, act_type="tanh", name=f"tanh{k}")
    return mx.sym.MakeLoss(mx.sym.sum(h * h), name="loss")


def convolutional(blocks: int = 6) -> mx.sym.Symbol:
    """A small residual network with BatchNorm and Dropout."""
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=8, name="stem")
    for k in range(blocks):
        y = mx.sym.Activation(mx.sym.BatchNorm(h, fix_gamma=False, name=f"bn{k}"), act_type="relu")
        y = mx.sym.Dropout(mx.sym.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"conv{k}"), p=0.3)
        h = h + y
    h = mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(h, name="softmax")


def activations_of(symbol: mx.sym.Symbol, memory: str, **shapes: tuple[int, ...]) -> int:
    """Planned transient bytes of a step, without those of the inputs."""
    found = plan(symbol, shapes, "sgd", "step", memory)
    inputs = sum(align(found.buffers.bytes[b]) for b in found.inputs.values())
    return found.arenas[1].bytes - inputs


def trained(symbol: mx.sym.Symbol, **options) -> tuple[bytes, object]:
    """All parameters, states and outputs after three steps, as bytes; and the executor."""
    mx.random.seed(4)
    inputs = ("data", "softmax_label")
    requests = {n: "null" if n in inputs else "write" for n in symbol.list_arguments()}
    executor = Executor(symbol, mx.cpu(), {"data": (4, 3, 8, 8)}, inputs=inputs, grad_req=requests, **options)
    optimizer = SGD(learning_rate=0.1, momentum=0.9, wd=1e-4, rescale_grad=0.25)
    executor.set_updater(optimizer)
    rng = np.random.default_rng(1)
    for array in executor.arg_dict.values():
        array[:] = rng.uniform(-0.5, 0.5, array.shape)
    results = []
    for _ in range(3):
        outs = executor.step(optimizer.control, data=rng.uniform(-1, 1, (4, 3, 8, 8)).astype(np.float32),
                             softmax_label=rng.integers(0, 5, 4).astype(np.float32))
        results += [o.asnumpy().tobytes() for o in outs]
    arrays = {**executor.arg_dict, **executor.aux_dict}
    return b"".join([*results, *(arrays[n].asnumpy().tobytes() for n in sorted(arrays))]), executor


def test_sublinear_keeps_about_twice_the_square_root_of_a_chain() -> None:
    plain = activations_of(chain(64), "plain", data=(512, 512))
    saved = activations_of(chain(64), "sublinear", data=(512, 512))
    assert plain > 64 * MIB
    assert saved <= (2 * isqrt(64) + 4) * MIB


@pytest.mark.parametrize("length", [1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 97])
def test_depths_that_do_not_divide_cost_no_jump(length: int) -> None:
    here, following = (activations_of(chain(n), "sublinear", data=(512, 512)) for n in (length, length + 1))
    assert here <= (2 * ceil(length ** 0.5) + 4) * MIB
    assert abs(following - here) <= 2 * MIB


RECOMPUTING = ("auto", "sublinear", "openai", "rotor")
SWAPPING = ("vdnn", "vdnn_all", "vdnn_conv", "lms")
BOTH = ("superneurons", "capuchin")
"""Policies that recompute, and with host memory swap too."""


def test_every_policy_is_tested() -> None:
    assert {*RECOMPUTING, *SWAPPING, *BOTH} == set(POLICIES)


@pytest.mark.parametrize("memory", (*RECOMPUTING, *BOTH))
def test_a_policy_never_takes_more_than_plain(memory: str) -> None:
    x = mx.sym.Variable("data")
    for k in range(4):
        x = mx.sym.Convolution(x, kernel=(1, 1), num_filter=4 if k % 2 else 64, name=f"conv{k}")
    symbol = mx.sym.MakeLoss(mx.sym.sum(x * x))
    for net, shape in ((symbol, (4, 64, 8, 8)), (convolutional(), (4, 3, 8, 8)), (chain(1), (512, 512))):
        assert activations_of(net, memory, data=shape) <= activations_of(net, "plain", data=shape)


def test_every_layer_of_the_first_stretch_gets_its_gradient_although_the_data_wants_none() -> None:
    symbol = convolutional()
    requests = {n: "null" if n in ("data", "softmax_label") else "write" for n in symbol.list_arguments()}
    gradients = {}
    for memory in ("plain", "sublinear"):
        executor = symbol.simple_bind(mx.cpu(), grad_req=requests, memory=memory, poison=True, data=(2, 3, 8, 8))
        mx.random.seed(2)
        for k, (name, array) in enumerate(executor.arg_dict.items()):
            array[:] = 1 if name == "softmax_label" else np.random.default_rng(k).uniform(-0.5, 0.5, array.shape)
        executor.forward(is_train=True)
        executor.backward()
        gradients[memory] = {n: g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}
    for name, gradient in gradients["plain"].items():
        assert np.any(gradient), name
        np.testing.assert_array_equal(gradients["sublinear"][name], gradient)


@pytest.mark.parametrize("space", ["host", "file"])
@pytest.mark.parametrize("memory", (*SWAPPING, *BOTH))
def test_swapped_values_come_back_bit_for_bit(memory: str, space: str, tmp_path) -> None:
    plain, reference = trained(convolutional())
    where = {"host_budget": "1GiB"} if space == "host" else {"disk": str(tmp_path)}
    result, executor = trained(convolutional(), memory=memory, poison=True, **where)
    assert result == plain
    swap = executor.program("step").plan.arenas[2]
    assert swap.space == space and swap.bytes > 0
    assert executor.program("step").plan.planned_bytes < reference.program("step").plan.planned_bytes


@pytest.mark.parametrize("memory", ["vdnn_all", "vdnn_conv"])
def test_a_policy_that_must_swap_says_that_it_has_no_room(memory: str) -> None:
    with pytest.raises(MXNetError, match="host budget of 0 bytes has no room"):
        trained(convolutional(), memory=memory)


def test_the_host_budget_is_kept_or_less_is_swapped() -> None:
    symbol, shapes = convolutional(12), {"data": (8, 3, 16, 16)}
    for host in (0, 20_000, 200_000, 1 << 40):
        found = plan(symbol, shapes, "sgd", "step", "vdnn", host_budget=host)
        assert found.arena_bytes("host") <= host


@pytest.mark.parametrize("memory", (*RECOMPUTING, *BOTH))
def test_dropout_masks_batch_statistics_and_parameters_are_those_of_plain(memory: str) -> None:
    plain, reference = trained(convolutional())
    total = reference.program("step").plan.planned_bytes
    with pytest.raises(OutOfMemoryError) as refused:
        trained(convolutional(), memory=memory, budget=1)
    least = refused.value.asked_bytes
    assert least < total
    for budget in (None, total, (least + total) // 2, least):
        result, executor = trained(convolutional(), memory=memory, budget=budget, poison=True)
        assert result == plain
        assert budget is None or executor.program("step").plan.planned_bytes <= budget


def test_a_budget_is_kept_or_refused_to_the_byte() -> None:
    symbol, shapes = convolutional(), {"data": (4, 3, 8, 8)}
    with pytest.raises(OutOfMemoryError, match="the least that it can do with is") as refused:
        plan(symbol, shapes, "sgd", "step", "auto", budget=1)
    least = refused.value.asked_bytes
    assert plan(symbol, shapes, "sgd", "step", "auto", budget=least).planned_bytes == least
    with pytest.raises(OutOfMemoryError, match=f"least that it can do with is {least} bytes"):
        plan(symbol, shapes, "sgd", "step", "auto", budget=least - 1)


@pytest.mark.parametrize("budget", [-1, "1 parsec", "-2GiB", float("nan")])
def test_a_budget_that_is_no_byte_count_is_refused(budget) -> None:
    with pytest.raises(MXNetError, match="^budget: "):
        convolutional().simple_bind(mx.cpu(), data=(4, 3, 8, 8), budget=budget)


def test_binary_and_decimal_units_differ() -> None:
    executors = [convolutional().simple_bind(mx.cpu(), data=(4, 3, 8, 8), budget=text) for text in ("2GB", "2GiB")]
    assert [e.options.memory.budget_bytes for e in executors] == [2 * 10**9, 2 * 2**30]


def test_time_never_rises_with_the_budget_and_memory_never_with_its_falling() -> None:
    symbol, shapes = convolutional(12), {"data": (8, 3, 16, 16)}
    largest = plan(symbol, shapes, "sgd", "step", "plain").planned_bytes
    with pytest.raises(OutOfMemoryError) as refused:
        plan(symbol, shapes, "sgd", "step", "auto", budget=1)
    budgets = np.linspace(refused.value.asked_bytes, largest, 12).astype(int).tolist()
    plans = [plan(symbol, shapes, "sgd", "step", "auto", budget=b) for b in budgets]
    seconds = [p.figures.step_seconds for p in plans]
    planned = [p.planned_bytes for p in plans]
    assert seconds == sorted(seconds, reverse=True) and planned == sorted(planned)
    assert all(p <= b for p, b in zip(planned, budgets, strict=True))
    assert plans[-1].figures.recompute_flops == 0 < plans[0].figures.recompute_flops


def test_measured_bytes_are_the_planned_ones_under_a_budget() -> None:
    _, executor = trained(convolutional(12), budget="240KB")
    control = SGD(learning_rate=0.1, momentum=0.9).control
    feeds = {"data": np.zeros((4, 3, 8, 8), np.float32), "softmax_label": np.zeros(4, np.float32)}
    executor.step(control, **feeds)
    tracemalloc.start()
    executor.step(control, **feeds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = sum(arena.size for arena in executor.group.memory.arenas.values())
    assert held <= executor.options.memory.budget_bytes
    assert peak <= 64 * 1024


def test_after_a_refused_budget_a_smaller_batch_binds_as_ever() -> None:
    symbol = convolutional()
    budget = plan(symbol, {"data": (4, 3, 8, 8)}, "sgd", "step", "auto", budget="1GiB").planned_bytes
    for _ in range(3):
        with pytest.raises(OutOfMemoryError):
            symbol.simple_bind(mx.cpu(), data=(512, 3, 8, 8), budget=budget).forward(is_train=True)
        symbol.simple_bind(mx.cpu(), data=(1, 3, 8, 8), budget=budget).forward(is_train=True)
