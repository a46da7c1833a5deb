"""A device's memory that only keeps book: of blocks, of pages, and of the ranges that show them."""
from __future__ import annotations

from collections.abc import Sequence

from minigraph.base import MXNetError
from minigraph.device.cuda.allocator import MemoryRefused
from minigraph.device.cuda.virtual import Range

MIB = 1 << 20


class Book:
    """A device of so many bytes; blocks lie far apart, so that no hole spans two."""

    def __init__(self, nbytes: int) -> None:
        self.room = nbytes
        self.blocks: dict[int, int] = {}
        self.settled = 0
        self.next = 1 << 40

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.room:
            raise MemoryRefused
        self.room -= nbytes
        address, self.next = self.next, self.next + (1 << 36)
        self.blocks[address] = nbytes
        return address

    def release(self, address: int) -> None:
        self.room += self.blocks.pop(address)

    def free_bytes(self) -> int:
        return self.room

    def settle(self) -> None:
        self.settled += 1

    def hand_out(self, address: int, nbytes: int) -> None:
        assert any(b <= address and address + nbytes <= b + n for b, n in self.blocks.items())

    take_back = hand_out


class PageBook:
    """The pages of a book's device, 1 MiB each; `shown` gives the pages of each range by its address."""

    page_bytes = MIB

    def __init__(self, book: Book) -> None:
        self.book = book
        self.pages: set[int] = set()
        self.shown: dict[int, list[int]] = {}
        self.refuses_to_show = False

    def create(self, count: int) -> list[int]:
        if count * MIB > self.book.room:
            raise MemoryRefused
        pages = [self.book.allocate(MIB) for _ in range(count)]
        self.pages.update(pages)
        return pages

    def release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self.pages.remove(page)
            self.book.release(page)

    def reserve(self, nbytes: int) -> Range:
        self.book.next += nbytes
        where = Range(self.book.next - nbytes, nbytes)
        self.shown[where.address] = []
        return where

    def show(self, where: Range, pages: Sequence[int]) -> None:
        if self.refuses_to_show:
            raise MXNetError("planted")
        assert where.shown_bytes + len(pages) * MIB <= where.nbytes and self.pages.issuperset(pages)
        self.shown[where.address] += pages
        where.shown_bytes += len(pages) * MIB

    def free(self, where: Range) -> None:
        del self.shown[where.address]
