"""Planning a graph of twice the size takes twice the work: with many uses of a weight, many readers of a value, many
paths through a network, and many steps of a recurrence; plain, and under every policy.

Work is the number of calls, which depends neither on the machine nor on what else it does. Passes that look at all
readers of a value for each of them take four times as many at each doubling.
"""
from __future__ import annotations

import cProfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.memory.policies import POLICIES
from minigraph.memory.policies.cuts import BLOCK, Crossing, find_cuts
from minigraph.memory.policies.lineage import Lineages
from minigraph.memory.policies.openai import MOST_DISTANCES, openai
from minigraph.memory.policies.search import _prices
from minigraph.memory.policies.superneurons import MOST_RUNS, memory_centric
from minigraph.memory.schedule import RUN
from tests.memory.problems import problem_of

MOST = 2.2
"""Times the work that a doubling may take: twice, and something for lists that are sorted."""
PART = 0.8
"""Budget over the bytes of the plain plan."""
Network = tuple[Any, dict[str, tuple[int, ...]]]
Build = Callable[[int], Network]


def layer(data: Any, name: str, **options: Any) -> Any:
    return mx.sym.FullyConnected(data, num_hidden=8, no_bias=True, name=name, **options)


def loss(value: Any) -> Any:
    return mx.sym.MakeLoss(mx.sym.sum(value))


def shared_weight(uses: int) -> Network:
    h, weight = mx.sym.Variable("x"), mx.sym.Variable("weight")
    for k in range(uses):
        h = mx.sym.Activation(layer(h, f"fc{k}", weight=weight), act_type="tanh")
    return loss(h), {"x": (4, 8)}


def shared_kernel(uses: int) -> Network:
    h, weight = mx.sym.Variable("x"), mx.sym.Variable("weight")
    for k in range(uses):
        h = mx.sym.relu(mx.sym.Convolution(h, weight=weight, no_bias=True, num_filter=8, kernel=(3, 3), pad=(1, 1),
                                           name=f"conv{k}"))
    return loss(h), {"x": (2, 8, 8, 8)}


def scaled(uses: int) -> Network:
    """Elementwise layers alone, none of them costly: to a policy that looks for costly ones they are one stretch."""
    h, weight = mx.sym.Variable("x"), mx.sym.Variable("weight")
    for _ in range(uses):
        h = mx.sym.tanh(h * weight)
    return loss(h), {"x": (4, 8)}


def chain(depth: int) -> Network:
    h = mx.sym.Variable("x")
    for k in range(depth):
        h = mx.sym.tanh(layer(h, f"fc{k}"))
    return loss(h), {"x": (256, 8)}


def fan(width: int) -> Network:
    root = layer(mx.sym.Variable("x"), "fc")
    return loss(mx.sym.add_n(*[mx.sym.tanh(root * float(k + 1)) for k in range(width)])), {"x": (4, 8)}


def fan_in_turn(width: int) -> Network:
    root = layer(mx.sym.Variable("x"), "fc")
    total = mx.sym.tanh(root)
    for k in range(width):
        total = total + mx.sym.tanh(root * float(k + 2))
    return loss(total), {"x": (4, 8)}


def fans(leaves: int) -> Network:
    """A fan of fans with about so many leaves, whose sizes are the root of that."""
    width = round(leaves ** 0.5)
    root = layer(mx.sym.Variable("x"), "fc")
    inner = [mx.sym.tanh(root * float(k + 1)) for k in range(width)]
    return loss(mx.sym.add_n(*[mx.sym.add_n(*[mx.sym.tanh(h * float(k + 1)) for k in range(width)])
                               for h in inner])), {"x": (4, 8)}


def diamonds(depth: int) -> Network:
    h = layer(mx.sym.Variable("x"), "fc")
    for _ in range(depth):
        h = 0.5 * (mx.sym.relu(h) + h)
    return loss(h), {"x": (4, 8)}


def lstm(steps: int) -> Network:
    outputs, _ = mx.rnn.LSTMCell(8, prefix="lstm_").unroll(steps, mx.sym.Variable("data"), layout="NTC",
                                                           merge_outputs=False)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(outputs[-1], num_hidden=10, name="fc"), name="softmax"), \
        {"data": (64, steps, 8)}


def work(network: Network, program: str = "step", builtins: bool = True, **options: Any) -> int:
    """Calls that planning takes, whether there is a plan within the budget or not: of functions of Python, and of
    built-in ones."""
    symbol, shapes = network
    optimizer = "sgd" if program == "step" else None
    profile = cProfile.Profile(builtins=builtins)
    profile.enable()
    try:
        mx.plan(symbol, shapes, optimizer, program, **options)
    except OutOfMemoryError:
        pass
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def growths(build: Build, sizes: Sequence[int], of: Callable[[Network], int]) -> list[float]:
    """Work at each size over that at the one before; whatever is made but once is made before."""
    of(build(sizes[0] // 4))
    found = [of(build(size)) for size in sizes]
    return [after / before for before, after in zip(found, found[1:], strict=False)]


# -- plain ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("build", "sizes"), [
    (shared_weight, (500, 1000, 2000, 4000)), (shared_kernel, (60, 120, 240)), (scaled, (60, 120, 240)),
    (fan, (60, 120, 240)), (fan_in_turn, (60, 120, 240)), (fans, (121, 225, 441)), (diamonds, (60, 120, 240)),
    (lstm, (25, 50, 100))])
