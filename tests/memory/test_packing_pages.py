"""Packing by pages: right on anything, exact where it can be worked out by hand, and close to the most live bytes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.memory.packing import PackingError, PagedSolution, Problem, pack_pages, page_bytes_for, validate

PAGE = 128


def random_problem(seed: int, count: int, page_bytes: int) -> Problem:
    """Sizes of nothing to some pages, some of them often, and lifetimes of all lengths."""
    r = random.Random(seed)
    instants = r.choice([3, 20, 2 * count])
    common = [r.randrange(1, 9 * page_bytes) for _ in range(3)]
    born = [r.randrange(instants) for _ in range(count)]
    dies = [first + r.choice([1, 2, r.randint(1, instants), instants]) for first in born]
    sizes = [r.choice([0, r.randrange(page_bytes), page_bytes, r.randrange(9 * page_bytes), *common])
             for _ in range(count)]
    alignments = r.choice([[64], [1], [2, 16, 64], [64, page_bytes]])
    return Problem(born, dies, sizes, [r.choice(alignments) for _ in range(count)])


def sliced_step(count: int, seed: int = 0) -> Problem:
    """Values of few sizes in several slices, that wait for their backward or for the link."""
    r = np.random.default_rng(seed)
    sizes = r.integers(300, 30_000, 12) * 4096 // r.choice([1, 2, 3], 12)
    born = np.sort(r.integers(0, count, count))
    life = np.where(r.random(count) < 0.98, r.integers(2, 12, count), r.integers(count // 8, count // 2, count))
    return Problem(born, born + life, sizes[r.integers(0, 12, count)])


def of_pages(*rows: tuple[int, int, float]) -> Problem:
    """Buffers of (birth, death, pages of 128 bytes)."""
    born, dies, pages = zip(*rows, strict=True)
    return Problem(born, dies, [int(size * PAGE) for size in pages])


def same(one: PagedSolution, two: PagedSolution) -> bool:
    return (one.offset.tolist(), one.mapped.tolist(), one.bytes, one.extents) == \
        (two.offset.tolist(), two.mapped.tolist(), two.bytes, two.extents)


def most_bytes(problem: Problem, page_bytes: int) -> int:
    """What no arena may exceed: as much as could live at once were two pages lost with each buffer, and two more."""
    sized = problem.size_bytes > 0
    unit = int(problem.alignments.max())
    lost = Problem(problem.born[sized], problem.dies[sized], problem.aligned_bytes[sized] + 2 * page_bytes, unit)
    return 2 * page_bytes + (lost.lower_bound_bytes if len(lost) else 0)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120), page_bytes=st.sampled_from([64, 128, 192, 4096]))
def test_any_problem_is_packed_validly_near_its_bound(seed: int, count: int, page_bytes: int) -> None:
    problem = random_problem(seed, count, page_bytes)
    solution = pack_pages(problem, page_bytes)
    validate(problem, solution)
    assert problem.lower_bound_bytes <= solution.bytes <= most_bytes(problem, page_bytes)
    assert not solution.mapped[problem.size_bytes == 0].any()
    assert same(solution, pack_pages(problem, page_bytes))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), count=st.integers(4, 60))
def test_a_buffer_in_the_place_of_another_that_lives_is_refused(seed: int, count: int) -> None:
    problem = random_problem(seed, count, PAGE)
    solution = pack_pages(problem, PAGE)
    sized = np.flatnonzero((problem.size_bytes > 0) & (problem.born <= problem.born.max()))
    for i in sized:
        for j in sized[(problem.born[sized] < problem.dies[i]) & (problem.dies[sized] > problem.born[i])][:3]:
            if i != j:
                offset, mapped = solution.offset.copy(), solution.mapped.copy()
                offset[i], mapped[i] = offset[j], mapped[j]
                with pytest.raises(PackingError):
                    validate(problem, replace(solution, offset=offset, mapped=mapped))


def test_a_buffer_takes_pages_on_both_sides_of_one_that_lives() -> None:
    problem = of_pages((0, 3, 2), (1, 9, 2), (2, 3, 2), (3, 9, 4))
    solution = pack_pages(problem, PAGE)
    validate(problem, solution)
    assert solution.bytes == problem.lower_bound_bytes == 6 * PAGE
    assert solution.mapped.tolist() == [False, False, False, True]
    assert sorted(solution.extents) == [(0, 2 * PAGE), (4 * PAGE, 2 * PAGE)]


def between_pages() -> tuple[Problem, PagedSolution]:
    """The last buffer begins in the page where the first one ends, and ends in the page where the fifth begins."""
    problem = of_pages((0, 9, 1.5), (1, 6, 1.5), (2, 9, 1), (3, 6, 1.5), (4, 9, 1.5), (6, 9, 3))
    solution = pack_pages(problem, PAGE)
    validate(problem, solution)
    return problem, solution


def test_a_buffer_shares_its_first_and_its_last_page_with_others() -> None:
    problem, solution = between_pages()
    assert solution.bytes == problem.lower_bound_bytes == 7 * PAGE
    assert solution.mapped.tolist() == [False] * 5 + [True]
    assert solution.offset.tolist() == [0, 192, 384, 512, 704, 64]
    assert solution.extents == ((PAGE, 2 * PAGE), (4 * PAGE, 2 * PAGE))


def test_equal_windows_are_shown_once() -> None:
    problem = of_pages((0, 3, 2), (1, 9, 2), (2, 3, 2), (3, 5, 4), (5, 7, 4), (7, 9, 4))
    solution = pack_pages(problem, PAGE)
    validate(problem, solution)
    assert solution.mapped.tolist() == [False] * 3 + [True] * 3 and solution.offset[3:].tolist() == [0, 0, 0]
    assert sum(size for _, size in solution.extents) == 4 * PAGE


def test_a_buffer_lies_beside_what_dies_when_it_does() -> None:
    problem = of_pages((0, 10, 2), (1, 4, 4), (2, 5, 2), (4, 10, 1), (4, 5, 1))
    solution = pack_pages(problem, PAGE)
    validate(problem, solution)
    assert solution.offset.tolist() == [0, 2 * PAGE, 6 * PAGE, 2 * PAGE, 5 * PAGE] and not solution.mapped.any()


def test_what_fits_in_one_piece_needs_no_mapping() -> None:
    problem = sliced_step(400)
    roomy = Problem(problem.born, problem.born + 1, problem.size_bytes)
    solution = pack_pages(roomy, 4096)
    validate(roomy, solution)
    assert not solution.mapped.any() and solution.extents == ()


def test_buffers_below_a_page_and_of_no_bytes_are_packed_too() -> None:
    problem = Problem([0, 0, 1], [2, 2, 2], [60, 0, 64])
    solution = pack_pages(problem, 4096)
    validate(problem, solution)
    assert solution.bytes == 4096 and not solution.mapped.any()
    empty = pack_pages(Problem([], [], np.zeros(0, np.int64)), 4096)
    assert (empty.bytes, empty.extents, len(empty.offset)) == (0, (), 0)


def test_a_large_step_ends_within_a_thousandth_of_its_bound_with_few_buffers_in_pieces() -> None:
    problem = sliced_step(10_000)
    solution = pack_pages(problem, page_bytes_for(problem.lower_bound_bytes, 4096))
    validate(problem, solution)
    assert solution.bytes <= 1.001 * problem.lower_bound_bytes
    assert 0 < solution.mapped.mean() <= 0.05


@pytest.mark.parametrize("pages", [30, 300])
def test_few_and_large_pages_lose_no_more_than_a_few_of_them(pages: int) -> None:
    problem = sliced_step(2_000)
    page_bytes = problem.lower_bound_bytes // pages // 4096 * 4096
    solution = pack_pages(problem, page_bytes)
    validate(problem, solution)
    assert solution.bytes <= problem.lower_bound_bytes + 4 * page_bytes


def test_a_capacity_ends_at_the_first_arena_within_it_with_fewer_buffers_in_pieces() -> None:
    problem = sliced_step(2_000)
    least = pack_pages(problem, 4096 * 16)
    roomy = pack_pages(problem, 4096 * 16, int(1.01 * problem.lower_bound_bytes))
    validate(problem, roomy)
    assert least.bytes < roomy.bytes <= 1.01 * problem.lower_bound_bytes
    assert roomy.mapped.sum() < least.mapped.sum()
    assert pack_pages(problem, 4096 * 16, least.bytes).bytes == least.bytes
    assert same(pack_pages(problem, 4096 * 16, least.bytes - 1), least)


def test_pages_are_as_small_as_sixteen_thousand_allow() -> None:
    assert page_bytes_for(0, 4096) == page_bytes_for(16_384 * 4096, 4096) == 4096
    assert page_bytes_for(16_384 * 4096 + 1, 4096) == 8192
    assert page_bytes_for(80_000_000_000, 2 << 20) == 3 * (2 << 20)


def test_fixed_buffers_pages_that_no_alignment_divides_and_negative_capacities_are_refused() -> None:
    with pytest.raises(ValueError, match="buffer 1 is fixed; leave all buffers free"):
        pack_pages(Problem([0, 0], [1, 1], [64, 64], 64, [-1, 0]), 4096)
    with pytest.raises(ValueError, match="page_bytes is 4096; give a multiple of all alignments, of 192"):
        pack_pages(Problem([0, 0], [1, 1], [64, 64], [64, 96]), 4096)
    with pytest.raises(ValueError, match="page_bytes is 0"):
        pack_pages(Problem([0], [1], [64]), 0)
    with pytest.raises(ValueError, match="capacity_bytes is -1; give 0 or more"):
        pack_pages(Problem([0], [1], [64]), 4096, -1)


@pytest.mark.parametrize("changes, message", [
    ({"extents": ((128, 256), (512, 128))}, "buffer 5 ends at 448 in a mapped arena of 384 bytes"),
    ({"extents": ((128, 256), (448, 256))}, "extent 1 shows 256 bytes from 448 on; it must be of whole pages of 128"),
    ({"extents": ((128, 256), (768, 256))}, "extent 1 .* within the arena of 896"),
    ({"extents": ((0, 256), (512, 256))}, r"buffer 0 \(bytes \[0, 192\).* and buffer 5 \(bytes \[64, 256\)"),
    ({"extents": ((128, 256), (384, 256))}, r"buffer 2 .* and buffer 5 .* both take bytes \[384, 512\) .* \[6, 9\)"),
    ({"bytes": 1024}, "states an arena of 1024 bytes, but buffer 4 ends at 896"),
    ({"bytes": 768}, "states an arena of 768 bytes, but buffer 4 ends at 896"),
    ({"mapped": np.zeros(5, np.bool_)}, "says of 5 buffers whether they are mapped, not of 6"),
    ({"mapped": np.zeros(6, np.bool_)}, "buffer 0 .* and buffer 5 .* both take bytes"),
    ({"offset": np.array([0, 192, 384, 512, 704, 32])}, "buffer 5 lies at offset 32, which is not a multiple")])
def test_the_validator_catches_a_planted_fault_of_pages(changes: dict, message: str) -> None:
    problem, solution = between_pages()
    with pytest.raises(PackingError, match=message):
        validate(problem, replace(solution, **changes))
