"""Arenas of pages and what is mapped of them, over a device that only keeps book."""
from __future__ import annotations

import gc
from typing import Any, cast

import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.allocator import DeviceMemoryError, Pool
from minigraph.device.cuda.paged import PagedArena
from minigraph.device.cuda.virtual import VirtualMemory
from minigraph.plan.plan import Arena, Extent

from .books import MIB, Book, PageBook


def made(room: int = 64 * MIB, **options: Any) -> tuple[Pool, PageBook, PagedArena]:
    book = Book(room)
    pool, pages = Pool(book, **options), PageBook(book)
    return pool, pages, PagedArena(pool, cast(VirtualMemory, pages), 1 << 40)


def showing(*extents: tuple[int, int]) -> Arena:
    return Arena("mapped-x", "mapped", sum(nbytes for _, nbytes in extents), MIB, tuple(Extent(*e) for e in extents))


def test_growing_keeps_the_pages_and_the_address_and_counts_whole_pages():
    pool, pages, arena = made()
    address = arena.address
    arena.grow(3 * MIB - 5)
    first = list(pages.shown[address])
    arena.grow(2 * MIB)
    arena.grow(5 * MIB)
    assert pages.shown[address][:3] == first and len(pages.shown[address]) == 5 and arena.address == address
    assert arena.nbytes == pool.used_bytes == pool.reserved_bytes == pool.peak_bytes == 5 * MIB


def test_a_mapped_arena_shows_the_pages_of_its_extents_in_their_order_and_goes_on_as_the_arena_grows():
    pool, pages, arena = made()
    arena.grow(4 * MIB)
    mapped = arena.mapped(showing((2 * MIB, 2 * MIB), (0, MIB), (3 * MIB, MIB)))
    own = pages.shown[arena.address]
    assert pages.shown[mapped.address] == [own[2], own[3], own[0], own[3]]
    arena.grow(6 * MIB)
    assert pages.shown[mapped.address] == [own[2], own[3], own[0], own[3]]
    assert pool.used_bytes == 6 * MIB, "what is mapped takes no memory"


@pytest.mark.parametrize("how", ["forgotten", "freed", "both"])
def test_a_mapped_arena_goes_back_once_and_only_after_the_device_has_settled(how):
    pool, pages, arena = made()
    arena.grow(MIB)
    mapped = arena.mapped(showing((0, MIB)))
    address, settled = mapped.address, pages.book.settled
    if how != "forgotten":
        mapped.free()
    if how != "freed":
        del mapped
        gc.collect()
    assert address in pages.shown and pages.book.settled == settled, "a finalizer calls nothing"
    pool.collect()
    assert address not in pages.shown and pages.book.settled == settled + 1
    pool.collect()
    assert pages.book.settled == settled + 1


def test_a_freed_arena_gives_its_pages_and_its_bytes_back():
    pool, pages, arena = made()
    arena.grow(7 * MIB)
    arena.free()
    assert pool.used_bytes == 7 * MIB
    assert pool.trim() == 7 * MIB
    assert (pool.used_bytes, pool.reserved_bytes, pages.pages, pages.shown) == (0, 0, set(), {})
    assert pages.book.room == 64 * MIB


def test_blocks_that_nobody_uses_make_room_for_pages_and_freed_pages_for_blocks():
    pool, _, arena = made(64 * MIB)
    pool.free(pool.allocate(60 * MIB))
    arena.grow(50 * MIB)
    arena.free()
    assert pool.allocate(60 * MIB).nbytes == 60 * MIB


def test_the_capacity_counts_pages_and_blocks_together():
    pool, _, arena = made(1 << 40, capacity_bytes=20 * MIB)
    pool.allocate(10 * MIB)
    arena.grow(8 * MIB)
    with pytest.raises(DeviceMemoryError, match=r"has no 3\.00 MiB") as caught:
        arena.grow(11 * MIB)
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (3 * MIB, 2 * MIB)
    with pytest.raises(DeviceMemoryError):
        pool.allocate(4 * MIB)
    arena.grow(10 * MIB)


def test_without_room_for_all_pages_the_arena_stays_as_it_was():
    pool, pages, arena = made(8 * MIB)
    arena.grow(5 * MIB)
    before = list(pages.shown[arena.address])
    with pytest.raises(DeviceMemoryError) as caught:
        arena.grow(9 * MIB)
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (4 * MIB, 3 * MIB)
    assert pages.shown[arena.address] == before and pool.used_bytes == pool.reserved_bytes == 5 * MIB


def test_pages_that_cannot_be_shown_go_back():
    pool, pages, arena = made()
    arena.grow(2 * MIB)
    pages.refuses_to_show = True
    with pytest.raises(MXNetError, match="planted"):
        arena.grow(5 * MIB)
    assert arena.nbytes == pool.used_bytes == pool.reserved_bytes == 2 * MIB and len(pages.pages) == 2
    with pytest.raises(MXNetError, match="planted"):
        arena.mapped(showing((0, MIB)))
    pool.collect()
    assert list(pages.shown) == [arena.address]


@pytest.mark.parametrize("extents", [((1, MIB),), ((0, MIB + 1),), ((MIB, 2 * MIB),), ((3 * MIB, MIB),)])
def test_extents_that_are_no_whole_pages_of_the_arena_are_refused(extents):
    _, pages, arena = made()
    arena.grow(2 * MIB)
    with pytest.raises(MXNetError, match=r"mapped-x shows \d+ bytes from byte \d+ of the transient arena, which has "
                                         r"2097152 bytes in pages of 1048576; reserve"):
        arena.mapped(showing(*extents))
    assert list(pages.shown) == [arena.address]


def test_a_mapped_arena_that_is_not_as_large_as_its_extents_is_refused():
    _, _, arena = made()
    arena.grow(2 * MIB)
    with pytest.raises(MXNetError, match="has 2097152 bytes, and its extents have 1048576"):
        arena.mapped(Arena("mapped-x", "mapped", 2 * MIB, MIB, (Extent(0, MIB),)))
