"""The pool that all executors of a device share: few large blocks of device memory, cut by best fit.

Memory is handed back from finalizers, which may run on any thread and at any moment: `free` only notes it. The next
allocation waits until the device no longer uses what was noted (`Source.settle`), and only then hands it out again.
"""
from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from ...base import OutOfMemoryError, align, format_bytes

ALIGNMENT = 256
"""Bytes to which addresses and sizes are rounded: what cuMemAlloc promises, and no load instruction wants more."""
BLOCK_BYTES = 2 << 20
"""Blocks are multiples of the driver's own page: small executors share one, and a large arena wastes less than one."""
T = TypeVar("T")


class MemoryRefused(Exception):
    """A source has no such piece."""


class DeviceMemoryError(OutOfMemoryError):
    """Device memory that is not there; `largest_hole_bytes` is the largest piece that there is."""

    def __init__(self, message: str, asked_bytes: int, free_bytes: int, largest_hole_bytes: int) -> None:
        super().__init__(message, asked_bytes, free_bytes)
        self.largest_hole_bytes = largest_hole_bytes


class Source(Protocol):
    """Where a pool's blocks come from."""

    def allocate(self, nbytes: int) -> int:
        """The address of a new block; MemoryRefused when there is no room."""
        ...

    def release(self, address: int) -> None:
        """Give a block back."""
        ...

    def free_bytes(self) -> int:
        """Bytes that could still be allocated."""
        ...

    def settle(self) -> None:
        """Return when nothing uses memory that was freed before."""
        ...

    def hand_out(self, address: int, nbytes: int) -> None:
        """Told of each piece that is given out."""
        ...

    def take_back(self, address: int, nbytes: int) -> None:
        """Told of each piece that is free again."""
        ...


