"""The exact search finds what heuristics miss, proves what cannot be, and stops by a count of turns."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from minigraph.memory.packing import Problem, Solution, pack, solve, validate
from minigraph.memory.packing.exact import Attempts, Search, _luby, _rules, is_searchable, short_attempts
from minigraph.memory.packing.instance import PLACED, Instance
from minigraph.memory.packing.placement import Placer
from minigraph.memory.packing.search import Walk

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


def fit_within(placer: Placer, capacity: int, turns: int, attempts: int = 50) -> tuple[list[int] | None, bool]:
    """A placement within a capacity by some attempts, and whether the answer is final."""
    search = Attempts(placer)
    for _ in range(attempts):
        found = search.next(turns, capacity)
        if found is not None or search.is_final:
            return found, True
    return None, False


def least_by_trying_all(problem: Problem) -> int:
    """The smallest arena over all orders of placing first-fit, among which is a best one."""
    placer = Placer(problem)
    return min(placer.top(placer.fit(order)) for order in itertools.permutations(range(len(problem))))


def test_the_search_agrees_with_trying_every_order() -> None:
    for seed in range(60):
        problem = small(seed)
        least = least_by_trying_all(problem)
        placer = Placer(problem)
        found, final = fit_within(placer, least, 1_000)
        assert final and found is not None and placer.top(found) <= least
        validate(problem, Solution(placer.offsets_bytes(found), placer.top(found), "exact"))
        assert fit_within(placer, least - 1, 1_000) == (None, True)


def tiled(seed: int, tiles: int) -> tuple[Problem, int]:
    """A rectangle of 40 instants by 1000 bytes that is cut into tiles: a problem that fits without any waste."""
    r = random.Random(seed)
    parts = [(0, 40, 0, 1000)]
    while len(parts) < tiles:
        born, dies, low, high = parts.pop(max(range(len(parts)), key=lambda i: (
            (parts[i][1] - parts[i][0]) * (parts[i][3] - parts[i][2]) * r.random())))
        if r.random() < 0.5 and dies - born > 1:
            at = r.randrange(born + 1, dies)
            parts += [(born, at, low, high), (at, dies, low, high)]
        else:
            at = r.randrange(low + 1, high)
            parts += [(born, dies, low, at), (born, dies, at, high)]
    born, dies, low, high = np.array(r.sample(parts, tiles)).T
    return Problem(born, dies, high - low, alignment=1), 1000


def test_what_fits_without_waste_is_never_proved_not_to_fit() -> None:
    solved = 0
    for seed in range(40):
        problem, capacity = tiled(seed, 10 + seed)
        found, final = fit_within(Placer(problem), capacity, 100, 12)
        assert final == (found is not None)
        solved += final
    assert solved > 30


@pytest.mark.parametrize("tiles", [60, 100, 200])
def test_where_an_attempt_finds_nothing_it_goes_on_with_more_room_and_does_not_begin_anew(tiles: int) -> None:
    problem, capacity = tiled(3, tiles)
    placer = Placer(problem)
    instance = Instance(placer, capacity)
    search = Search(instance, next(iter(_rules(instance))), 1, 5, 2 * capacity)
    found = search.run()
    assert found is not None and search.nodes <= 2 * tiles and not search.is_proved
    assert capacity < (found + instance.size[:-1]).max() <= instance.capacity


@pytest.mark.parametrize("seed", range(3))
def test_what_an_attempt_finds_does_not_depend_on_the_capacity_that_is_asked_for(seed: int) -> None:
    problem, height = tiled(seed, 50)
    placer, turns = Placer(problem), short_attempts(50)
    tops = []
    alone = Attempts(placer)
    for number in turns:
        found = alone.next(number, height + 15)
        tops.append(2 * height if found is None else placer.top(found))
    for capacity in (min(tops) - 1, min(tops), height + 5):
        asked = Attempts(placer)
        found_at = [k for k, number in enumerate(turns) if asked.next(number, capacity) is not None]
        assert found_at == [k for k, top in enumerate(tops) if top <= capacity]


def tight(seed: int) -> Problem:
    """Tiles of which some are cut off, so that little is wasted and a packing at the bound is hard to find."""
    problem, _ = tiled(seed, 100)
    return Problem(problem.born, problem.dies, np.maximum(problem.size_bytes - problem.born % 3, 1) * 100, alignment=1)


@pytest.mark.parametrize("seed", range(2))
def test_a_capacity_is_met_if_and_only_if_it_is_no_less_than_what_is_reached_without_one(
        seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "SEARCH_WORK", {"budget": 50_000})
    problem = tight(seed)
    alone = pack(problem, effort="budget").bytes
    assert alone > problem.lower_bound_bytes and pack(problem, alone, "budget").bytes <= alone
    for less in (1, 50):
        assert pack(problem, alone - less, "budget").bytes > alone - less


def test_what_can_only_lie_above_an_undermost_buffer_is_lifted_in_other_sections() -> None:
    """Buffers 0 to 2 fill section 0, in which 1 and 2 cannot lie lowest: so 0 does, at 0, and 3 lies on it."""
    problem = Problem([0, 0, 0, 1], [2, 1, 1, 2], [4, 3, 3, 2], alignment=1)
    instance = Instance(Placer(problem), 10)
    low, floor = np.array([0, 4, 4, 0, PLACED]), np.zeros(2, np.int64)
    assert instance.settle(low, floor, 0, 2)
    assert low.tolist() == [0, 4, 4, 4, PLACED] and floor.tolist() == [0, 0]
    low = np.array([1, 5, 5, 0, PLACED])
    assert not instance.settle(low, floor, 0, 2)


@pytest.mark.skipif(not HARD_FOLDER.is_dir(), reason="minimalloc's instances are not in ../shared/packing")
@pytest.mark.parametrize("name", "ABCDEFGHIJK")
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
        search = Search(instance, next(iter(_rules(instance))), 5_000, 1, 1024)
        runs.append((search.run(), search.nodes))
    assert runs[0][1] == runs[1][1] and runs[0][0] is not None
    np.testing.assert_array_equal(runs[0][0], runs[1][0])


@pytest.mark.skipif(not HARD_FOLDER.is_dir(), reason="minimalloc's instances are not in ../shared/packing")
def test_a_search_stops_at_its_turns_and_does_not_take_that_for_a_proof() -> None:
    instance = Instance(Placer(hard("E")), 1024)
    search = Search(instance, next(iter(_rules(instance))), 50, 1, 1024)
    assert search.run() is None and not search.is_proved and instance.capacity == 1024
    assert fit_within(Placer(hard("E")), 1024, 50, 1) == (None, False)


def test_independent_stretches_of_time_are_solved_one_after_the_other() -> None:
    """Stretches that do not meet cost the sum of their nodes, not the product."""
    def nodes(stretches: int) -> int:
        rows = [(9 * k + b, 9 * k + d, s) for k in range(stretches) for b, d, s in
                ((0, 3, 2), (2, 5, 2), (4, 7, 2), (0, 1, 2), (3, 4, 2), (6, 8, 2), (5, 6, 2))]
        instance = Instance(Placer(Problem(*np.array(rows).T, alignment=1)), 4)
        search = Search(instance, next(iter(_rules(instance))), 100_000, 1, 4)
        search.run()
        return search.nodes
    assert nodes(64) <= 64 * nodes(1)


def test_the_local_search_starts_from_a_heuristics_order_where_the_exact_one_found_the_best(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact search finds a placement a little above the bound: the local search goes on, as if it had not."""
    small_sizes, height = tiled(5, 60)
    tight, _ = fit_within(Placer(small_sizes), height, 1_000)
    assert tight is not None
    problem = Problem(small_sizes.born, small_sizes.dies, small_sizes.size_bytes * 100, alignment=1)
    answers = [[at * 100 + 200 for at in tight], *[None] * 100]
    orders = []

    class Watched(Walk):
        def __init__(self, placer: Placer, order: list[int], top: int, goal: int) -> None:
            orders.append(order)
            assert top > height * 100 + 200
            super().__init__(placer, order, top, goal)

    monkeypatch.setattr(Attempts, "next", lambda *_: answers.pop(0))
    monkeypatch.setattr(solve, "Walk", Watched)
    solution = pack(problem)
    assert [sorted(order) for order in orders] == [list(range(len(problem)))]
    validate(problem, solution)
    assert solution.bytes <= height * 100 + 200


def test_however_many_buffers_there_are_an_attempt_places_all() -> None:
    count = 1_500
    problem = Problem(list(range(count)), [k + 2 for k in range(count)], [1] * count, alignment=1)
    found, _ = fit_within(Placer(problem), 2, 1, 1)
    assert found is not None and set(found) == {0, 1}


def test_fixed_buffers_and_mixed_alignments_are_left_to_the_heuristics() -> None:
    free = Problem([0, 0], [1, 1], [64, 64])
    assert is_searchable(Placer(free))
    assert not is_searchable(Placer(Problem([0, 0], [1, 1], [64, 64], 64, [0, -1])))
    assert not is_searchable(Placer(Problem([0, 0], [1, 1], [64, 64], [64, 128])))


def test_attempts_are_as_long_as_lubys_sequence_says() -> None:
    assert [_luby(k) for k in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
