"""Where a buffer's bytes lie in memory."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from .build import Maker, chain
from .mapping import mapped
from .oracle import Bytes
from .random_plans import random_plan


def test_a_buffer_outside_mapped_arenas_is_one_piece() -> None:
    plan = chain()
    assert [plan.pieces(b) for b in range(3)] == [[(1, 0, 64)], [(0, 0, 64)], [(1, 64, 64)]]


def test_a_buffer_in_a_mapped_arena_begins_and_ends_within_extents() -> None:
    m = Maker(extents=((256, 128), (0, 256)), page_bytes=128)
    m.value("data", 48, arena="mapped", at=64)
    m.value("all", 96, arena="mapped", at=0)
    m.value("last", 16, arena="mapped", at=320)
    m.value("none", 0, arena="mapped", at=384)
    plan = m.plan()
    assert plan.pieces(0) == [(1, 320, 64), (1, 0, 128)]
    assert plan.pieces(1) == [(1, 256, 128), (1, 0, 256)]
    assert plan.pieces(2) == [(1, 192, 64)]
    assert plan.pieces(3) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_pieces_are_the_bytes_that_the_extents_show(seed: int) -> None:
    plan = mapped(random_plan(seed), seed)
    where = Bytes(plan)
    for b in range(len(plan.buffers)):
        shown = [where.base[arena] + offset + k for arena, offset, nbytes in plan.pieces(b) for k in range(nbytes)]
        assert shown == where.of(b)
