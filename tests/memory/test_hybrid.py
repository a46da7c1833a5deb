"""Values kept, swapped or computed again by what they cost: right to the bit, within the target, on any graph."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import Entry
from minigraph.device.cpu import Delay
from minigraph.memory.policies import POLICIES, Candidate, Problem, Strategy
from minigraph.memory.policies.ground import Ground
from minigraph.memory.policies.hybrid import _repaired, lowest, played, postponed
from minigraph.memory.policies.play import Play
from minigraph.memory.policies.problem import repeats_alike
from minigraph.memory.schedule import DROP, IN, OUT, from_order
from tests.memory.problems import problem_of
from tests.memory.test_policies import chain, convolutional, trained
from tests.random_graphs import base_seed, random_case, results
from zoo import resnet

SEEDS = [base_seed() + k for k in range(18)]
SLOW = 2e-4
"""The longest sleep before an instruction, in seconds: many times an operator on these small tensors."""


@dataclass
class Tight:
    """A policy that plays one target between the lowest and the plain peak, with a share of dear values; inputs, too,
    are dear where all values may be."""

    depth: float
    share: float
    steps: tuple[tuple[str, int], ...] = ()
    counted_bytes: int = -1

    def __call__(self, problem: Problem) -> list[Candidate]:
        """The candidate, whatever it costs; plain where the play came to no end."""
        ground = Ground(postponed(problem))
        lowest = min(ground.targets(6), default=ground.peak_bytes)
        dear = ground.dear(self.share) | (ground.inputs if self.share > 1 else frozenset())
        by_copy = dear if self.share > 1 else frozenset[Entry]()
        target = int(ground.peak_bytes - self.depth * (ground.peak_bytes - lowest))
        found = Play(ground, target, dear, by_copy).run() or from_order(problem.order)
        taken = problem.quick(found)
        self.steps, self.counted_bytes = found.steps, taken.peak_bytes
        return [Candidate(found, taken.peak_bytes, taken.seconds, taken.host_bytes)]


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch):
    """Registers a Tight policy under the name `tight`, and returns it."""
    def register(depth: float, share: float) -> Tight:
        policy = Tight(depth, share)
        monkeypatch.setitem(POLICIES, "tight", Strategy(policy, "lowest"))
        return policy
    return register


def kinds(steps: Sequence[tuple[str, int]]) -> dict[str, int]:
    """How often each kind of step that moves or drops a value occurs."""
    return {kind: sum(k == kind for k, _ in steps) for kind in (DROP, OUT, IN)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_play_with_delayed_copies_and_poison_gives_the_bits_of_plain(seed: int, tight) -> None:
    policy = tight([0.3, 0.7, 1.0][seed % 3], [0.0, 1.0, 1e6][seed // 3 % 3])
    case = random_case(seed)
    reference = results(case, case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, **case.shapes), seed)
    executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, memory="tight", host_budget="1GiB",
                                       poison=True, **case.shapes)
    planned = executor.plan.figures
    assert policy.counted_bytes == planned.lower_bound_bytes
    executor.group.device.delay = Delay(seed, *[(SLOW, 0, 0), (0, SLOW, 0), (0, 0, SLOW)][seed % 3])
    found = results(case, executor, seed)
    assert not [name for name in reference if found[name] != reference[name]]


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("share", [0.0, 1.0, 1e6])
def test_a_network_with_batch_statistics_and_dropout_trains_as_plain(slices: int, share: float, tight) -> None:
    plain, _ = trained(convolutional())
    policy = tight(1.0, share)
    found, executor = trained(convolutional(), memory="tight", host_budget="1GiB", poison=True, slices=slices)
    assert found == plain
    counted = kinds(policy.steps)
    assert counted[DROP] > 0 and (counted[IN] > 0) == (share > 0), counted


def test_plays_are_within_their_targets_on_a_chain() -> None:
    problem = problem_of(chain(16), {"data": (512, 512)}, host_budget="1GiB")
    ground = Ground(problem)
    for share, least in ((0.0, 3), (1.0, 6)):
        found = [(target, Play(ground, target, ground.dear(share)).run()) for target in ground.targets(6)]
        reached = [problem.quick(play).peak_bytes <= target for target, play in found if play is not None]
        assert all(reached) and len(reached) >= least, "a play is given up only where much would run again and again"


def test_an_input_waits_for_backward_in_host_memory_where_that_is_asked_for() -> None:
    problem = problem_of(chain(4), {"data": (4096, 1024)}, host_budget="1GiB", machine="P100")
    ground = Ground(problem)
    (data,), target, all_dear = ground.inputs, ground.peak_bytes // 2, ground.dear(1e6)
    assert problem.graph.entry_name(data) == "data"
    stays, leaves = (Play(ground, target, dear).run() for dear in (all_dear, all_dear | ground.inputs))
    assert stays is not None and leaves is not None
    assert [kind for kind, entry in leaves.steps if kind != "run" and entry == data] == [OUT, DROP, IN]
    assert not any(kind != "run" and entry == data for kind, entry in stays.steps)
    assert problem.quick(leaves).peak_bytes < problem.quick(stays).peak_bytes


def test_dear_values_are_the_costly_ones_and_as_many_as_the_link_can_take() -> None:
    problem = problem_of(convolutional(), {"data": (64, 3, 32, 32)}, host_budget="1GiB", machine="P100")
    ground = Ground(problem)
    none, some, every = (ground.dear(share) for share in (0.0, 1.0, 1e6))
    assert not none and none < some < every == ground.alone
    seconds = sum(problem.seconds[node] for node in problem.forward)
    assert sum(problem.size_bytes[e] for e in some) <= seconds * problem.machine.copy_out
    rate = {e: ground.again[e] / problem.size_bytes[e] for e in every}
    assert min(rate[e] for e in some) >= np.median([rate[e] for e in every - some])


def test_without_host_memory_nothing_is_swapped() -> None:
    problem = problem_of(convolutional(), {"data": (64, 3, 32, 32)})
    found = list(played(problem))
    assert found and all(kinds(schedule.steps)[OUT] == kinds(schedule.steps)[IN] == 0 for schedule in found)


def test_auto_takes_no_more_than_any_other_policy_at_least() -> None:
    problem = problem_of(convolutional(), {"data": (64, 3, 32, 32)}, host_budget="1GiB", machine="V100")
    least = {name: min(c.peak_bytes for c in POLICIES[name].candidates(problem)) for name in POLICIES}
    assert least["auto"] == min(least.values()), least
    assert min(problem.quick(schedule).peak_bytes for schedule in lowest(problem)) >= least["auto"]


def test_what_reads_a_variable_is_not_made_again_once_it_was_changed() -> None:
    problem = problem_of(convolutional(), {"data": (64, 3, 32, 32)}, host_budget="1GiB")
    assert all(repeats_alike(problem, schedule) for schedule in played(problem))
    moved = postponed(problem)
    assert sorted(moved.order) == sorted(problem.order) and moved.forward == problem.forward


def test_no_policy_offers_to_make_a_value_again_from_the_new_value_of_a_variable() -> None:
    """A weight that two layers share is applied late, and so is what its gradient reads: after the update of gamma."""
    data, table = mx.sym.Variable("data"), mx.sym.Variable("table")
    words = mx.sym.Embedding(data, table, input_dim=40, output_dim=16, name="words")
    body = words
    for k in range(4):
        body = mx.sym.FullyConnected(body, num_hidden=16, flatten=False, name=f"fc{k}")
        body = mx.sym.LayerNorm(body, name=f"norm{k}")
    scores = mx.sym.FullyConnected(body, table, num_hidden=40, flatten=False, no_bias=True, name="scores")
    net = mx.sym.SoftmaxOutput(mx.sym.Reshape(scores, shape=(-1, 40)), name="softmax")
    problem = problem_of(net, {"data": (8, 12)})
    for name, strategy in POLICIES.items():
        assert all(repeats_alike(problem, c.schedule) for c in strategy.offer(problem, False)), name


def test_what_does_not_fit_when_it_is_made_again_comes_by_host_memory() -> None:
    shapes = {"data": (8, 3, 32, 32)}
    net = resnet.get_symbol(10, 20, image_shape=(3, 32, 32))
    problem = problem_of(net, shapes, host_budget="1GiB", machine="V100")
    ground = Ground(postponed(problem))
    first, *others = _repaired(ground, ground.targets(6)[1], frozenset(), frozenset(), 4)
    assert first is not None and others, "recomputing alone reaches the target: it tells nothing"
    peaks = [problem.quick(play).peak_bytes for play in (first, *others) if play is not None]
    assert min(peaks[1:]) < peaks[0]
    assert kinds(first.steps)[IN] == 0 < kinds(others[-1].steps)[IN]
