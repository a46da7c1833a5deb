"""Planning without executors: exact, close to the lower bound, and without the memory that is planned."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
import zoo
from minigraph.base import MXNetError, TensorType
from minigraph.device.cuda import import_families
from minigraph.device.cuda.launch import kernel_op
from minigraph.executor import Executor
from minigraph.explain import explain
from minigraph.passes.pipeline import PASSES
from minigraph.plan.report import report
from minigraph.planning import plan, prepare

ROOT = Path(__file__).resolve().parent.parent
SMALL = [(version, depth) for version in (1, 2) for depth in (20, 56, 110, 164)]
NETWORKS = [("mlp", {}, (32, 784)), ("lenet", {}, (32, 1, 28, 28)),
            *(("resnet", {"depth": depth, "version": version, "image_shape": (3, 32, 32)}, (32, 3, 32, 32))
              for version, depth in SMALL),
            *(("resnet", {"depth": depth}, (8, 3, 224, 224)) for depth in (18, 50, 101, 152))]


def mlp(**settings):
    return zoo.get("mlp")(**settings)


@pytest.mark.parametrize("network, settings, shape", NETWORKS, ids=lambda value: str(value).replace(" ", ""))
@pytest.mark.parametrize("program", ["step", "train", "eval"])
def test_planned_bytes_are_within_half_a_percent_of_the_lower_bound_and_below_naive(network, settings, shape, program):
    optimizer = "sgd" if program == "step" else None
    figures = report(plan(zoo.get(network)(num_classes=10, **settings), {"data": shape}, optimizer, program))
    assert 1 <= figures.ratio <= 1.005
    assert figures.lower_bound_bytes <= figures.planned_bytes < figures.naive_bytes


@pytest.mark.parametrize("program", ["step", "train", "eval"])
@pytest.mark.parametrize("memory", ["plain", "inplace", "naive"])
def test_a_plan_is_the_one_that_an_executor_has(program, memory):
    symbol, shapes = mlp(hidden=(7, 5)), {"data": (4, 9)}
    optimizer = mx.optimizer.create("sgd", momentum=0.9) if program == "step" else None
    inputs = ("data", "softmax_label")
    requests = {name: "write" for name in symbol.list_arguments() if name not in inputs}
    executor = Executor(symbol, mx.cpu(), shapes, grad_req=requests, inputs=inputs, memory=memory)
    executor.set_updater(optimizer)
    theirs, ours = executor.program(program).plan, plan(symbol, shapes, optimizer, program, memory)
    assert ours.fingerprint == theirs.fingerprint
    assert ours.arenas == theirs.arenas
    assert vars(ours.buffers) == vars(theirs.buffers)


def test_a_step_is_planned_with_an_optimizer_and_forward_and_backward_without():
    assert plan(mlp(), {"data": (4, 9)}, "sgd").program == "step"
    assert plan(mlp(), {"data": (4, 9)}).program == "train"


def test_states_of_the_optimizer_are_counted():
    without, momentum, adam = (plan(mlp(), {"data": (4, 9)}, optimizer, optimizer_params=params).arenas[0].bytes
                               for optimizer, params in (("sgd", {}), ("sgd", {"momentum": 0.9}), ("adam", {})))
    assert without < momentum < adam
    assert momentum - without == (adam - without) / 2


def test_planning_a_network_that_needs_40_gib_allocates_next_to_nothing():
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process alone, without that of the one that started it, is Linux's to tell")
    code = ("import zoo; from minigraph.planning import plan; "
            "p = plan(zoo.get('resnet')(depth=152), {'data': (256, 3, 224, 224)}, 'sgd'); "
            "kib = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')); "
            "print(p.planned_bytes > 40 * 2**30, kib * 1024 < 2**30)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_the_package_of_plans_can_be_called():
    called = mx.plan(mlp(), {"data": (4, 9)}, "sgd")  # type: ignore[operator]
    assert called.planned_bytes == plan(mlp(), {"data": (4, 9)}, "sgd").planned_bytes


@pytest.mark.parametrize("shape", [(-1, 9), (2.5, 9), ("4", 9), -4])
def test_a_shape_of_other_than_whole_numbers_is_refused_with_the_name_of_the_input(shape):
    with pytest.raises(MXNetError, match=r"the shape of data is .*; its dimensions must be whole numbers of 0 or more"):
        plan(mlp(), {"data": shape})


@pytest.mark.parametrize("batch", [2**62, 10**30])
def test_shapes_beyond_all_memory_are_refused_before_anything_is_planned(batch):
    for refused in (lambda: plan(mlp(), {"data": (batch, 9)}), lambda: mlp().simple_bind(mx.cpu(), data=(batch, 9))):
        with pytest.raises(MXNetError, match=f"data.*{batch}.* bytes, more than the .* that can be planned"):
            refused()


def test_a_dimension_below_zero_is_refused_with_the_node_that_asks_for_it():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=-3, name="narrow")
    with pytest.raises(MXNetError, match=r"FullyConnected narrow.*shape \(-3, 9\); no dimension may be below 0"):
        net.simple_bind(mx.cpu(), data=(4, 9))


@pytest.mark.parametrize("arguments, reason", [
    ({"program": "step"}, "give optimizer="), ({"program": "update"}, "no program 'update'"),
    ({"optimizer": "nothing"}, "Cannot find optimizer"), ({"optimizer": "test"}, "no graph form"),
    ({"optimizer": "sgd", "optimizer_params": {"speed": 1}}, "speed"), ({"inputs": ["date"]}, "'date'"),
    ({"optimizer": "sgd", "program": "eval"}, "takes no optimizer"), ({"memory": "tight"}, "memory mode 'tight'"),
    ({"machine": None}, "by its name or its file, got None"), ({"optimizer": 3}, "by its name, or ready made, got 3"),
    ({"optimizer": "sgd", "optimizer_params": {"momentum": "x"}}, "SGD: momentum is 'x'; it must be a number"),
    ({"optimizer": "sgd", "optimizer_params": {"learning_rate": float("nan")}}, "learning_rate is nan"),
    ({"inputs": "data"}, r"such as \['data'\]"), ({"slices": "2"}, "slices='2'"), ({"slices": 1.5}, "slices=1.5"),
    ({"optimizer": "sgd", "dtypes": {"data": "float16"}}, "update of .*weight: .* has dtype float16")])
def test_a_program_that_cannot_be_planned_is_refused_with_the_reason(arguments, reason):
    with pytest.raises(MXNetError, match=reason):
        plan(mlp(), {"data": (4, 9)}, **arguments)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), -1, "-1", "1e9", "4G", "", "nan", True, b"4GB"])
@pytest.mark.parametrize("name", ["budget", "host_budget"])
def test_what_is_no_byte_count_is_refused_with_the_name_of_the_argument(name, given):
    for refused in (lambda: plan(mlp(), {"data": (4, 9)}, **{name: given}),
                    lambda: mlp().simple_bind(mx.cpu(), data=(4, 9), **{name: given})):
        with pytest.raises(MXNetError, match=f"^{name}: .*byte count"):
            refused()


@pytest.mark.parametrize("given", ["4 GB", "4gib", 1e9, "1.5 TiB", 10**30, np.int64(10**9), np.float32(1e9)])
def test_a_budget_may_be_written_in_many_ways_and_be_as_large_as_one_likes(given):
    plain = plan(mlp(), {"data": (4, 9)})
    assert plan(mlp(), {"data": (4, 9)}, budget=given).planned_bytes == plain.planned_bytes


def test_explaining_shows_the_symbol_and_every_pass_in_order_and_ends_in_the_same_plan():
    sections = list(explain(prepare(mlp(hidden=8), {"data": (4, 16)}, "sgd")))
    assert [section.split("\n")[0].split(" (")[0] for section in sections] == [
        "== symbol", *(f"== {stage.name}" for stage in PASSES)]
    lowered = next(section for section in sections if section.startswith("== lower"))
    for instruction in plan(mlp(hidden=8), {"data": (4, 16)}, "sgd"):
        assert f" {instruction.op} {instruction.name}" in lowered


def test_long_listings_are_cut_where_asked_and_say_how_much_is_missing():
    whole = list(explain(prepare(mlp(), {"data": (4, 16)}, "sgd")))
    cut = list(explain(prepare(mlp(), {"data": (4, 16)}, "sgd"), max_lines=3))
    for long, short in zip(whole, cut, strict=True):
        lines = long.rstrip("\n").count("\n")
        assert (f"... {lines - 3} more lines" in short) == (lines > 3)


def test_a_plan_for_a_gpu_has_the_workspaces_of_its_kernels_and_no_blocks_of_channels() -> None:
    symbol = zoo.get("resnet")(num_classes=10, depth=20, image_shape=(3, 32, 32))
    plans = {machine: mx.plan(symbol, {"data": (8, 3, 32, 32)}, "sgd", machine=machine) for machine in ("cpu", "K40c")}
    gpu = plans["K40c"]
    import_families()
    for i, op in enumerate(gpu.instructions.op):
        found = kernel_op(op).algorithm(gpu.instructions.params[i], *(
            [TensorType(gpu.buffers.shape[b], gpu.buffers.dtype[b]) for b in operands]
            for operands in (gpu.instructions.reads[i], gpu.instructions.writes[i])))
        assert gpu.instructions.algorithm[i] == found.name
    assert not any(gpu.buffers.layout)
    assert gpu.fingerprint != plans["cpu"].fingerprint
