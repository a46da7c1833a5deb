"""A plan tells what its outputs and persistent tensors are computed from, and the verifier finds it again."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.optimizer import SGD
from minigraph.plan.plan import Kind, Output, Persistent, Plan
from minigraph.plan.serialize import dumps, loads
from minigraph.plan.verify import VerificationError, verify
from minigraph.planning import plan as compiled

from .build import corrupt
from .failing import failure

SHAPES = {"data": (4, 8)}


def network(layers: int = 3) -> mx.sym.Symbol:
    """Layers of one width with dropout and normalisation, and two outputs of one shape."""
    h = mx.sym.Variable("data")
    for k in range(layers):
        h = mx.sym.FullyConnected(h, num_hidden=8, name=f"fc{k}")
        h = mx.sym.Dropout(mx.sym.BatchNorm(mx.sym.tanh(h), fix_gamma=False, name=f"bn{k}"), p=0.3)
    return mx.sym.Group([mx.sym.BlockGrad(mx.sym.tanh(h), name="first"),
                         mx.sym.MakeLoss(mx.sym.square(h), name="loss")])


@cache
def plan_of(memory: str = "plain", share: float | None = None, **options: object) -> Plan:
    """A plan of a training step; with a share of what plain takes as the budget, or the least there is."""
    if share is None:
        return compiled(network(), SHAPES, optimizer=SGD(momentum=0.9), memory=memory, **options)
    budget = int(share * plan_of().planned_bytes)
    try:
        return compiled(network(), SHAPES, optimizer=SGD(momentum=0.9), memory=memory, budget=budget, **options)
    except OutOfMemoryError as refused:
        return compiled(network(), SHAPES, optimizer=SGD(momentum=0.9), memory=memory, budget=refused.asked_bytes,
                        **options)


PLANS: dict[str, Callable[[], Plan]] = {
    "plain": plan_of, "naive": lambda: plan_of("naive"), "recomputed": lambda: plan_of("sublinear"),
    "swapped": lambda: plan_of("vdnn_all", host_budget="1GiB"),
    "with homes on the host": lambda: plan_of("auto", 0.1, host_budget="1GiB"),
    "in slices": lambda: plan_of("plain", slices=2)}


@pytest.mark.parametrize("form", PLANS)
def test_the_values_of_every_kind_of_plan_are_those_of_its_graph_also_from_a_file(form: str) -> None:
    plan = PLANS[form]()
    assert len(plan.expected) == len(plan.outputs) + len(plan.persistent) and len(set(plan.expected)) > 8
    verify(loads(dumps(plan)))


@pytest.mark.parametrize("form", PLANS)
def test_outputs_that_are_exchanged_are_refused(form: str) -> None:
    plan = PLANS[form]()
    (first, a), (second, b) = plan.outputs
    error = failure(replace(plan, outputs=(Output(first, b), Output(second, a))))
    assert f"output {first!r}" in str(error) and "not computed as the graph says" in str(error)


def of_one_type(plan: Plan, buffers: list[int]) -> list[tuple[int, int]]:
    """Pairs of buffers of equal shape and dtype."""
    columns = plan.buffers
    return [(a, b) for a in buffers for b in buffers
            if a != b and (columns.shape[a], columns.dtype[a]) == (columns.shape[b], columns.dtype[b])]


@pytest.mark.parametrize("form", ["swapped", "with homes on the host"])
def test_a_copy_of_another_value_is_refused(form: str) -> None:
    plan = PLANS[form]()
    code, tried = plan.instructions, 0
    for kind in (Kind.COPY_OUT, Kind.COPY_IN):
        copies = [i for i, each in enumerate(code.kind) if each == kind]
        for a, b in of_one_type(plan, [code.reads[i][0] for i in copies]):
            at = next(i for i in copies if code.reads[i][0] == a)
            with pytest.raises(VerificationError):
                verify(corrupt(plan, i_reads=(at, (b,))))
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("form", PLANS)
def test_reads_of_another_value_of_the_type_are_refused(form: str) -> None:
    plan = PLANS[form]()
    code, draw, tried = plan.instructions, np.random.default_rng(0), 0
    for i in draw.permutation(len(plan)):
        if code.kind[i] != Kind.COMPUTE:
            continue
        columns = plan.buffers
        for k, read in enumerate(code.reads[i]):
            others = [b for b in range(len(columns)) if b not in code.reads[i] and not columns.view[b]
                      and (columns.shape[b], columns.dtype[b], columns.bytes[b]) == (
                          columns.shape[read], columns.dtype[read], columns.bytes[read]) and columns.bytes[b]
                      and columns.born[b] < i < columns.dies[b]]
            if k in code.unread[i] or not others or tried == 30:
                continue
            reads = (*code.reads[i][:k], int(draw.choice(others)), *code.reads[i][k + 1:])
            with pytest.raises(VerificationError):
                verify(corrupt(plan, i_reads=(int(i), reads)))
            tried += 1
    assert tried >= 10


def test_a_gradient_whose_home_is_never_written_is_refused() -> None:
    symbol = mx.sym.identity(mx.sym.Variable("x"))
    with pytest.raises(OutOfMemoryError) as refused:
        symbol.simple_bind(mx.cpu(), x=(2, 3), memory="auto", budget=1, host_budget="1GiB").program("train")
    plan = symbol.simple_bind(mx.cpu(), x=(2, 3), memory="auto", budget=refused.value.asked_bytes,
                              host_budget="1GiB").program("train").plan
    verify(plan)
    persistent = tuple(Persistent(t.name, t.first, t.first) for t in plan.persistent)
    for expected in (plan.expected, ()):
        with pytest.raises(VerificationError, match="x/grad"):
            verify(replace(plan, persistent=persistent, expected=expected))
    code = plan.instructions
    home = next(i for i, kind in enumerate(code.kind) if kind == Kind.COPY_OUT)
    with pytest.raises(VerificationError):
        verify(corrupt(plan, i_kind=(home, Kind.RECORD), i_reads=(home, ()), i_writes=(home, ()), i_event=(home, 99)))


def test_a_change_that_is_left_out_is_refused() -> None:
    plan = plan_of()
    updates = [i for i, op in enumerate(plan.instructions.op) if "sgd" in op]
    kept = [i for i in range(len(plan)) if i != updates[0]]
    with pytest.raises(VerificationError):
        verify(replace(plan, instructions=plan.instructions.selected(kept), ranges={"step": (0, len(kept))}))
