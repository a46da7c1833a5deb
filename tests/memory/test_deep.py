"""Networks whose parameters and states do not fit the device: their plans, and how long a step takes by the model."""
from __future__ import annotations

import importlib
import os
import resource

import pytest

from minigraph.memory.machine import get_machine
from minigraph.plan.plan import Plan
from minigraph.planning import plan
from zoo import resnet

parameters, problem = (importlib.import_module(f"minigraph.memory.policies.{name}")
                       for name in ("parameters", "problem"))
FULL = os.environ.get("MINIGRAPH_TEST_FULL") == "1"
MOST_SLOWDOWN = 1.5
"""A step's modelled time over that of the same network with unlimited memory."""


def planned(units: tuple[int, ...], budget: int, host_budget: int) -> Plan:
    symbol = resnet.get_symbol(num_classes=1000, units=units)
    return plan(symbol, {"data": (16, 3, 224, 224)}, "sgd", optimizer_params={"momentum": 0.9}, memory="auto",
                machine="K40c", budget=budget, host_budget=host_budget)


def assert_deep(made: Plan, budget: int, host_budget: int) -> None:
    held = sum(made.buffers.bytes[tensor.first] for tensor in made.persistent)
    assert made.planned_bytes <= budget < held
    assert made.arena_bytes("host") <= host_budget
    assert made.figures.step_seconds <= MOST_SLOWDOWN * made.figures.plain_step_seconds


def test_parameters_and_states_beyond_the_budget_cost_at_most_half_a_step(monkeypatch) -> None:
    monkeypatch.setattr(problem, "WORK", 400)
    monkeypatch.setattr(parameters, "CHOICES_WORK", 1000)
    budget, host_budget = 1_000_000_000, 1_300_000_000
    assert_deep(planned((3, 4, 100, 3), budget, host_budget), budget, host_budget)


@pytest.mark.skipif(not FULL, reason="takes minutes; set MINIGRAPH_TEST_FULL=1")
def test_19202_layers_are_planned_for_a_k40c_and_64_gigabytes_of_host_memory() -> None:
    budget, host_budget = get_machine("K40c").memory_bytes, 64 * 10**9
    made = planned((6, 32, 6356, 6), budget, host_budget)
    assert_deep(made, budget, host_budget)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 4e9
