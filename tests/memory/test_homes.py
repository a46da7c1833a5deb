"""Parameters, states and gradients at home outside the device: the same bits, less device memory, exact budgets."""
from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cpu import CpuDevice, Delay
from minigraph.executor import Executor
from minigraph.optimizer import SGD, Adam
from minigraph.plan.plan import Plan
from minigraph.plan.verify import VerificationError, verify
from minigraph.planning import least_budget, plan, prepare
from tests.memory.test_policies import convolutional

BATCH = 4
SHAPES = {"data": (BATCH, 24)}
KEPT = {"budget": 36_000, "host_budget": "1MB"}
"""Below the 73 KB of parameters and momentum."""


def network(layers: int = 8, width: int = 32) -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k in range(layers):
        h = mx.sym.FullyConnected(h, num_hidden=width, name=f"fc{k}")
        h = mx.sym.Activation(mx.sym.BatchNorm(h, fix_gamma=False, name=f"bn{k}"), act_type="tanh", name=f"tanh{k}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=5, name="last"), name="softmax")


def bound(batch: int = BATCH, shared: Executor | None = None, optimizer: Any = None, **options: Any) -> Executor:
    executor = Executor(network(), mx.cpu(), {"data": (batch, 24)}, inputs=("data", "softmax_label"), shared=shared,
                           own=(), **options)
    if optimizer is not None:
        executor.set_updater(optimizer)
    return executor


def fill(executor: Executor) -> None:
    random = np.random.default_rng(3)
    for name, handle in sorted({**executor.arg_dict, **executor.aux_dict}.items()):
        low = 0.5 if name.endswith("var") else -0.3
        handle[:] = random.uniform(low, 1.0, handle.shape).astype(np.float32)


def feeds(batch: int = BATCH) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch)
    return {"data": random.uniform(-1, 1, (batch, 24)).astype(np.float32),
            "softmax_label": random.integers(0, 5, batch).astype(np.float32)}


def values(executor: Executor) -> dict[str, np.ndarray]:
    held = {**executor.arg_dict, **executor.aux_dict,
            **{f"{name} {k}": state for name, states in executor.states.items() for k, state in enumerate(states)}}
    return {name: handle.asnumpy() for name, handle in held.items()}


def trained(make: type = SGD, parts: bool = False, steps: int = 3, delay: Delay | None = None,
            **options: Any) -> tuple[dict[str, np.ndarray], Executor]:
    """Values after some steps, whole or in parts, and the executor; each step's outputs and the gradients count."""
    optimizer = make(learning_rate=0.1, momentum=0.9) if make is SGD else make(learning_rate=0.1)
    executor = bound(optimizer=optimizer, **options)
    if delay is not None:
        executor.group.device.delay = delay
    fill(executor)
    found = {}
    for step in range(steps):
        if parts:
            executor.forward(is_train=True, **feeds())
            executor.backward()
            executor.update(optimizer.control)
        else:
            executor.step(optimizer.control, **feeds())
        found[f"output {step}"] = executor.outputs[0].asnumpy()
    if parts:
        found.update({f"gradient {name}": g.asnumpy() for name, g in executor.grad_dict.items() if g is not None})
    executor.forward(is_train=False, **feeds())
    found["evaluated"] = executor.outputs[0].asnumpy()
    return {**found, **values(executor)}, executor


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.tobytes() == right[name].tobytes(), name


@pytest.fixture(scope="module", params=[SGD, Adam], ids=["sgd", "adam"])
def plain(request: pytest.FixtureRequest) -> tuple[type, dict[bool, dict[str, np.ndarray]]]:
    return request.param, {parts: trained(request.param, parts)[0] for parts in (False, True)}


