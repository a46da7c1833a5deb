"""Free bytes of an arena of pages: the lists say at any time what a plain list of bytes says."""

from __future__ import annotations

import random

import pytest

from minigraph.memory.packing.gaps import Gaps

PAGE = 8


def ranges(free: list[bool]) -> list[tuple[int, int]]:
    edges = [i for i in range(len(free) + 1) if (i > 0 and free[i - 1]) != (i < len(free) and free[i])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def check(gaps: Gaps, free: list[bool]) -> None:
    found = ranges(free)
    assert gaps.lengths == sorted((last - first, first) for first, last in found)
    wide = [(first, -(-first // PAGE) * PAGE, last // PAGE * PAGE, last) for first, last in found]
    wide = [row for row in wide if row[1] <= row[2]]
    assert gaps.heads == sorted((low - first, first) for first, low, _, _ in wide if first < low)
    assert gaps.tails == sorted((last - high, last) for _, _, high, last in wide if high < last)
    assert gaps.runs == sorted((high - low, low) for _, low, high, _ in wide if low < high)
    assert gaps.run_bytes == sum(length for length, _ in gaps.runs)


@pytest.mark.parametrize("seed", range(5))
def test_gaps_follow_what_is_taken_and_released(seed: int) -> None:
    r = random.Random(seed)
    gaps, free = Gaps(PAGE), [False] * 12 * PAGE
    for _ in range(300):
        found = ranges(free if r.random() < 0.5 else [not byte for byte in free])
        if not found:
            continue
        first, last = r.choice(found)
        first, last = sorted(r.choices(range(first, last + 1), k=2))
        if first == last:
            continue
        assert gaps.is_free(first, last) == free[first]
        (gaps.take if free[first] else gaps.release)(first, last)
        free[first:last] = [not free[first]] * (last - first)
        check(gaps, free)


@pytest.mark.parametrize("seed", range(5))
def test_runs_beside_a_page_boundary_are_its_free_pages_in_a_row(seed: int) -> None:
    r = random.Random(seed)
    pages = 10
    free = [r.random() < 0.95 for _ in range(pages * PAGE)]
    gaps = Gaps(PAGE)
    for first, last in ranges(free):
        gaps.release(first, last)
    whole = [all(free[k * PAGE:(k + 1) * PAGE]) for k in range(pages)]
    for k in range(pages + 1):
        behind = next((n for n in range(pages - k) if not whole[k + n]), pages - k)
        before = next((n for n in range(k) if not whole[k - 1 - n]), k)
        assert (gaps.run_from(k * PAGE), gaps.run_up_to(k * PAGE)) == (behind * PAGE, before * PAGE)
