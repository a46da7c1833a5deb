"""What sets lms, openai and rotor apart: distances of levels, bottlenecks, and the best persistent schedule."""
from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from minigraph.memory.policies.lms import lms, node_levels
from minigraph.memory.policies.openai import bottlenecks, openai, speed
from minigraph.memory.policies.rotor import BACKWARD, KEEP_ALL, BestTimes, Stage, chain, rotor
from minigraph.memory.policies.sublinear import sublinear
from minigraph.memory.schedule import IN, OUT, RUN, read_roots
from tests.memory.problems import problem_of
from tests.memory.test_policies import chain as layers
from tests.memory.test_policies import convolutional

GIB = 2**30


# -- lms -----------------------------------------------------------------------------------------------------
def test_lms_swaps_the_longest_edges_first_and_no_vectors() -> None:
    problem = problem_of(convolutional(12), {"data": (8, 3, 16, 16)}, host_budget=GIB)
    levels, graph = node_levels(problem), problem.graph
    reader = {e: levels[node] for node in reversed(problem.order[problem.backward_start:])
              for e in read_roots(graph, node)}
    distance = {e: reader[e] - levels[graph.node_of[e]] for e in problem.saved if e in problem.droppable
                and len(graph.type_of(e).shape) > 1}
    found = [candidate for candidate in lms(problem) if candidate.host_bytes]
    assert found
    for candidate in found:
        away = {operand for kind, operand in candidate.schedule.steps if kind == OUT}
        assert away <= set(distance)
        shortest = min(distance[e] for e in away)
        assert all(e in away for e, far in distance.items() if far > shortest + 1)


def test_lms_brings_back_no_earlier_than_its_distance_ahead() -> None:
    problem = problem_of(convolutional(12), {"data": (8, 3, 16, 16)}, host_budget=GIB)
    levels = node_levels(problem)
    for candidate in lms(problem):
        steps = candidate.schedule.steps
        for k, (kind, entry) in enumerate(steps):
            if kind == IN:
                following = next(node for what, node in steps[k:] if what == RUN)
                reader = next(node for what, node in steps[k:] if what == RUN
                              and entry in read_roots(problem.graph, node))
                assert levels[reader] - levels[following] <= 16 + 4


def test_lms_without_host_memory_is_plain() -> None:
    found = lms(problem_of(convolutional(), {"data": (4, 3, 8, 8)}))
    assert len(found) == 1 and all(kind == RUN for kind, _ in found[0].schedule.steps)


# -- openai --------------------------------------------------------------------------------------------------
def test_bottlenecks_of_a_residual_network_lie_between_its_blocks() -> None:
    problem = problem_of(convolutional(6), {"data": (8, 3, 16, 16)})
    names = [problem.graph.entry_name(e) for e in bottlenecks(problem)]
    assert any("stem" in name for name in names) and any("add" in name or "plus" in name for name in names)
    assert not any("bn" in name or "conv" in name for name in names if "add" not in name and "plus" not in name)


def test_speed_makes_nothing_costly_again() -> None:
    problem = problem_of(convolutional(6), {"data": (8, 3, 16, 16)})
    order = speed(problem).order
    again = {node for node in order if order.count(node) > 1}
    assert again and all(problem.graph.op[node].recompute != "costly" for node in again)


def test_memory_needs_about_the_square_root_and_its_recursion_less_than_that() -> None:
    problem = problem_of(layers(64), {"data": (512, 512)})
    plain = max(candidate.peak_bytes for candidate in openai(problem))
    held = plain - min(candidate.peak_bytes for candidate in sublinear(problem))
    assert plain - min(candidate.peak_bytes for candidate in openai(problem)) >= held


# -- rotor ---------------------------------------------------------------------------------------------------
def stages_of(seconds: list[float], kept: list[int], output: list[int]) -> list[Stage]:
    return [Stage(k, k + 1, frozenset(), s, a, o, 0)
            for k, (s, a, o) in enumerate(zip(seconds, kept, output, strict=True))]


def best_by_trying_all(stages: list[Stage], budget: int) -> float:
    """The recurrence in bytes, from its definition."""
    @lru_cache(None)
    def best(first: int, last: int, m: int) -> float:
        stage, found = stages[first], float("inf")
        if m >= stage.kept_bytes:
            found = stage.seconds + (best(first + 1, last, m - stage.kept_bytes) if first < last else 0.0)
        for begin in range(first + 1, last + 1):
            left = m - stages[begin - 1].output_bytes
            if left >= 0:
                forward = sum(s.seconds for s in stages[first:begin])
                found = min(found, forward + best(begin, last, left) + best(first, begin - 1, m))
        return found
    return best(0, len(stages) - 1, budget)


@pytest.mark.parametrize("seed", range(6))
def test_the_recurrence_gives_the_least_time_and_its_commands_take_that_time(seed: int) -> None:
    r = np.random.default_rng(seed)
    count = int(r.integers(2, 8))
    output = r.integers(1, 9, count).tolist()
    kept = [o + int(r.integers(0, 9)) for o in output]
    stages = stages_of(r.integers(1, 20, count).astype(float).tolist(), kept, output)
    exact = ExactSlots(stages)
    for slots in range(sum(kept) + 1):
        expected = best_by_trying_all(stages, slots)
        assert exact.seconds[0, count - 1][slots] == pytest.approx(expected)
        if np.isfinite(expected):
            commands = list(exact.commands(slots))
            assert sum(stages[k].seconds for kind, k in commands if kind != BACKWARD) == pytest.approx(expected)
            assert [k for kind, k in commands if kind == BACKWARD] == list(reversed(range(count)))
            for k in range(count):
                before = [kind for kind, stage in commands[:commands.index((BACKWARD, k))] if stage == k]
                assert before[-1] == KEEP_ALL, "what a stage's backward needs is there"


class ExactSlots(BestTimes):
    """With one byte a slot."""

    def _slots(self, nbytes: int) -> int:
        return nbytes


def test_a_longer_chain_is_coarsened_without_losing_a_node() -> None:
    problem = problem_of(layers(150, width=8), {"data": (4, 8)})
    stages = chain(problem)
    assert 32 <= len(stages) <= 64
    assert [stage.first for stage in stages[1:]] == [stage.last for stage in stages[:-1]]
    assert stages[0].first == 0 and stages[-1].last == len(problem.forward)


def test_rotor_is_no_slower_than_equal_stretches_at_the_same_peak() -> None:
    problem = problem_of(layers(48), {"data": (512, 512)})
    ours = rotor(problem)
    for other in sublinear(problem):
        within = [candidate.seconds for candidate in ours if candidate.peak_bytes <= other.peak_bytes * 1.03]
        assert within and min(within) <= other.seconds * 1.01