@pytest.mark.parametrize("parts", [False, True], ids=["step", "train and update"])
@pytest.mark.parametrize("space", ["host", "file"])
def test_training_from_homes_outside_the_device_changes_no_bit(plain, parts, space, tmp_path) -> None:
    make, expected = plain
    away = {"budget": 36_000 if make is SGD else 40_000, "host_budget": "1MB",
            "disk": str(tmp_path) if space == "file" else None}
    got, executor = trained(make, parts, poison=True, **away)
    assert_same(got, expected[parts])
    layout = executor.group.layout
    assert layout.space == space and layout.home_bytes > layout.bytes
    arenas = executor.group.memory.arenas
    assert arenas["persistent"].size + arenas["transient"].size <= away["budget"]


def test_delayed_copies_change_no_bit() -> None:
    expected = trained()[0]
    for seed in range(2):
        delay = Delay(seed, out_seconds=2e-4, in_seconds=2e-4, compute_seconds=5e-5)
        assert_same(trained(delay=delay, **KEPT)[0], expected)


def test_a_budget_below_parameters_and_states_is_kept_with_a_host_budget_and_refused_with_the_least_without() -> None:
    held = plan(network(), SHAPES, "sgd", optimizer_params={"momentum": 0.9}).arenas[0].bytes
    budget = held * 3 // 4
    options = {"optimizer_params": {"momentum": 0.9}, "memory": "auto"}
    made = plan(network(), SHAPES, "sgd", budget=budget, host_budget="1MB", **options)
    assert made.planned_bytes <= budget < held
    with pytest.raises(OutOfMemoryError) as refused:
        plan(network(), SHAPES, "sgd", budget=budget, **options)
    assert refused.value.asked_bytes > held
    assert plan(network(), SHAPES, "sgd", budget=refused.value.asked_bytes, **options).planned_bytes > budget


def test_the_least_budget_with_homes_elsewhere_is_accepted_and_one_byte_less_is_not() -> None:
    options = {"optimizer_params": {"momentum": 0.9}, "memory": "auto", "host_budget": "1MB"}
    least = least_budget(prepare(network(), SHAPES, "sgd", **options))
    assert plan(network(), SHAPES, "sgd", budget=least, **options).planned_bytes <= least
    with pytest.raises(OutOfMemoryError) as refused:
        plan(network(), SHAPES, "sgd", budget=least - 1, **options)
    assert refused.value.asked_bytes == least


def test_homes_and_swap_keep_within_the_host_budget() -> None:
    options = {"optimizer_params": {"momentum": 0.9}, "memory": "auto", "budget": KEPT["budget"]}
    for host in (100_000, 80_000):
        made = plan(network(), SHAPES, "sgd", host_budget=host, **options)
        assert 0 < made.arena_bytes("host") <= host


def test_a_larger_budget_is_never_slower() -> None:
    options = {"optimizer_params": {"momentum": 0.9}, "memory": "auto", "host_budget": "1MB", "machine": "K40c"}
    least = least_budget(prepare(network(), SHAPES, "sgd", **options))
    plain = plan(network(), SHAPES, "sgd", **{**options, "memory": "plain"}).planned_bytes
    budgets = [least + (plain - least) * k // 4 for k in range(5)]
    plans = [plan(network(), SHAPES, "sgd", budget=budget, **options) for budget in budgets]
    seconds = [made.figures.step_seconds for made in plans]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] == plans[-1].figures.plain_step_seconds < seconds[0]


# -- programs of a group -----------------------------------------------------------------------------------------
def test_a_program_that_needs_more_sends_more_away_and_the_others_are_compiled_again() -> None:
    executor = bound(optimizer=SGD(learning_rate=0.1, momentum=0.9), **KEPT)
    fill(executor)
    before = values_without_states(executor)
    executor.forward(is_train=False, **feeds())
    evaluated = executor.outputs[0].asnumpy()
    had = executor.group.layout.away
    executor.step(lambda names: np.zeros(2 * len(names) + 8, np.float32), **feeds())
    assert executor.group.layout.away > had
    for name, value in values_without_states(executor).items():
        if "moving" not in name:
            assert value.tobytes() == before[name].tobytes(), name
    executor.aux_dict["bn0_moving_mean"][:] = before["bn0_moving_mean"]
    for name, handle in executor.aux_dict.items():
        handle[:] = before[name]
    executor.forward(is_train=False, **feeds())
    assert executor.outputs[0].asnumpy().tobytes() == evaluated.tobytes()


