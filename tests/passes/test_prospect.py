"""Whether a program has a plan within its budget is told before it is compiled, with hardly anything packed."""
from __future__ import annotations

import copy
from dataclasses import replace

import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.passes import evaluate
from minigraph.passes.pipeline import compile_program
from minigraph.passes.prospect import Prospect
from minigraph.planning import Program, least_budget, prepare

SHAPES = {"data": (64, 16)}


def network(depth: int = 4) -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k in range(depth):
        h = mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=16, name=f"fc{k}"), act_type="tanh", name=f"tanh{k}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=5, name="last"), name="softmax")


def program(memory: str, host: str | None = None, slices: int = 1) -> Program:
    return prepare(network(), SHAPES, "sgd", memory=memory, budget=1, host_budget=host, slices=slices)


def prospect(made: Program, budget: int) -> Prospect:
    return Prospect(made.graph, replace(made.request, budget_bytes=budget), copy.deepcopy(made.layout))


@pytest.fixture
def packings(monkeypatch) -> list[int]:
    """The counts of the candidates that are packed, in order."""
    packed: list[int] = []
    carried_out = evaluate._carried_out
    monkeypatch.setattr(evaluate, "_carried_out",
                        lambda state, c, *rest: packed.append(c.peak_bytes) or carried_out(state, c, *rest))
    return packed


CHOICES = [("plain", None, 1), ("auto", None, 1), ("auto", "1MiB", 1), ("sublinear", None, 1), ("lms", "1MiB", 1),
           ("auto", None, 4), ("plain", None, 4)]


@pytest.mark.parametrize("memory, host, slices", CHOICES)
def test_it_tells_the_budgets_that_compiling_keeps_and_its_plan_is_the_same(memory, host, slices) -> None:
    made = program(memory, host, slices)
    least = least_budget(made)
    for budget in (least - 1, least, 2 * least):
        asked = prospect(made, budget)
        packed = asked.packed()
        assert (packed is not None) == (budget >= least)
        request = replace(made.request, budget_bytes=budget)
        if packed is None:
            with pytest.raises(OutOfMemoryError) as refused:
                asked.plan()
            assert refused.value.asked_bytes == least
        else:
            assert packed <= budget
            whole = compile_program(made.graph, request, copy.deepcopy(made.layout))
            assert asked.plan().fingerprint == whole.fingerprint


@pytest.mark.parametrize("memory", ["plain", "auto", "sublinear"])
def test_nothing_is_packed_to_count_or_to_refuse_what_counts_refuse(memory, packings) -> None:
    made = program(memory)
    asked = prospect(made, 1000)
    least = asked.count()
    assert 1000 < least.bytes <= asked.count_alike(least.slicing)
    assert asked.packed() is None and not packings


def test_of_those_that_fit_the_one_with_most_room_is_packed_alone_and_not_again_for_its_plan(packings) -> None:
    made = program("auto")
    least = least_budget(made)
    packings.clear()
    asked = prospect(made, 2 * least)
    assert asked.packed() is not None
    assert packings == [asked.count().bytes]
    tight = prospect(made, least)
    packings.clear()
    tight.packed()
    tight.plan()
    assert len(packings) == len(set(packings))


def test_what_is_in_as_many_slices_is_counted_alone_and_no_lower_than_all() -> None:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=16, name="conv")
    h = mx.sym.Pooling(mx.sym.Activation(h, act_type="relu"), kernel=(48, 48), pool_type="avg", name="pool")
    made = prepare(mx.sym.SoftmaxOutput(mx.sym.Flatten(h), name="softmax"), {"data": (16, 3, 48, 48)}, "sgd",
                   memory="auto", budget=1)
    least = prospect(made, 1).count()
    assert least.slicing is not None
    assert prospect(made, 1).count_alike(least.slicing) == least.bytes
    assert prospect(made, 1).count_alike(None) > least.bytes


def test_the_time_of_what_was_asked_before_is_in_the_plan() -> None:
    asked = prospect(program("sublinear"), 10**6)
    asked.packed()
    before = asked._state.seconds["schedule"]
    assert asked.plan().figures.pass_seconds["schedule"] > before > 0
