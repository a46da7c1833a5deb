"""Dear values of graphs in slices: all slices alike, as many as the link can copy, and no single change saves time."""
from __future__ import annotations

from dataclasses import replace

import pytest

import minigraph as mx
from minigraph.memory.policies import Problem, Slicing
from minigraph.memory.policies.exchange import WAYS, Passes, choose, exchanged
from minigraph.memory.policies.ground import Ground
from minigraph.memory.policies.hybrid import postponed
from minigraph.memory.policies.play import EARLY_SECONDS, EARLY_SHARE, Play
from tests.memory.problems import problem_of


@pytest.fixture(scope="module")
def cut() -> Problem:
    """A residual network of three units in slices, on a machine with a slow link."""
    h = mx.sym.Variable("data")
    for k in range(3):
        y = h
        for name, filters, kernel in (("narrow", 8, 1), ("square", 8, 3), ("wide", 32, 1)):
            y = mx.sym.Convolution(y, kernel=(kernel, kernel), pad=(kernel // 2, kernel // 2), num_filter=filters,
                                   no_bias=True, name=f"{name}{k}")
            y = mx.sym.BatchNorm(y, fix_gamma=False, name=f"{name}{k}_bn")
            y = y if name == "wide" else mx.sym.Activation(y, act_type="relu")
        h = mx.sym.Activation(y if k == 0 else h + y, act_type="relu", name=f"unit{k}")
    h = mx.sym.FullyConnected(mx.sym.Pooling(h, global_pool=True, kernel=(1, 1), pool_type="avg"), num_hidden=5)
    shapes = {"data": (128, 8, 48, 48), "softmax_label": (128,)}
    problem = problem_of(mx.sym.SoftmaxOutput(h, name="softmax"), shapes, machine="P100", host_budget="8GiB")
    found = problem.sliced(Slicing(4, 1 << 20))
    assert found is not None
    return found


@pytest.mark.parametrize("hidden, with_inputs", WAYS)
def test_all_slices_of_a_value_are_dear_or_none_and_the_link_can_copy_them(cut: Problem, hidden: float,
                                                                           with_inputs: bool) -> None:
    ground = Ground(postponed(cut))
    dear, passes = choose(ground, hidden, with_inputs), Passes(ground, hidden)
    assert ground.inputs and dear & ground.inputs == (ground.inputs if with_inputs else set())
    assert dear - ground.inputs and dear <= ground.alone | ground.inputs
    for alike in passes.kin.values():
        assert len(alike) == 4
        assert len(dear.intersection(alike)) in (0, 4)
    assert sum(map(cut.copy_out_seconds, dear)) <= ground.starts[cut.backward_start]


def test_no_single_change_of_the_choice_saves_time_at_its_price(cut: Problem) -> None:
    passes = Passes(Ground(postponed(cut)), 0.1)
    for price in (0.05, 0.3, 1.0):
        def spent(dear: set[int], price: float = price) -> float:
            out = price * sum(map(cut.copy_out_seconds, dear))
            return out + sum(passes._cost(wanted, dear)[0] for wanted in passes.wanted)
        best = set(passes.best(price, frozenset()))
        assert all(spent(best ^ {entry}) >= spent(best) - 1e-12 for entry in passes.choices)


def test_schedules_stay_near_the_machines_memory_and_need_host_memory(cut: Problem) -> None:
    assert not list(exchanged(replace(cut, host_budget_bytes=0)))
    peak = Ground(postponed(cut)).peak_bytes
    small = replace(cut, machine=replace(cut.machine, memory_bytes=peak * 2 // 3))
    found = [small.quick(schedule) for schedule in exchanged(small)]
    assert found
    assert all(taken.peak_bytes < peak * 0.75 for taken in found)


def test_own_targets_lie_below_plain_and_above_what_no_choice_goes_below(cut: Problem) -> None:
    ground = Ground(postponed(cut))
    lowest, own = ground.targets(4)[-4], cut.machine.memory_bytes
    near = [(lowest + 1) / own, ground.peak_bytes / own]
    assert ground.own_targets([near[1] * 2, near[1] * 0.9, near[0] * 0.5]) == [int(near[1] * 0.9 * own)]


def test_copies_back_of_a_long_step_begin_earlier(cut: Problem) -> None:
    ground = Ground(postponed(cut))
    short = Play(ground, ground.peak_bytes, frozenset()).early
    ground.starts = [1000 * seconds for seconds in ground.starts]
    assert short <= EARLY_SECONDS + EARLY_SHARE * ground.starts[-1] / 1000
    assert Play(ground, ground.peak_bytes, frozenset()).early == EARLY_SHARE * ground.starts[-1] > EARLY_SECONDS