def values_without_states(executor: Executor) -> dict[str, np.ndarray]:
    return {name: handle.asnumpy() for name, handle in {**executor.arg_dict, **executor.aux_dict}.items()}


def test_another_batch_size_and_a_program_without_a_budget_work_from_the_same_homes() -> None:
    def run(**options: Any) -> dict[str, np.ndarray]:
        optimizer = SGD(learning_rate=0.1, momentum=0.9)
        executor = bound(optimizer=optimizer, **options)
        fill(executor)
        executor.step(optimizer.control, **feeds())
        small = bound(2, executor, optimizer, **options)
        free = bound(3, executor, optimizer)
        for each, batch in ((small, 2), (executor, BATCH), (free, 3)):
            each.step(optimizer.control, **feeds(batch))
            each.forward(is_train=False, **feeds(batch))
        return values(executor)
    assert_same(run(**KEPT), run())


def test_a_smaller_batch_that_fits_in_plain_order_still_brings_in_what_is_away() -> None:
    inputs, draw = ("data", "softmax_label"), np.random.default_rng(1)
    data, label = draw.standard_normal((16, 3, 16, 16)).astype(np.float32), np.arange(16) % 5

    def run(**options: Any) -> dict[str, np.ndarray]:
        rule = SGD(learning_rate=0.1, momentum=0.9)
        mx.random.seed(1)
        large = Executor(convolutional(2), mx.cpu(), {"data": data.shape}, inputs=inputs, **options)
        fill(large)
        for batch in (16, 8):
            each = large if batch == 16 else large.reshape(data=(batch, *data.shape[1:]), softmax_label=(batch,))
            each.set_updater(rule)
            each.step(rule.control, data=data[:batch], softmax_label=label[:batch])
        assert bool(options) == bool(large.group.layout.away)
        return values(large)
    least = least_budget(prepare(convolutional(2), {"data": data.shape}, "sgd", memory="auto", budget=1,
                                 host_budget="1GB", optimizer_params={"momentum": 0.9}, verify=False))
    assert_same(run(budget=int(1.6 * least), host_budget="1GB"), run())


@pytest.mark.parametrize("evaluates", [False, True], ids=["first program", "one that sends more away"])
def test_values_survive_a_lack_of_room_for_the_arenas_that_are_to_take_them(evaluates: bool, monkeypatch) -> None:
    def ready(optimizer: SGD, **options: Any) -> Executor:
        executor = bound(optimizer=optimizer, **options)
        fill(executor)
        if evaluates:
            executor.forward(is_train=False, **feeds())
        return executor

    def refuse(*_: int) -> None:
        raise OutOfMemoryError("no room", 1, 0)
    rules = [SGD(learning_rate=0.1, momentum=0.9) for _ in range(2)]
    executor, expected = ready(rules[0], **KEPT), ready(rules[1])
    before = values_without_states(executor)
    with monkeypatch.context() as patch:
        patch.setattr(executor.group.memory, "reserve", refuse)
        with pytest.raises(OutOfMemoryError, match="no room"):
            executor.step(rules[0].control, **feeds())
        assert_same(values_without_states(executor), before)
    for each, rule in zip((executor, expected), rules, strict=True):
        each.step(rule.control, **feeds())
    assert_same(values(executor), values(expected))


