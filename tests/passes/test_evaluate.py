"""What a refused budget says: the least that would do, and the instruction and tensors that force it."""
from __future__ import annotations

import copy
import re
from dataclasses import replace

import pytest

import minigraph as mx
from minigraph.base import Algorithm, MXNetError, OutOfMemoryError
from minigraph.passes import evaluate
from minigraph.passes.pipeline import compile_program
from minigraph.plan.peak import peak_tensors
from minigraph.plan.report import report
from minigraph.planning import least_budget, plan, prepare

SHAPES = {"data": (4, 3, 16, 16)}


def network(blocks: int = 5) -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k in range(blocks):
        h = mx.sym.Activation(mx.sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"conv{k}"),
                              act_type="tanh", name=f"tanh{k}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc"), name="softmax")


def refusal(memory: str, **options) -> OutOfMemoryError:
    with pytest.raises(OutOfMemoryError) as refused:
        plan(network(), SHAPES, "sgd", "step", memory, budget=1000, **options)
    return refused.value


@pytest.mark.parametrize("memory", ["plain", "auto", "sublinear"])
def test_a_refusal_names_the_instruction_at_the_peak_of_the_least_plan_and_its_three_largest_tensors(memory) -> None:
    error = refusal(memory)
    least = plan(network(), SHAPES, "sgd", "step", memory, budget=error.asked_bytes)
    index, name = report(least).peak_instruction
    assert f"instruction {index}, {name}," in str(error)
    largest = peak_tensors(least, count=3)
    assert len(largest) == 3
    for tensor in largest:
        assert f"{tensor.name} (" in str(error) and f"{tensor.buffer_class} of {tensor.layer})" in str(error)


def test_no_candidate_is_packed_twice_for_the_same_capacity_to_refuse_a_budget(monkeypatch) -> None:
    packed: list[object] = []
    carried_out = evaluate._carried_out
    monkeypatch.setattr(evaluate, "_carried_out",
                        lambda state, c, *rest: packed.append((c, *rest)) or carried_out(state, c, *rest))
    program = prepare(network(), SHAPES, "sgd", memory="auto")
    least = least_budget(program)
    for budget in (1000, least - 1):
        packed.clear()
        with pytest.raises(OutOfMemoryError):
            compile_program(program.graph, replace(program.request, budget_bytes=budget),
                            copy.deepcopy(program.layout))
        assert packed and len({(id(candidate), *rest) for candidate, *rest in packed}) == len(packed)


def test_a_refusal_is_one_paragraph_with_both_budgets() -> None:
    error = refusal("auto")
    assert "\n" not in str(error)
    asked = re.search(r"least that it can do with is (\d+) bytes", str(error))
    assert asked is not None and int(asked[1]) == error.asked_bytes and error.free_bytes == 1000


def test_a_refusal_leaves_the_layout_as_it_was() -> None:
    program = prepare(network(), SHAPES, "sgd", memory="auto", optimizer_params={"momentum": 0.9})
    before = dict(program.layout.places)
    least = least_budget(program)
    assert program.layout.places == before
    assert plan(network(), SHAPES, "sgd", memory="auto", budget=least,
                optimizer_params={"momentum": 0.9}).planned_bytes <= least


def test_a_host_budget_without_room_is_refused_as_such() -> None:
    with pytest.raises(MXNetError, match="host budget of 1 bytes has no room"):
        plan(network(), SHAPES, "sgd", "step", "vdnn_all", budget=1000, host_budget=1)


def test_the_smallest_workspaces_are_taken_where_larger_ones_do_not_pack(monkeypatch) -> None:
    ways = (Algorithm("fast", 4096), Algorithm("lean", 0, extra_bytes=1))
    program = prepare(network(), SHAPES, "sgd", memory="auto", verify=False)
    budget = 2 * plan(network(), SHAPES, "sgd").planned_bytes
    request = replace(program.request, algorithms=lambda op, params, ins, outs: ways, budget_bytes=budget)
    pack = evaluate.assign_offsets

    def pack_badly(trial, capacity_bytes=None) -> None:
        pack(trial, capacity_bytes)
        if any(algorithm is not None and algorithm.workspace_bytes for algorithm in trial.algorithms):
            trial.transient_bytes += budget

    assert "fast" in compile_program(program.graph, request, copy.deepcopy(program.layout)).instructions.algorithm
    monkeypatch.setattr(evaluate, "assign_offsets", pack_badly)
    made = compile_program(program.graph, request, copy.deepcopy(program.layout))
    assert "fast" not in made.instructions.algorithm and "lean" in made.instructions.algorithm


def test_nothing_is_moved_or_made_again_where_the_plain_order_fits_and_is_no_slower() -> None:
    plain = plan(network(), SHAPES, "sgd", "step", "plain")
    found = plan(network(), SHAPES, "sgd", "step", "auto", budget="1 GiB", host_budget="1 GiB")
    assert found.figures.step_seconds == plain.figures.step_seconds
    assert list(found.instructions.name) == list(plain.instructions.name)
    assert {arena.space for arena in found.arenas} == {"device"}
