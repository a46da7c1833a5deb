"""Filling from the bottom up: right offsets, and near the bound where heuristics are not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.memory.packing import Problem, Solution, pack, solve, validate
from minigraph.memory.packing.filling import Filler, is_fillable
from minigraph.memory.packing.placement import Placer

MUCH = 10**9


def cut(pieces: int, seed: int, instants: int = 4_000, height: int = 1 << 16) -> Problem:
    """An arena cut up without a hole again and again, in time or in bytes: the bound is its height."""
    draw = random.Random(seed)
    whole = [(0, instants, height)]
    while len(whole) < pieces:
        largest = max(range(len(whole)), key=lambda k: (whole[k][1] - whole[k][0]) * whole[k][2])
        born, dies, size = whole.pop(largest)
        if size > 64 and (draw.random() < 0.5 or dies - born < 2):
            at = draw.randrange(1, size)
            whole += [(born, dies, at), (born, dies, size - at)]
        else:
            at = draw.randrange(born + 1, dies)
            whole += [(born, at, size), (at, dies, size)]
    born, dies, size = zip(*whole, strict=True)
    return Problem(born, dies, size, 1)


def filled(problem: Problem, work: int = 1) -> Filler:
    filler = Filler(Placer(problem))
    filler.blend(0, work)
    return filler


def checked(problem: Problem, filler: Filler) -> int:
    """Bytes of the arena, after the validator has looked at the offsets."""
    assert filler.offset is not None
    solution = Solution(filler.placer.offsets_bytes(filler.offset), filler.top * filler.placer.unit_bytes, "filled")
    validate(problem, solution)
    return solution.bytes


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 5_000)), min_size=1, max_size=60))
def test_any_problem_is_filled_in_validly(lives: list[tuple[int, int, int]]) -> None:
    born, length, size = map(np.array, zip(*lives, strict=True))
    problem = Problem(born, born + length, np.append(size[:-1], 1))
    checked(problem, filled(problem, MUCH // 100_000))


def test_each_buffer_lies_at_the_bottom_or_on_another_one() -> None:
    problem = cut(300, 1)
    filler = filled(problem)
    start = np.array(filler.offset)
    for i in np.flatnonzero(start > 0):
        meets = (problem.born < problem.dies[i]) & (problem.dies > problem.born[i])
        assert (start[meets] + problem.size_bytes[meets] == start[i]).any()


def test_more_blends_are_never_worse_and_the_same_ones_give_the_same_offsets() -> None:
    problem = cut(400, 2)
    tops = [checked(problem, filled(problem, work)) for work in (1, 500_000, 2_000_000)]
    assert tops == sorted(tops, reverse=True) and tops[-1] < tops[0]
    assert filled(problem, 500_000).offset == filled(problem, 500_000).offset


def test_blends_end_at_the_first_that_meets_the_goal() -> None:
    problem = cut(200, 3)
    filler = Filler(Placer(problem))
    filler.blend(2 * problem.lower_bound_bytes, MUCH)
    once = filler.placer.work
    filler.blend(2 * problem.lower_bound_bytes, MUCH)
    assert filler.placer.work == once


def test_fixed_buffers_and_mixed_alignments_are_not_filled_in() -> None:
    assert is_fillable(Placer(Problem([0, 1], [2, 3], [1, 1])))
    assert not is_fillable(Placer(Problem([0, 1], [2, 3], [1, 1], [64, 128])))
    assert not is_fillable(Placer(Problem([0, 1], [2, 3], [1, 1], 64, [0, -1])))


def test_many_buffers_without_a_hole_are_packed_closer_than_by_heuristics(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cut(700, 6)
    monkeypatch.setattr(solve, "FILL_BUFFERS", 500)
    monkeypatch.setattr(solve._Packing, "_search", lambda packing: None)
    placed = pack(problem)
    validate(problem, placed)
    monkeypatch.setattr(solve, "FILL_BUFFERS", MUCH)
    assert placed.method == "filled" and placed.bytes < 0.9 * pack(problem).bytes
