"""The integer program is right where the answer is known, and `auto` is near it."""
from __future__ import annotations

import pytest

import minigraph as mx
from benchmarks import optimum
from minigraph.memory.schedule import RUN, from_order

pytest.importorskip("scipy.optimize", reason="the integer program needs scipy")


def widening() -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k, width in enumerate((64, 128, 256)):
        h = mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=width, no_bias=True, name=f"fc{k}"), act_type="tanh")
    return mx.sym.MakeLoss(mx.sym.sum(h))


def test_with_room_for_everything_the_program_runs_nothing_again() -> None:
    problem = optimum.problem_of(widening(), {"data": (64, 32)})
    plain = problem.quick(from_order(problem.order))
    schedule = optimum.Program(problem).solve(plain.peak_bytes * 2)
    assert schedule is not None
    assert problem.quick(schedule).seconds == pytest.approx(plain.seconds)


def test_a_budget_below_everything_has_no_schedule() -> None:
    problem = optimum.problem_of(widening(), {"data": (64, 32)})
    assert optimum.Program(problem).solve(1) is None


def test_the_programs_schedule_keeps_to_its_budget_and_runs_backward_once() -> None:
    for seed in (0, 1, 2):
        problem = optimum.problem_of(*optimum.network(seed))
        plain = problem.quick(from_order(problem.order)).peak_bytes
        least = min(candidate.peak_bytes for candidate in optimum.auto(problem))
        budget = (plain + least) // 2
        schedule = optimum.Program(problem).solve(budget)
        assert schedule is not None and problem.quick(schedule).peak_bytes <= budget
        order = [node for kind, node in schedule.steps if kind == RUN]
        assert all(order.count(node) == 1 for node in problem.order[problem.backward_start:])


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_auto_is_within_a_few_percent_of_the_optimum(seed: int) -> None:
    rows = optimum.measure(seed, (0.2, 0.6))
    assert rows and all(row.ratio <= 1.05 for row in rows)
    assert all(row.optimum_seconds >= row.plain_seconds for row in rows)
