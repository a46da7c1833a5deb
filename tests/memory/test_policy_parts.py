"""What superneurons and capuchin are made of: the cache, free time on links, lineages, and triggers."""
from __future__ import annotations

from dataclasses import replace

import pytest

import minigraph as mx
from minigraph.base import Entry
from minigraph.memory.policies import POLICIES, Candidate, Problem
from minigraph.memory.policies.cache import Cache
from minigraph.memory.policies.capuchin import capuchin
from minigraph.memory.policies.lineage import Lineages, recomputed
from minigraph.memory.policies.links import SLOTS, Link
from minigraph.memory.policies.quick import QuickCount
from minigraph.memory.policies.superneurons import largest_working_set, superneurons, tensor_cache
from minigraph.memory.policies.swapping import Absence, Trip, carry, uses
from minigraph.memory.policies.triggers import triggered
from minigraph.memory.schedule import DROP, IN, OUT, Schedule, from_order
from minigraph.plan.plan import Kind
from minigraph.planning import plan
from tests.memory.test_policies import MIB, chain, convolutional

from .schedules import strategy

SHAPES = {"data": (512, 512)}


def problem_of(monkeypatch: pytest.MonkeyPatch, symbol: mx.sym.Symbol | None = None, **shapes) -> Problem:
    """What a policy is given of a chain of 16 layers, or of a symbol, with host memory."""
    met: list[Problem] = []

    def look(problem: Problem) -> Schedule:
        met.append(problem)
        return from_order(problem.order)
    monkeypatch.setitem(POLICIES, "forced", strategy(look))
    plan(chain(16) if symbol is None else symbol, shapes or SHAPES, "sgd", "step", "forced", host_budget="1GiB",
         machine="P100", fuse=False)
    return met[0]


def entry(problem: Problem, name: str) -> Entry:
    return next(e for e in range(problem.graph.num_entries) if problem.graph.entry_name(e) == name)


def with_links(problem: Problem, seconds: float) -> Problem:
    """The problem on a machine that copies a MiB in so many seconds, each way; only transient bytes are counted."""
    machine = replace(problem.machine, copy_out=MIB / seconds, copy_in=MIB / seconds, launch_seconds=0.0)
    graph = problem.graph
    sizes = [0 if graph.op[graph.node_of[e]] is None else nbytes for e, nbytes in enumerate(problem.size_bytes)]
    count = QuickCount(graph, problem.order, sizes, sizes, [0] * len(graph), problem.seconds, machine)
    return replace(problem, machine=machine, quick=count.evaluate, live=count.live_bytes)


def step_of(problem: Problem, name: str) -> int:
    return next(t for t, node in enumerate(problem.order) if problem.graph.name[node] == name)


# -- the cache -----------------------------------------------------------------------------------------------
def test_a_cache_that_holds_everything_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch)
    plain = from_order(problem.order)
    assert tensor_cache(problem, plain).play(int(problem.live(plain).max())) == []


def test_the_cache_evicts_what_was_used_least_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch)
    plain = from_order(problem.order)
    peak = int(problem.live(plain).max())
    first, second = (Cache(problem, plain).play(peak - nbytes) for nbytes in (1, 2 * MIB))
    assert [trip.entry for trip in first] == [entry(problem, "tanh0_output")]
    assert [trip.entry for trip in second] == [entry(problem, f"tanh{k}_output") for k in (1, 0)], "in order of return"


@pytest.mark.parametrize("share", [0, 3, 7, 12])
def test_the_cache_keeps_its_capacity_and_every_value_returns(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    problem = problem_of(monkeypatch)
    plain = from_order(problem.order)
    cache = tensor_cache(problem, plain)
    size = [*cache.capacities(12), int(problem.live(plain).max())][share]
    schedule = carry(plain, cache.play(size))
    assert problem.quick(schedule).peak_bytes <= size
    kinds = [kind for kind, _ in schedule.steps]
    assert kinds.count(DROP) == kinds.count(IN) >= kinds.count(OUT)


def test_a_value_that_leaves_twice_is_copied_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(problem: Problem) -> Schedule:
        value = entry(problem, "tanh3_output")
        steps = uses(problem, from_order(problem.order))[value]
        trips = [Trip(value, steps[1], steps[1] + 1, steps[2]), Trip(value, None, steps[2] + 1, steps[3])]
        return carry(from_order(problem.order), trips)
    monkeypatch.setitem(POLICIES, "forced", strategy(make))
    h = mx.sym.Variable("data")
    for k in range(6):
        h = mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=512, name=f"fc{k}"), act_type="tanh", name=f"tanh{k}")
    found = plan(mx.sym.MakeLoss(mx.sym.sum(h * h)), SHAPES, "sgd", "step", "forced", host_budget="1GiB",
                 fuse=False)
    kinds = list(found.instructions.kind)
    assert kinds.count(Kind.COPY_OUT) == 1 and kinds.count(Kind.COPY_IN) == 2
    assert found.arena_bytes("host") == MIB


