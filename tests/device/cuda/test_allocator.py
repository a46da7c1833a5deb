"""The pool of device memory, over a source that only keeps book."""
from __future__ import annotations

import random

import pytest

from minigraph.base import OutOfMemoryError
from minigraph.device.cuda.allocator import ALIGNMENT, BLOCK_BYTES, DeviceMemoryError, Pool

from .books import MIB, Book


def test_small_pieces_share_one_block_of_the_source():
    book = Book(1 << 30)
    pool = Pool(book)
    pieces = [pool.allocate(1000) for _ in range(100)]
    assert list(book.blocks.values()) == [BLOCK_BYTES]
    assert len({piece.address for piece in pieces}) == 100
    assert all(piece.address % ALIGNMENT == 0 for piece in pieces)


def test_pieces_never_overlap_and_all_comes_back_to_one_hole():
    book = Book(1 << 30)
    pool = Pool(book)
    draw = random.Random(0)
    live = []
    for _ in range(2000):
        if live and draw.random() < 0.5:
            pool.free(live.pop(draw.randrange(len(live))))
        else:
            live.append(pool.allocate(draw.choice([1, 255, 256, 257, 10_000, 3 * MIB])))
        spans = sorted((piece.address, piece.address + piece.nbytes) for piece in live)
        assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:], strict=False))
        assert pool.used_bytes >= sum(piece.nbytes for piece in live)
    for piece in live:
        pool.free(piece)
    pool.collect()
    assert pool.used_bytes == 0
    assert all(block.is_free for block in pool._blocks)
    assert pool.trim() > 0
    assert not book.blocks and pool.reserved_bytes == 0


def test_the_hole_that_fits_best_is_taken():
    pool = Pool(Book(1 << 30))
    pool.free(pool.allocate(32 * MIB))  # one block for all
    a, wall, b, _ = (pool.allocate(n) for n in (8 * MIB, 256, 2 * MIB, 256))
    pool.free(a)
    pool.free(b)
    assert pool.allocate(MIB).address == b.address
    assert pool.allocate(8 * MIB).address == a.address
    assert wall.address == a.address + a.nbytes


def test_neighbouring_holes_become_one():
    pool = Pool(Book(BLOCK_BYTES))
    pieces = [pool.allocate(BLOCK_BYTES // 4) for _ in range(4)]
    for piece in (pieces[0], pieces[2], pieces[1], pieces[3]):
        pool.free(piece)
    assert pool.allocate(BLOCK_BYTES).address == pieces[0].address


def test_freed_bytes_are_given_out_again_only_once_the_device_is_done_with_them():
    book = Book(1 << 30)
    pool = Pool(book)
    piece = pool.allocate(1000)
    pool.free(piece)
    assert book.settled == 0, "a finalizer must not wait"
    assert pool.allocate(1000).address == piece.address
    assert book.settled == 1
    pool.allocate(1000)
    assert book.settled == 1, "nothing was freed, so there is nothing to wait for"


def test_running_out_says_how_much_was_asked_is_free_and_the_largest_hole():
    book = Book(96 * MIB)
    pool = Pool(book)
    pool.free(pool.allocate(96 * MIB))  # one block for all
    pieces = [pool.allocate(16 * MIB) for _ in range(6)]
    pool.free(pieces[1])
    pool.free(pieces[4])
    pool.collect()
    with pytest.raises(DeviceMemoryError, match=r"32\.00 MiB are free, the largest piece is 16\.00 MiB") as caught:
        pool.allocate(17 * MIB)
    error = caught.value
    assert isinstance(error, OutOfMemoryError)
    assert (error.asked_bytes, error.free_bytes, error.largest_hole_bytes) == (17 * MIB, 32 * MIB, 16 * MIB)
    assert pool.used_bytes == 64 * MIB and pool.allocate(16 * MIB).address in (pieces[1].address, pieces[4].address)


def test_unused_blocks_make_room_for_a_larger_one():
    book = Book(100 * MIB)
    pool = Pool(book)
    pool.free(pool.allocate(32 * MIB))
    pool.free(pool.allocate(40 * MIB))
    assert pool.allocate(90 * MIB).nbytes == 90 * MIB


def test_the_last_bytes_of_a_device_can_be_had():
    book = Book(33 * MIB + 512)
    pool = Pool(book)
    assert pool.allocate(33 * MIB + 512).nbytes == 33 * MIB + 512


def test_the_capacity_holds():
    book = Book(1 << 40)
    pool = Pool(book, capacity_bytes=40 * MIB)
    pool.allocate(30 * MIB)
    with pytest.raises(DeviceMemoryError) as caught:
        pool.allocate(20 * MIB)
    assert caught.value.free_bytes == 10 * MIB
    assert pool.reserved_bytes <= 40 * MIB


def test_unpooled_every_piece_is_a_block_of_exactly_its_bytes_and_goes_back():
    book = Book(1 << 30)
    pool = Pool(book, pooled=False)
    pieces = [pool.allocate(n) for n in (1000, 1000, 7)]
    assert list(book.blocks.values()) == [1000, 1000, 7]
    pool.free(pieces[0])
    pool.collect()
    assert list(book.blocks.values()) == [1000, 7]


def test_nothing_takes_no_memory():
    book = Book(0)
    pool = Pool(book)
    pool.free(pool.allocate(0))
    assert not book.blocks


def test_a_thousand_sizes_one_at_a_time_reserve_little_more_than_the_largest():
    book = Book(1 << 40)
    pool = Pool(book)
    draw = random.Random(3)
    sizes = [2000 * draw.randint(1500, 2500) * 4 for _ in range(1000)]
    for nbytes in sizes:
        pool.free(pool.allocate(nbytes))
        pool.collect()
    assert pool.reserved_bytes <= 1.25 * max(sizes) + BLOCK_BYTES


def test_holes_between_living_pieces_are_told_when_a_larger_piece_does_not_fit():
    book = Book(160 * MIB)
    pool = Pool(book)
    pool.free(pool.allocate(160 * MIB))  # one block for all
    pieces = [pool.allocate(16 * MIB) for _ in range(10)]
    for piece in pieces[::2]:
        pool.free(piece)
    pool.collect()
    with pytest.raises(DeviceMemoryError) as caught:
        pool.allocate(24 * MIB)
    assert (caught.value.free_bytes, caught.value.largest_hole_bytes) == (80 * MIB, 16 * MIB)
    pool.free(pieces[1])
    pool.collect()
    assert pool.allocate(24 * MIB).nbytes == 24 * MIB