def test_a_step_of_a_graph_of_twice_the_size_takes_twice_the_work(build: Build, sizes: tuple[int, ...]) -> None:
    assert max(growths(build, sizes, work)) <= MOST


@pytest.mark.parametrize("machine", ["cpu", "H200"])
@pytest.mark.parametrize("program", ["train", "eval"])
def test_other_programs_take_twice_the_work_too(program: str, machine: str) -> None:
    for build, size in ((shared_weight, 120), (shared_kernel, 60), (fan, 60)):
        found = growths(build, (size, 2 * size), lambda network: work(network, program, machine=machine))
        assert max(found) <= MOST, build.__name__


# -- policies ------------------------------------------------------------------------------------------------
def under(memory: str, host: float) -> Callable[[Network], int]:
    """The work under a policy with a part of the bytes of the plain plan, and so many times them in host memory. It is
    that of Python's functions alone: a policy looks up to some hundred nodes around a value, which small graphs do not
    have, so that the steps of its loops double only from there on. And there is a plan: to find the least that a
    refusal names takes a search of a fixed number of steps."""
    def of(network: Network) -> int:
        plain = mx.plan(*network, "sgd", verify=False).planned_bytes
        return work(network, builtins=False, memory=memory, budget=int(PART * plain), host_budget=int(host * plain))
    return of


@pytest.mark.parametrize("memory", ["capuchin", "lms", "openai", "rotor", "sublinear", "superneurons", "vdnn"])
def test_a_policy_takes_twice_the_work_for_a_graph_of_twice_the_size(memory: str) -> None:
    for build, sizes in ((shared_weight, (60, 120)), (scaled, (60, 120)), (fan, (60, 120)), (fans, (100, 196)),
                         (diamonds, (120, 240)), (lstm, (30, 60))):
        found = growths(build, sizes, under(memory, 4.0))
        assert max(found) <= MOST, build.__name__


def test_every_policy_is_measured_but_for_two_of_which_another_tries_all_schedules() -> None:
    measured = test_a_policy_takes_twice_the_work_for_a_graph_of_twice_the_size.pytestmark[0].args[1]
    assert {*measured, "auto", "vdnn_all", "vdnn_conv"} == set(POLICIES)


@pytest.mark.parametrize(("build", "size", "host"), [
    (shared_weight, 30, 0.0), (shared_weight, 30, 4.0), (fan, 30, 0.0), (fan, 30, 4.0), (fans, 64, 4.0),
    (diamonds, 30, 0.0), (diamonds, 30, 4.0), (lstm, 12, 4.0)])
def test_auto_takes_no_more_than_twice_the_work_for_a_graph_of_twice_the_size(build: Build, size: int, host: float,
                                                                              ) -> None:
    assert max(growths(build, (size, 2 * size), under("auto", host))) <= MOST


# -- what policies count with --------------------------------------------------------------------------------
def test_what_crosses_each_position_is_what_is_read_behind_it() -> None:
    problem = problem_of(*lstm(40))
    crossing, last = Crossing(problem), dict[int, int]()
    assert len(problem.forward) > 2 * BLOCK
    for t, node in enumerate(problem.forward):
        last.update(dict.fromkeys(problem.reads[node], t))
    for t in range(len(problem.forward)):
        made = [e for node in problem.forward[:t + 1] for e in problem.graph.entries(node)]
        expected = [e for e in made if last.get(e, -1) > t and e in problem.droppable]
        assert crossing.at(t) == expected and crossing.count[t] == len(expected)
        assert crossing.bytes[t] == sum(problem.size_bytes[e] for e in expected)
    cuts = find_cuts(problem)
    assert cuts and all(cut.entries == frozenset(crossing.at(cut.position)) for cut in cuts)


@pytest.mark.parametrize("build", [diamonds, fan, lstm])
def test_lineages_that_are_remembered_are_those_that_are_walked_anew(build: Build) -> None:
    problem = problem_of(*build(12))
    draw = np.random.default_rng(0)
    values = [e for e in problem.saved if e in problem.droppable]
    lineages, chosen = Lineages(problem), []
    for entry in draw.permutation(values)[:12].tolist():
        lineages.choose(entry)
        chosen.append(entry)
        fresh = Lineages(problem)
        for other in chosen:
            fresh.choose(other)
        assert [lineages.seconds(e) for e in values] == [fresh.seconds(e) for e in values]


def test_a_network_without_costly_layers_is_not_made_again_for_each_of_them() -> None:
    problem = problem_of(*scaled(100))
    runs = np.bincount(memory_centric(problem).operands(RUN))
    assert len(memory_centric(problem)) <= (MOST_RUNS + 2) * len(problem.order) and runs.max() > 1


def test_a_value_far_behind_all_that_is_kept_has_no_price() -> None:
    data = mx.sym.Variable("x")
    h = layer(data, "fc")
    for _ in range(300):
        h = h + 1.0
    near, far = mx.sym.tanh(layer(data, "near")), mx.sym.tanh(h)
    problem = problem_of(loss(near + far), {"x": (4, 8)}, fuse=False)
    priced = {problem.graph.entry_name(e) for e in _prices(problem)}
    names = {problem.graph.entry_name(e) for e in problem.saved if e in problem.droppable}
    assert priced and len(names - priced) == 1


def test_as_many_distances_between_bottlenecks_are_tried_on_long_chains() -> None:
    problem = problem_of(*chain(1200))
    assert len(openai(problem)) <= MOST_DISTANCES + 5
