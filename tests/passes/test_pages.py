"""Plans by pages: what they are made for, and that they change no bit, keep to budgets and name the least of them."""
from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.context import Context
from minigraph.device.cpu.pages import least_page_bytes
from minigraph.executor import Executor
from minigraph.memory.packing import Problem, Solution
from minigraph.optimizer import SGD
from minigraph.passes import pack
from minigraph.passes.pipeline import compile_program
from minigraph.plan.plan import Plan
from minigraph.planning import Program, least_budget, plan, prepare
from tests.memory.test_policies import convolutional
from tests.training import with_values

pytestmark = pytest.mark.skipif(not least_page_bytes(), reason="this system maps no pages twice")

SHAPE, STEPS = (16, 3, 16, 16), 2
POLICIES: dict[str, dict[str, Any]] = {
    "auto": {}, "auto and host memory": {"host_budget": "1GiB"}, "auto in slices": {"slices": 4}, "sublinear": {},
    "vdnn_all": {"host_budget": "1GiB"}, "superneurons": {"host_budget": "1GiB"}, "capuchin": {"host_budget": "1GiB"},
    "lms": {"host_budget": "1GiB"}, "openai": {}, "rotor": {}}


def pack_apart(problem: Problem, capacity_bytes: int | None = None, effort: str = "default") -> Solution:
    """Packing in one piece that reuses nothing, so that every budget is met by pages."""
    return Solution(problem.naive_offsets, problem.naive_bytes, "apart")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "pack", pack_apart)


def program(policy: str, optimizer: str | None = "sgd", **options: Any) -> Program:
    return prepare(convolutional(3), {"data": SHAPE}, optimizer, memory=policy.split()[0], verify=False,
                   **{"budget": 1, **POLICIES[policy], **options})


def bind(policy: str, context: Context | None = None, **options: Any) -> Executor:
    symbol, inputs = convolutional(3), ("data", "softmax_label")
    requests = {name: "null" if name in inputs else "write" for name in symbol.list_arguments()}
    mx.random.seed(4)
    exe = Executor(symbol, context or mx.cpu(), {"data": SHAPE}, inputs=inputs, grad_req=requests,
                   memory=policy.split()[0], **{"poison": True, **options})
    return with_values(exe)


def steps(exe: Executor) -> list[bytes]:
    """Outputs of some steps, and what they left."""
    rule, draw = SGD(learning_rate=0.1, momentum=0.9), np.random.RandomState(1)
    exe.set_updater(rule)
    found = []
    for _ in range(STEPS):
        found += [o.asnumpy() for o in exe.step(rule.control, data=draw.randn(*SHAPE).astype(np.float32),
                                                softmax_label=draw.randint(0, 5, SHAPE[0]).astype(np.float32))]
    found += [array.asnumpy() for array in (*exe.arg_arrays, *exe.aux_arrays)]
    assert all(np.isfinite(each).all() for each in found)
    return [each.tobytes() for each in found]


def mapped_buffers(made: Plan) -> int:
    return sum(made.arenas[arena].space == "mapped" for arena in made.buffers.arena)


@pytest.fixture(scope="module")
def reference() -> list[bytes]:
    return steps(bind("plain"))


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("policy", POLICIES)
def test_tensors_in_pieces_change_no_bit_under_the_least_budget_of_a_policy(policy: str,
                                                                            reference: list[bytes]) -> None:
    options = {"budget": least_budget(program(policy, optimizer_params={"momentum": 0.9})), **POLICIES[policy]}
    exe = bind(policy, **options)
    assert steps(exe) == reference
    made = exe.plan
    assert made.figures.packing == "pages" and mapped_buffers(made) and made.planned_bytes <= options["budget"]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("policy", ["auto", "auto and host memory", "superneurons"])
def test_the_least_budget_by_pages_is_accepted_and_less_is_refused_naming_the_same(policy: str) -> None:
    made = program(policy)
    least = least_budget(made)

    def compiled(budget: int) -> Plan:
        return compile_program(made.graph, replace(made.request, budget_bytes=budget), copy.deepcopy(made.layout))
    assert compiled(least).planned_bytes <= least
    for less in (1, least // 50):
        with pytest.raises(OutOfMemoryError) as refused:
            compiled(least - less)
        assert refused.value.asked_bytes == least


@pytest.mark.usefixtures("apart")
def test_a_program_in_pieces_and_one_that_is_not_share_a_transient_arena() -> None:
    exes = [bind("plain"), bind("auto", budget=2 * least_budget(program("auto", None)))]
    draw = np.random.RandomState(1)
    data = draw.randn(*SHAPE).astype(np.float32)
    label = draw.randint(0, 5, SHAPE[0]).astype(np.float32)
    found = []
    for exe in exes:
        results = []
        for train in (True, False, True, False):
            results += [o.asnumpy().tobytes() for o in exe.forward(is_train=train, data=data, softmax_label=label)]
            if train:
                exe.backward()
                results += [g.asnumpy().tobytes() for g in exe.grad_dict.values() if g is not None]
        found.append(results)
    assert found[0] == found[1]
    assert [mapped_buffers(exes[1].program(name).plan) > 0 for name in ("train", "eval")] == [True, False]


def test_what_fits_in_one_piece_is_not_mapped_nor_is_anything_without_a_budget() -> None:
    symbol, shapes = convolutional(3), {"data": SHAPE}
    for options in ({}, {"budget": "1GiB"}, {"budget": "1GiB", "memory": "sublinear"}):
        assert not plan(symbol, shapes, "sgd", **options).page_bytes


@pytest.mark.usefixtures("apart")
def test_where_a_device_maps_no_pages_every_tensor_lies_in_one_piece() -> None:
    made = program("auto")
    request = replace(made.request, page_bytes=0, budget_bytes=1 << 30)
    found = compile_program(made.graph, request, copy.deepcopy(made.layout))
    assert not mapped_buffers(found) and len(found.arenas) == 2
