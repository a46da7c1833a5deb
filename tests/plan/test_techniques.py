"""What techniques save and cost, against hand-made plans and against each other."""
from __future__ import annotations

import json
from typing import Any

import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.memory.machine import get_machine
from minigraph.plan.live import device_storages, live_bytes, peak_instant
from minigraph.plan.plan import AGAIN, Kind, Plan
from minigraph.plan.report import report
from minigraph.plan.simulate import instruction_seconds
from minigraph.plan.techniques import recomputed, techniques
from minigraph.planning import plan

from .build import Maker, swap
from .test_simulate import ROUND

SHAPES = {"data": (8, 3, 16, 16)}
CPU = get_machine("cpu")


def network(blocks: int = 8) -> mx.sym.Symbol:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=8, name="stem")
    for k in range(blocks):
        y = mx.sym.Activation(mx.sym.BatchNorm(h, name=f"bn{k}"), act_type="relu", name=f"relu{k}")
        h = h + mx.sym.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"conv{k}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc"), name="softmax")


def planned(memory: str, **options: Any) -> Plan:
    return plan(network(), SHAPES, "sgd", "step", memory, **options)


@pytest.fixture(scope="module")
def plain() -> Plan:
    return planned("plain")


@pytest.fixture(scope="module")
def recomputing() -> Plan:
    with pytest.raises(OutOfMemoryError) as refused:
        planned("auto", budget=1)
    return planned("auto", budget=refused.value.asked_bytes)


@pytest.fixture(scope="module")
def swapping() -> Plan:
    return planned("vdnn_all", host_budget="1GiB")


def test_a_swap_by_hand_costs_what_its_copies_stall() -> None:
    found = techniques(swap(), ROUND)
    assert found.machine == "round"
    assert (found.swapped.tensors, found.swapped.out_bytes, found.swapped.in_bytes) == (1, 64, 64)
    assert found.swapped.stall_seconds == 2.0
    assert found.recomputed.instructions == 0
    assert found.saved_bytes is found.other_saved_bytes is found.swapped.saved_bytes is None


def test_savings_by_hand_are_the_bytes_gone_at_the_plain_peak() -> None:
    m = Maker()  # plain: data, a and b of 64, 64 and 256 bytes live at b
    data, a, b = m.value("data", buffer_class="input"), m.value("a"), m.value("b", 64)
    out = m.value("out", buffer_class="output")
    m.run("t_unary", (data,), (a,))
    m.run("t_dense", (data, data), (b,))
    m.run("t_binary", (a, b), (out,))
    before = m.plan(inputs=(data,), outputs=(out,))
    m = Maker()  # the same, with `a` made again after b: data and b are live there
    data, early, b = m.value("data", buffer_class="input"), m.value("a"), m.value("b", 64)
    again, out = m.value(f"a{AGAIN}1"), m.value("out", buffer_class="output")
    m.run("t_unary", (data,), (early,), name="a")
    m.run("t_dense", (data, data), (b,), name="b")
    m.run("t_unary", (data,), (again,), name=f"a{AGAIN}1")
    m.run("t_binary", (again, b), (out,))
    found = techniques(m.plan(inputs=(data,), outputs=(out,)), ROUND, before)
    assert (found.recomputed.saved_bytes, found.swapped.saved_bytes, found.other_saved_bytes) == (64, 0, 0)
    assert (found.recomputed.instructions, found.recomputed.seconds, found.saved_bytes) == (1, 2.0, 64)


def test_what_runs_again_is_counted_with_its_operations_and_seconds(recomputing, plain) -> None:
    found = techniques(recomputing, CPU, plain).recomputed
    again = recomputed(recomputing)
    seconds = instruction_seconds(recomputing, CPU)
    assert found.instructions == len(again) > 0
    assert found.flops == pytest.approx(recomputing.figures.recompute_flops)
    assert found.seconds == pytest.approx(sum(seconds(i) for i in again))


@pytest.mark.parametrize("name", ["recomputing", "swapping"])
def test_savings_add_up_to_the_difference_of_live_bytes_at_the_plain_peak(name, plain, request) -> None:
    made = request.getfixturevalue(name)
    found = techniques(made, CPU, plain)
    peak = peak_instant(device_storages(plain), len(plain))
    here = list(made.instructions.name).index(plain.instructions.name[peak])
    live = [int(live_bytes(device_storages(p), len(p))[t + 1]) for p, t in ((plain, peak), (made, here))]
    parts = (found.recomputed.saved_bytes, found.swapped.saved_bytes, found.other_saved_bytes)
    assert found.saved_bytes == live[0] - live[1] == sum(parts)
    mine, others = (parts[0], parts[1]) if name == "recomputing" else (parts[1], parts[0])
    assert mine > 0.5 * found.saved_bytes and others == 0


def test_every_swapped_tensor_and_byte_is_counted(swapping) -> None:
    found = techniques(swapping, CPU).swapped
    copies = [i for i in swapping if i.kind == Kind.COPY_OUT]
    assert found.tensors == len(copies) > 0
    assert found.out_bytes == sum(swapping.buffers.bytes[i.reads[0]] for i in copies) == found.in_bytes
    assert report(swapping).swapped_bytes == found.out_bytes + found.in_bytes


def test_the_report_has_the_techniques_in_text_and_json(recomputing, swapping, plain) -> None:
    text = report(recomputing, plain=plain).text()
    assert "recomputed" in text and "at the plain plan's peak" in text and "swapped" not in text
    assert "swapped" in report(swapping).text() and "plain plan's peak" not in report(swapping).text()
    again = json.loads(json.dumps(report(recomputing, plain=plain).json()))["techniques"]
    assert again["machine"] == "cpu" and again["recomputed"]["saved_bytes"] > 0


def test_a_value_made_again_counts_as_the_activation_that_it_is(recomputing) -> None:
    storages = device_storages(recomputing)
    names = [recomputing.buffers.name[held[0]] for held in storages.members]
    again = [kind for name, kind in zip(names, storages.classes, strict=True) if AGAIN in name]
    assert again and set(again) <= {"activation", "workspace"}


def test_slices_are_told_with_their_seconds_and_savings_add_up() -> None:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=16, name="conv")
    h = mx.sym.Activation(h, act_type="tanh", name="tanh")
    h = mx.sym.Pooling(h, kernel=(16, 16), pool_type="avg", name="pool")
    symbol = mx.sym.SoftmaxOutput(mx.sym.Flatten(h), name="softmax")
    whole, cut = plan(symbol, SHAPES, "sgd"), plan(symbol, SHAPES, "sgd", slices=4)
    found = techniques(cut, CPU, whole)
    assert found.sliced.slices == 4 and found.sliced.instructions >= 4 * 5
    assert found.sliced.seconds is not None and found.sliced.seconds > 0
    assert found.sliced.saved_bytes is not None and found.sliced.saved_bytes > 0.5 * 8 * 16 * 16 * 16 * 4
    assert found.saved_bytes == found.sliced.saved_bytes + found.other_saved_bytes
    assert json.loads(json.dumps(report(cut, plain=whole).json()))["techniques"]["sliced"]["tensors"] > 3
    assert "in 4 slices" in report(cut, plain=whole).text()
    assert techniques(whole, CPU, whole).sliced.slices == 0