# -- links ---------------------------------------------------------------------------------------------------
def test_a_link_makes_one_copy_at_a_time() -> None:
    link = Link(SLOTS)
    assert link.end_after(10, 5) == 15
    link.take_after(10, 5)
    assert link.end_after(10, 5) == 20 and link.end_after(0, 5) == 5 and link.end_after(0, 12) == 17
    link.take_before(100, 30)
    assert link.free_between(60, 100) == 10
    assert link.end_after(SLOTS - 2, 5) == SLOTS + 3, "beyond the step"


# -- lineages ------------------------------------------------------------------------------------------------
def test_a_chosen_source_lengthens_what_was_chosen_and_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch)
    lineages = Lineages(problem)
    fc, tanh = (problem.seconds[problem.order[step_of(problem, name)]] for name in ("fc5", "tanh5"))
    first, second = entry(problem, "tanh4_output"), entry(problem, "tanh5_output")
    assert lineages.seconds(second) == pytest.approx(fc + tanh), "the layer's sum is there for nobody"
    lineages.choose(second)
    assert lineages.seconds(first) == pytest.approx(2 * (fc + tanh)), "once for itself, once for what reads it"
    lineages.choose(first)
    assert lineages.seconds(entry(problem, "tanh6_output")) == pytest.approx(3 * (fc + tanh))
    assert lineages.sources[second] == {entry(problem, "tanh3_output")}


def test_what_is_made_again_on_the_way_is_kept_as_far_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch)
    chosen = {entry(problem, f"tanh{k}_output") for k in range(8, 14)}
    live = problem.live(from_order(problem.order)).tolist()
    ample, scarce = (recomputed(problem, chosen, live, target) for target in (1 << 40, 0))
    assert len(ample.order) == len(problem.order) + 2 * 6
    assert len(scarce.order) > len(ample.order)
    assert problem.quick(scarce).peak_bytes <= problem.quick(ample).peak_bytes


# -- triggers ------------------------------------------------------------------------------------------------
def long_absence(problem: Problem, name: str) -> Absence:
    steps = uses(problem, from_order(problem.order))[entry(problem, name)]
    return max((Absence(entry(problem, name), a, b) for a, b in zip(steps, steps[1:], strict=False)),
               key=lambda a: a.back - a.last)


def test_hidden_copies_cost_no_time_and_late_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch)
    plain = from_order(problem.order)
    step = sum(problem.seconds[node] for node in problem.order)
    for seconds, hidden in ((step / 100, True), (step, False)):
        links = with_links(problem, seconds)
        chosen = [long_absence(links, f"tanh{k}_output") for k in (0, 1, 2)]
        schedule = triggered(links, plain, chosen, 1 << 40 if hidden else 0)
        assert (links.quick(schedule).seconds == pytest.approx(step)) == hidden


def test_without_want_of_room_nobody_waits_for_a_copy_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = with_links(problem_of(monkeypatch), sum(problem_of(monkeypatch).seconds) / 4)
    plain, absence = from_order(problem.order), long_absence(problem, "tanh0_output")
    eager, easy = (triggered(problem, plain, [absence], target) for target in (0, 1 << 40))
    drops = [schedule.steps.index((DROP, absence.entry)) for schedule in (eager, easy)]
    assert drops[0] == absence.last + 2 < drops[1]


# -- whole policies ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [superneurons, capuchin])
def test_candidates_trade_time_for_memory_down_to_near_the_floor(monkeypatch: pytest.MonkeyPatch, policy) -> None:
    problem = problem_of(monkeypatch, convolutional(), data=(64, 3, 16, 16))
    candidates: list[Candidate] = policy(problem)
    peaks, seconds = [c.peak_bytes for c in candidates], [c.seconds for c in candidates]
    assert seconds == sorted(seconds) and peaks == sorted(peaks, reverse=True) and len(peaks) > 5
    persistent = int(problem.live(from_order(problem.order))[0])
    assert peaks[-1] <= largest_working_set(problem) * 1.5 + persistent < peaks[0]


def test_swaps_that_hide_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time for every copy, half of the memory costs nothing."""
    problem = with_links(problem_of(monkeypatch), 1e-9)
    plain = problem.quick(from_order(problem.order))
    best = [c for c in capuchin(problem) if c.peak_bytes < 0.6 * plain.peak_bytes]
    assert best and best[0].host_bytes > 0 and best[0].seconds == pytest.approx(plain.seconds, rel=1e-3)


def test_policies_without_host_memory_do_not_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(problem_of(monkeypatch, convolutional(), data=(8, 3, 16, 16)), host_budget_bytes=0)
    for policy in (superneurons, capuchin):
        candidates = policy(problem)
        assert len(candidates) > 1
        assert all(kind not in (OUT, IN) for c in candidates for kind, _ in c.schedule.steps)