@dataclass(eq=False)
class Block:
    """One piece of the source's memory; `holes` are its free parts as (offset, bytes), by offset."""

    address: int
    nbytes: int
    holes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether nothing of it is in use."""
        return self.holes == [(0, self.nbytes)]

    def cut(self, hole: tuple[int, int], nbytes: int) -> int:
        """Take bytes from the beginning of a hole; their offset."""
        offset, room = hole
        at = self.holes.index(hole)
        self.holes[at:at + 1] = [(offset + nbytes, room - nbytes)] if room > nbytes else []
        return offset

    def mend(self, offset: int, nbytes: int) -> None:
        """Make bytes a hole again, one with its free neighbours."""
        insort(self.holes, (offset, nbytes))
        at = self.holes.index((offset, nbytes))
        first = at - 1 if at and sum(self.holes[at - 1]) == offset else at
        last = at + 1 if at + 1 < len(self.holes) and self.holes[at + 1][0] == offset + nbytes else at
        end = sum(self.holes[last])
        self.holes[first:last + 1] = [(self.holes[first][0], end - self.holes[first][0])]


@dataclass(frozen=True, eq=False)
class Allocation:
    """A piece of device memory; give it to `Pool.free` once, from any thread."""

    address: int
    nbytes: int
    block: Block | None


class Pool:
    """Device memory in pieces.

    `capacity_bytes` bounds what is taken from the source. With `pooled=False` every piece is a block of its own,
    of exactly the bytes asked for, and goes back as soon as it may.
    """

    def __init__(self, source: Source, capacity_bytes: int | None = None, pooled: bool = True) -> None:
        self.source = source
        self.capacity_bytes = capacity_bytes
        self.pooled = pooled
        self.used_bytes = self.peak_bytes = self.reserved_bytes = 0
        self._blocks: list[Block] = []
        self._freed: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> Allocation:
        """A piece of at least `nbytes`, its contents undefined; DeviceMemoryError when there is no room."""
        if nbytes == 0:
            return Allocation(0, 0, None)
        with self._lock:
            self.collect()
            size = align(nbytes, ALIGNMENT) if self.pooled else nbytes
            block, hole = self._best_fit(size) or self._new_block(size, nbytes)
            allocation = Allocation(block.address + block.cut(hole, size), size, block)
            self._count(size)
            self.source.hand_out(allocation.address, size)
            return allocation

    def charge(self, nbytes: int, make: Callable[[], T]) -> T:
        """Count as in use what `make` takes from the device itself, `nbytes` that lie in no block, until `discharge`.

        DeviceMemoryError when there is no room, or `make` raises MemoryRefused.
        """
        with self._lock:
            self.collect()
            self._release_free_blocks()
            try:
                if nbytes > self._source_bytes():
                    raise MemoryRefused
                made = make()
            except MemoryRefused:
                raise self._refusal(nbytes) from None
            self.reserved_bytes += nbytes
            self._count(nbytes)
            return made

    def discharge(self, nbytes: int) -> None:
        """What was charged has gone back to the device."""
        with self._lock:
            self.reserved_bytes -= nbytes
            self.used_bytes -= nbytes

    def free(self, allocation: Allocation) -> None:
        """Note that a piece is no longer wanted. Calls nothing, so it is safe in finalizers."""
        if allocation.block is not None:
            self.later(partial(self._take_back, allocation))

    def later(self, give_back: Callable[[], None]) -> None:
        """Note what is to be called once the device has come to the end of all that it does now; safe in finalizers."""
        self._freed.append(give_back)

    def collect(self) -> None:
        """Make what was freed available again, after the device has come to the end of its use."""
        with self._lock:
            if not self._freed:
                return
            count = len(self._freed)
            self.source.settle()
            for _ in range(count):
                self._freed.popleft()()
            if not self.pooled:
                self._release_free_blocks()

    def trim(self) -> int:
        """Give back what nobody uses; the bytes that were given back."""
        with self._lock:
            before = self.reserved_bytes
            self.collect()
            self._release_free_blocks()
            return before - self.reserved_bytes

    def release_all(self) -> None:
        """Give every block back, whoever still holds pieces of it; the pool is not used again."""
        with self._lock:
            for block in self._blocks:
                self.source.release(block.address)
            self._blocks.clear()

    @property
    def free_bytes(self) -> int:
        """Bytes of all holes, and what the source could still give within the capacity."""
        holes = sum(nbytes for block in self._blocks for _, nbytes in block.holes)
        return holes + self._source_bytes()

    @property
    def largest_hole_bytes(self) -> int:
        """The largest piece that could be allocated now."""
        return max([self._source_bytes(), *(nbytes for block in self._blocks for _, nbytes in block.holes)])

    def _source_bytes(self) -> int:
        room = self.source.free_bytes()
        return room if self.capacity_bytes is None else max(0, min(room, self.capacity_bytes - self.reserved_bytes))

    def _best_fit(self, size: int) -> tuple[Block, tuple[int, int]] | None:
        fits = ((hole[1], number, hole) for number, block in enumerate(self._blocks) for hole in block.holes
                if hole[1] >= size)
        best = min(fits, default=None)
        return None if best is None else (self._blocks[best[1]], best[2])

    def _new_block(self, size: int, asked: int) -> tuple[Block, tuple[int, int]]:
        """A block that holds `size`: in whole pages, or else of just this size. Blocks that nobody uses are too small,
        so they go first: sizes that grow one after the other take no more than the largest."""
        wanted = align(size, BLOCK_BYTES) if self.pooled else size
        self._release_free_blocks()
        block = self._try_block(wanted) or self._try_block(size)
        if block is None:
            raise self._refusal(asked)
        return block, block.holes[0]

    def _refusal(self, asked: int) -> DeviceMemoryError:
        free, hole = self.free_bytes, self.largest_hole_bytes
        return DeviceMemoryError(
            f"the device has no {format_bytes(asked)} ({asked} bytes) for an arena: {format_bytes(free)} are free, "
            f"the largest piece is {format_bytes(hole)}, and executors hold {format_bytes(self.used_bytes)}; "
            f"choose a smaller batch or a memory budget, or let go of other executors", asked, free, hole)

    def _count(self, nbytes: int) -> None:
        self.used_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def _try_block(self, nbytes: int) -> Block | None:
        if self.capacity_bytes is not None and self.reserved_bytes + nbytes > self.capacity_bytes:
            return None
        try:
            address = self.source.allocate(nbytes)
        except MemoryRefused:
            return None
        block = Block(address, nbytes, [(0, nbytes)])
        self._blocks.append(block)
        self.reserved_bytes += nbytes
        return block

    def _take_back(self, allocation: Allocation) -> None:
        assert allocation.block is not None
        allocation.block.mend(allocation.address - allocation.block.address, allocation.nbytes)
        self.used_bytes -= allocation.nbytes
        self.source.take_back(allocation.address, allocation.nbytes)

    def _release_free_blocks(self) -> None:
        for block in [block for block in self._blocks if block.is_free]:
            self._blocks.remove(block)
            self.reserved_bytes -= block.nbytes
            self.source.release(block.address)