def test_parameters_set_before_and_after_the_first_program_are_there() -> None:
    executor = bound(optimizer=SGD(learning_rate=0.1), **KEPT)
    weight = executor.arg_dict["fc1_weight"]
    weight[:] = 2.0
    weight[3] = 5.0
    assert weight.asnumpy()[3].tolist() == [5.0] * 32 and executor.arg_dict["fc2_weight"].asnumpy().any() == 0
    executor.step(lambda names: np.zeros(2 * len(names) + 8, np.float32), **feeds())
    assert "fc1_weight" in executor.group.layout.away
    assert weight.asnumpy()[3].tolist() == [5.0] * 32
    executor.copy_params_from({"fc1_weight": np.full((32, 32), 7.0, np.float32)})
    assert (weight.asnumpy() == 7.0).all()


def test_a_module_trained_from_homes_elsewhere_saves_and_loads_parameters_and_states(tmp_path) -> None:
    def module(**options: Any) -> mx.mod.Module:
        made = mx.mod.Module(network(), **options)
        made.bind([("data", (BATCH, 24))], [("softmax_label", (BATCH,))])
        return made

    def go(made: mx.mod.Module) -> dict[str, np.ndarray]:
        batch = mx.io.DataBatch([mx.nd.array(feeds()["data"])], [mx.nd.array(feeds()["softmax_label"])])
        for _ in range(2):
            made.forward_backward(batch)
            made.update()
        return {name: value.asnumpy() for part in made.get_params() for name, value in part.items()}

    first = module()
    first.init_params(mx.init.Uniform(0.3))
    first.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9, "learning_rate": 0.1})
    away = module(budget=45_000, host_budget="1MB")
    away.init_params(arg_params=first.get_params()[0], aux_params=first.get_params()[1])
    away.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9, "learning_rate": 0.1})
    assert_same(go(away), go(first))
    assert away._executor.group.layout.away
    prefix = str(tmp_path / "saved")
    away.save_checkpoint(prefix, 1, save_optimizer_states=True)
    again = mx.mod.Module.load(prefix, 1, load_optimizer_states=True)
    again.bind([("data", (BATCH, 24))], [("softmax_label", (BATCH,))])
    again.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9, "learning_rate": 0.1})
    assert_same(go(again), go(first))


def test_modes_are_compared_and_instructions_profiled_from_homes_elsewhere() -> None:
    executor = trained(**KEPT)[1]
    assert executor.check_modes("naive", **feeds()).programs == ("train", "step")
    assert executor.find_nonfinite() is None
    assert executor.profile(1).events


def test_a_ready_plan_with_homes_elsewhere_is_used(tmp_path) -> None:
    expected, ready = trained(**KEPT)
    made: Plan = ready.program("step").plan
    optimizer = SGD(learning_rate=0.1, momentum=0.9)
    executor = bound(optimizer=optimizer, **KEPT)
    executor.use_plan("step", copy.deepcopy(made))
    fill(executor)
    for _ in range(3):
        executor.step(optimizer.control, **feeds())
    assert executor.program("step").plan.planned_bytes == made.planned_bytes
    for name, value in values(executor).items():
        assert value.tobytes() == expected[name].tobytes(), name


# -- the verifier ------------------------------------------------------------------------------------------------
def test_any_copy_of_a_plan_that_is_left_out_is_found() -> None:
    made = plan(network(), SHAPES, "sgd", optimizer_params={"momentum": 0.9}, memory="auto", budget=30_000,
                host_budget="1MB")
    verify(made)
    code = made.instructions
    copies = [i for i in range(len(made)) if code.reads[i] and not code.op[i]]
    assert len(copies) > 10
    for i in copies[::3]:
        broken = copy.deepcopy(made)
        home = broken.instructions.writes[i][0]
        for column, value in (("reads", ()), ("writes", ()), ("kind", 4), ("event", 10_000 + i)):
            getattr(broken.instructions, column)[i] = value
        with pytest.raises(VerificationError) as found:
            verify(broken)
        assert str(home) in str(found.value)


def test_a_swap_file_needs_the_cpu(tmp_path) -> None:
    with pytest.raises(MXNetError):
        CpuDevice(str(tmp_path / "missing")).memory().reserve_space("home", "file", 64)
