"""A transient arena made of pages, and mapped arenas that show pages of it once more.

Its addresses are reserved once, as many as the device has bytes of memory: growing maps further pages behind, so that
nothing moves, what it holds is kept, and mapped arenas go on showing it.
"""
from __future__ import annotations

import weakref
from functools import partial

from ...base import MXNetError, align
from ...plan.plan import Arena, Extent
from .allocator import Pool
from .virtual import Range, VirtualMemory


class PagedArena:
    """Device memory in pages from `address` on, counted by the pool; it goes back by `free`, from any thread."""

    def __init__(self, pool: Pool, virtual: VirtualMemory, most_bytes: int) -> None:
        self._pool, self._virtual = pool, virtual
        self._pages: list[int] = []
        self._range = virtual.reserve(align(most_bytes, virtual.page_bytes))
        self.address = self._range.address

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self._range.shown_bytes

    def grow(self, nbytes: int) -> None:
        """Make it at least this large; contents are kept, and new bytes undefined. DeviceMemoryError when there is no
        room: it is then as before."""
        more_bytes = align(nbytes, self._virtual.page_bytes) - self.nbytes
        if more_bytes <= 0:
            return
        count = more_bytes // self._virtual.page_bytes
        pages = self._pool.charge(more_bytes, lambda: self._virtual.create(count))
        try:
            self._virtual.show(self._range, pages)
        except BaseException:
            self._give_up(pages)
            raise
        self._pages += pages

    def mapped(self, arena: Arena) -> MappedArena:
        """Addresses that show the extents of a plan's mapped arena."""
        pages = self._pages_of(arena)
        where = self._virtual.reserve(arena.bytes)
        shown = MappedArena(arena, where, partial(self._pool.later, partial(self._virtual.free, where)))
        self._virtual.show(where, pages)
        return shown

    def _pages_of(self, arena: Arena) -> list[int]:
        """The pages that a mapped arena shows, one after another; MXNetError for extents that are not its bytes, or not
        whole pages of this arena."""
        page_bytes, pages = self._virtual.page_bytes, []
        if arena.bytes != sum(extent.bytes for extent in arena.extents):
            raise MXNetError(f"the arena {arena.name} has {arena.bytes} bytes, and its extents have "
                             f"{sum(extent.bytes for extent in arena.extents)}; compile its plan anew")
        for offset, nbytes in arena.extents:
            if offset % page_bytes or nbytes % page_bytes or offset + nbytes > self.nbytes:
                raise MXNetError(f"the arena {arena.name} shows {nbytes} bytes from byte {offset} of the transient "
                                 f"arena, which has {self.nbytes} bytes in pages of {page_bytes}; reserve what the "
                                 f"plan takes first, and compile it for this device")
            pages += self._pages[offset // page_bytes:(offset + nbytes) // page_bytes]
        return pages

    def free(self) -> None:
        """Note that the arena is no longer wanted. Calls nothing, so it is safe in finalizers."""
        self._pool.later(self._take_back)

    def _take_back(self) -> None:
        self._virtual.free(self._range)
        self._give_up(self._pages)
        self._pages = []

    def _give_up(self, pages: list[int]) -> None:
        self._virtual.release(pages)
        self._pool.discharge(len(pages) * self._virtual.page_bytes)


class MappedArena:
    """Addresses that show pages of a paged arena. They go back when nobody holds this any more, or by `free`."""

    def __init__(self, arena: Arena, where: Range, give_back: partial[None]) -> None:
        self.extents: tuple[Extent, ...] = arena.extents
        self.address, self.nbytes = where.address, where.nbytes
        self._give_back = weakref.finalize(self, give_back)
        self._give_back.atexit = False  # the device gives everything back then

    def free(self) -> None:
        """Note that the addresses are no longer wanted; once, from any thread."""
        self._give_back()
