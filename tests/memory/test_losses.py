"""What values cost to get back: the columns of a play are what counting each value by itself comes to."""
from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

import minigraph as mx
from minigraph.memory.policies import Problem
from minigraph.memory.policies.ground import FEW, Ground
from minigraph.memory.policies.losses import MOMENT, NEVER, Losses
from tests.memory.problems import problem_of
from tests.memory.test_policies import convolutional

HIDDEN = 0.3


@dataclass
class Moment:
    """Where a play is: its step, its clock, until when the link out is busy, and what may not leave."""

    step: int
    clock: float
    link_out: float
    locked: set[int]


def again(losses: Losses, problem: Problem, entry: int) -> float:
    """Seconds to make a value from what is there."""
    node = problem.graph.node_of[entry]
    total = problem.seconds[node]
    for source in problem.reads[node]:
        if source in losses.gone:
            back = problem.copy_in_seconds(source) if source in losses.copied else float("inf")
            total += min(losses.ground.again[source], back)
    return total


def loss(losses: Losses, problem: Problem, entry: int, dear: bool, now: Moment) -> float | None:
    """The loss of one value, counted by itself; None where it may not leave."""
    use = next((t for t in losses.uses[entry] if t >= now.step), NEVER)
    if entry in now.locked or not dear and use < problem.backward_start:
        return None
    seconds = again(losses, problem, entry)
    if dear:
        out = max(now.link_out - now.clock, 0.0) + problem.copy_out_seconds(entry)
        stall = max(losses.copied[entry] - now.clock, 0.0) if entry in losses.copied else out
        seconds = stall + min(HIDDEN * problem.copy_in_seconds(entry), seconds)
    starts = losses.ground.starts
    until = starts[min(use, len(starts) - 1)] - starts[now.step]
    return seconds / problem.size_bytes[entry] / (until + MOMENT)


def fan(width: int) -> mx.sym.Symbol:
    """A value with many readers, and one that is made from many."""
    root = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=64, name="fc")
    total = mx.sym.add_n(*[mx.sym.tanh(root * (k + 1.0)) for k in range(width)])
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.tanh(total)))


@pytest.mark.parametrize("share", [0.0, 1.0, 1e6])
@pytest.mark.parametrize(("network", "shape"), [(convolutional(), (64, 3, 32, 32)), (fan(8 * FEW), (64, 64))])
def test_values_are_ranked_as_if_each_were_counted_by_itself(network: mx.sym.Symbol, shape: tuple[int, ...],
                                                             share: float) -> None:
    problem = problem_of(network, {"data": shape}, host_budget="1GiB", machine="P100")
    ground, draw = Ground(problem), random.Random(3)
    dear = ground.dear(share)
    losses = Losses(ground, dear, HIDDEN, {e: sorted(steps) for e, steps in ground.readers.items()})
    here, gone, ranks = set[int](), set[int](), 0
    for step in range(len(problem.order)):
        now = Moment(step, ground.starts[step] * 1.25, ground.starts[step] * draw.choice([1.0, 2.0]), set())
        for entry in sorted(ground.managed.intersection(problem.graph.entries(problem.order[step]))):
            losses.come(entry)
            here.add(entry)
        for entry in draw.sample(sorted(here), min(len(here), 1)):
            if entry in dear:
                losses.copy(entry, now.clock * draw.choice([0.5, 1.5]))
            losses.leave(entry)
            here.discard(entry)
            gone.add(entry)
        if gone and draw.random() < 0.4:
            back = draw.choice(sorted(gone))
            losses.come(back)
            gone.discard(back)
            here.add(back)
        now.locked = set(draw.sample(sorted(here), len(here) // 4))
        counted = {e: loss(losses, problem, e, e in dear, now) for e in here}
        expected = sorted((found, e) for e, found in counted.items() if found is not None)
        assert list(losses.ranked(step, now.clock, now.link_out, now.locked)) == expected
        assert losses.gone == gone and all(losses.is_on_device(e) for e in here)
        ranks += len(expected)
    assert ranks > 100
