"""The exact search finds what heuristics miss, proves what cannot be, and stops by a count of nodes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from minigraph.memory.packing import Problem, Solution, pack, validate
from minigraph.memory.packing.exact import Search, _luby, _rules, fit_within, is_searchable
from minigraph.memory.packing.instance import Instance
from minigraph.memory.packing.placement import Placer

HARD_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "packing"
CAPACITY_BYTES = 1 << 20


def hard(name: str) -> Problem:
    """An instance of minimalloc's; all its sizes are multiples of 1024."""
    rows = np.loadtxt(HARD_FOLDER / f"{name}.1048576.csv", delimiter=",", skiprows=1, dtype=np.int64)
    return Problem(rows[:, 1], rows[:, 2], rows[:, 3], alignment=1024)


def small(seed: int) -> Problem:
    r = random.Random(seed)
    count, instants = r.randint(3, 6), r.randint(2, 5)
    born = [r.randrange(instants) for _ in range(count)]
    return Problem(born, [b + r.randint(1, 4) for b in born], [r.randint(1, 5) for _ in born], alignment=1)


def least_by_trying_all(problem: Problem) -> int:
    """The smallest arena over all orders of placing first-fit, among which is a best one."""
    placer = Placer(problem)
    return min(placer.top(placer.fit(order)) for order in itertools.permutations(range(len(problem))))


def test_the_search_agrees_with_trying_every_order() -> None:
    for seed in range(60):
        problem = small(seed)
        least = least_by_trying_all(problem)
        placer = Placer(problem)
        found, final = fit_within(placer, least, 100_000)
        assert final and found is not None and placer.top(found) <= least
        validate(problem, Solution(placer.offsets_bytes(found), placer.top(found), "exact"))
        assert fit_within(placer, least - 1, 100_000) == (None, True)


@pytest.mark.skipif(not HARD_FOLDER.is_dir(), reason="minimalloc's instances are not in ../shared/packing")
@pytest.mark.parametrize("name", "ABCHJ")
def test_a_hard_instance_is_packed_within_its_capacity(name: str) -> None:
    problem = hard(name)
    solution = pack(problem, capacity_bytes=CAPACITY_BYTES, effort="full")
    validate(problem, solution)
    assert solution.bytes <= CAPACITY_BYTES and solution.method == "exact"


@pytest.mark.skipif(not HARD_FOLDER.is_dir(), reason="minimalloc's instances are not in ../shared/packing")
def test_the_same_problem_takes_the_same_nodes_and_gets_the_same_offsets() -> None:
    runs = []
    for _ in range(2):
        instance = Instance(Placer(hard("A")), 1024)
        search = Search(instance, next(iter(_rules(instance))), 5_000)
        runs.append((search.run(), search.nodes))
    assert runs[0][1] == runs[1][1] and runs[0][0] is not None
    np.testing.assert_array_equal(runs[0][0], runs[1][0])


@pytest.mark.skipif(not HARD_FOLDER.is_dir(), reason="minimalloc's instances are not in ../shared/packing")
def test_a_search_stops_at_its_limit_and_does_not_take_that_for_a_proof() -> None:
    instance = Instance(Placer(hard("E")), 1024)
    search = Search(instance, next(iter(_rules(instance))), 50)
    assert search.run() is None and search.nodes == 50 and not search.is_proved
    assert fit_within(Placer(hard("E")), 1024, 50) == (None, False)


def test_independent_stretches_of_time_are_solved_one_after_the_other() -> None:
    """Stretches that do not meet cost the sum of their nodes, not the product."""
    def nodes(stretches: int) -> int:
        rows = [(9 * k + b, 9 * k + d, s) for k in range(stretches) for b, d, s in
                ((0, 3, 2), (2, 5, 2), (4, 7, 2), (0, 1, 2), (3, 4, 2), (6, 8, 2), (5, 6, 2))]
        instance = Instance(Placer(Problem(*np.array(rows).T, alignment=1)), 4)
        search = Search(instance, next(iter(_rules(instance))), 100_000)
        search.run()
        return search.nodes
    assert nodes(64) <= 64 * nodes(1)


def test_fixed_buffers_and_mixed_alignments_are_left_to_the_heuristics() -> None:
    free = Problem([0, 0], [1, 1], [64, 64])
    assert is_searchable(Placer(free))
    assert not is_searchable(Placer(Problem([0, 0], [1, 1], [64, 64], 64, [0, -1])))
    assert not is_searchable(Placer(Problem([0, 0], [1, 1], [64, 64], [64, 128])))


def test_attempts_are_as_long_as_lubys_sequence_says() -> None:
    assert [_luby(k) for k in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
