"""Executors that run by ready plans: the same bits, and nothing that does not fit."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cpu import memory as cpu_memory
from minigraph.executor import Executor
from minigraph.optimizer import create
from minigraph.plan import serialize
from minigraph.plan.plan import Plan
from minigraph.planning import plan
from tests.device.cpu.mapping import PAGE_BYTES, remapped

SHAPES = {"data": (8, 1, 6, 6)}
INPUTS = ("data", "softmax_label")


def network(filters: int = 4, layers: int = 6) -> Any:
    body = mx.sym.Variable("data")
    for k in range(layers):
        body = mx.sym.Convolution(body, num_filter=filters, kernel=(3, 3), pad=(1, 1), name=f"conv{k}")
        body = mx.sym.Activation(mx.sym.BatchNorm(body, name=f"bn{k}"), act_type="relu", name=f"relu{k}")
    body = mx.sym.FullyConnected(mx.sym.Flatten(body, name="flat"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(body, name="softmax")


def optimizer(momentum: float = 0.9) -> Any:
    return create("sgd", learning_rate=0.1, momentum=momentum, rescale_grad=1 / 8)


def executor(symbol: Any = None, momentum: float = 0.9, **options: Any) -> tuple[Executor, Any]:
    made = Executor(network() if symbol is None else symbol, None, SHAPES, inputs=INPUTS, **options)
    chosen = optimizer(momentum)
    made.set_updater(chosen)
    return made, chosen


def planned(**options: Any) -> Plan:
    return plan(network(), SHAPES, optimizer(), "step", **options)


def trained(made: Executor, chosen: Any, steps: int = 3) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    for name, array in made.arg_dict.items():
        array[:] = 1.0 if name.endswith("gamma") else chance.normal(0, 0.3, array.shape)
    for _ in range(steps):
        made.step(chosen.control, data=chance.standard_normal(SHAPES["data"]), softmax_label=np.arange(8) % 3)
    return {name: array.asnumpy() for name, array in {**made.arg_dict, **made.aux_dict}.items()}


@pytest.mark.parametrize("memory", ["plain", "naive", "sublinear"])
def test_a_ready_plan_of_any_memory_mode_gives_the_bits_of_a_compiled_one(memory: str, tmp_path: Path) -> None:
    serialize.save(planned(memory=memory), tmp_path / "step.plan.gz")
    ready, chosen = executor()
    ready.use_plan("step", serialize.load(tmp_path / "step.plan.gz"))
    assert ready.plan.memory == memory
    expected = trained(*executor())
    for name, value in trained(ready, chosen).items():
        np.testing.assert_array_equal(value, expected[name], strict=True)


def test_a_used_plan_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, chosen = executor()
    made = planned()
    monkeypatch.setattr("minigraph.programs.compile_program", None)
    ready.use_plan("step", made)
    trained(ready, chosen)
    assert ready.plan is made


def test_other_programs_are_compiled_beside_a_used_plan() -> None:
    ready, chosen = executor()
    ready.use_plan("step", planned(memory="sublinear"))
    trained(ready, chosen)
    reference, theirs = executor()
    trained(reference, theirs)
    data = np.random.default_rng(5).standard_normal(SHAPES["data"])
    np.testing.assert_array_equal(ready.forward(data=data)[0].asnumpy(), reference.forward(data=data)[0].asnumpy())


def test_a_plan_for_evaluation_can_be_used() -> None:
    ready, _ = executor()
    ready.use_plan("eval", plan(network(), SHAPES, program="eval"))
    assert ready.forward(data=np.ones(SHAPES["data"]))[0].shape == (8, 3)


@pytest.mark.parametrize(("symbol", "momentum"), [
    (network(filters=5), 0.9), (network(layers=5), 0.9), (network(), 0.0)])
def test_a_plan_made_for_something_else_is_refused(symbol: Any, momentum: float) -> None:
    ready, _ = executor(symbol, momentum)
    with pytest.raises(MXNetError, match="fingerprint .* differ"):
        ready.use_plan("step", planned())


def test_a_learning_rate_is_no_part_of_what_a_plan_is_made_for() -> None:
    ready, _ = executor()
    ready.set_updater(create("sgd", learning_rate=0.7, momentum=0.9, wd=0.1))
    ready.use_plan("step", planned())


def test_a_plan_of_another_program_is_refused() -> None:
    ready, _ = executor()
    with pytest.raises(MXNetError, match="program `step`, and `eval`"):
        ready.use_plan("eval", planned())
    with pytest.raises(MXNetError, match="no program 'update'"):
        ready.use_plan("update", planned())


def test_a_plan_over_the_budget_is_refused_before_room_is_made() -> None:
    made = planned()
    ready, _ = executor(budget=made.planned_bytes - 1)
    with pytest.raises(OutOfMemoryError, match=f"takes {made.planned_bytes} bytes .*of the budget"):
        ready.use_plan("step", made)
    assert ready.group.transient_bytes == 0
    executor(budget=made.planned_bytes)[0].use_plan("step", made)


def test_a_plan_whose_states_lie_elsewhere_is_refused_and_nothing_changes() -> None:
    ready, _ = executor()
    ready.forward(is_train=True, data=np.ones(SHAPES["data"]), softmax_label=np.zeros(8))  # gradients come first
    places = dict(ready.group.layout.places)
    with pytest.raises(MXNetError, match=r"/mom at byte \d+ .* lies at byte"):
        ready.use_plan("step", planned())
    assert ready.group.layout.places == places


def test_a_plan_of_pages_that_the_system_does_not_map_is_refused_and_nothing_changes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    made = remapped(planned(budget=45_000, host_budget="1MB"))
    ready, chosen = executor(budget=60_000, host_budget="1MB")
    before = dict(vars(ready.group.layout))
    monkeypatch.setattr(cpu_memory, "least_page_bytes", lambda: 0)
    with pytest.raises(MXNetError, match=f"maps pages of {PAGE_BYTES} bytes, and this system maps none"):
        ready.use_plan("step", made)
    assert vars(ready.group.layout) == before
    expected = trained(*executor())
    for name, value in trained(ready, chosen).items():
        assert value.tobytes() == expected[name].tobytes(), name


def test_an_unverified_plan_that_has_a_weight_in_another_arena_is_refused() -> None:
    made = planned(verify=False)
    first = next(tensor.first for tensor in made.persistent if tensor.name == "conv0_weight")
    columns = replace(made.buffers, arena=[1 if b == first else k for b, k in enumerate(made.buffers.arena)])
    ready, _ = executor(verify=False)
    with pytest.raises(MXNetError, match="has conv0_weight at byte .* of the transient arena, and here it lies"):
        ready.use_plan("step", replace(made, buffers=columns))


def test_a_damaged_plan_is_found_by_the_verifier() -> None:
    made = planned()
    columns = replace(made.buffers, offset=[0] * len(made.buffers))
    ready, _ = executor()
    with pytest.raises(MXNetError):
        ready.use_plan("step", replace(made, buffers=columns))


@pytest.mark.parametrize(("name", "told"), [("data", "input 'data'"), ("softmax_output", "output 'softmax_output'")])
def test_an_input_or_output_of_another_type_is_refused(name: str, told: str) -> None:
    made = planned()
    b = {**made.inputs, **dict(made.outputs)}[name]
    for column, value in (("shape", made.buffers.shape[b][::-1]), ("dtype", np.dtype(np.int32))):
        values = list(getattr(made.buffers, column))
        values[b] = value
        ready, _ = executor()
        with pytest.raises(MXNetError, match=f"has the {told} as .* and here it is float32"):
            ready.use_plan("step", replace(made, buffers=replace(made.buffers, **{column: values})))


def test_a_monitor_and_a_ready_plan_exclude_each_other() -> None:
    ready, _ = executor()
    ready.set_monitor_callback(lambda name, value: None)
    with pytest.raises(MXNetError, match="monitor"):
        ready.use_plan("eval", plan(network(), SHAPES, program="eval"))


def test_the_graph_is_let_go_when_a_program_is_loaded_and_made_again_when_needed() -> None:
    ready, chosen = executor()
    ready.program("step")
    assert ready._bound is None
    trained(ready, chosen)
    assert ready.forward(data=np.ones(SHAPES["data"]))[0].shape == (8, 3)
    assert ready.output_types[0].shape == (8, 3)


def test_names_that_were_only_numbered_do_not_matter() -> None:
    def unnamed() -> Any:
        body = mx.sym.Activation(mx.sym.Variable("data"), act_type="relu")
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=3, name="fc"), name="softmax")
    made = plan(unnamed(), SHAPES, optimizer(), "step")
    ready, chosen = executor(unnamed())
    ready.use_plan("step", made)
    ready.step(chosen.control, data=np.ones(SHAPES["data"]), softmax_label=np.zeros(8))
