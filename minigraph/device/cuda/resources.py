"""What memories and programs hold of a device, in pools: streams, events, page-locked host memory, device memory.

Everything is made under the device's context and handed back without a call of the driver, so that finalizers may do
it on any thread. What is handed back is used again; the driver's objects live as long as the device.
"""
from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import OutOfMemoryError, align, format_bytes
from .allocator import Allocation, MemoryRefused, Pool
from .driver import Driver

PINNED_UNIT = 4096
"""Page-locked pieces are multiples of a page; a piece is used again for the same number of pages only."""
PINNED_KEPT_BYTES = 64 << 20
"""Free page-locked memory beyond this goes back to the operating system."""


class DeviceSource:
    """Blocks of device memory from the driver; the current context must be the device's."""

    def __init__(self, driver: Driver, settle: Callable[[], None]) -> None:
        self._driver = driver
        self._blocks: dict[int, Any] = {}
        self.settle = settle

    def allocate(self, nbytes: int) -> int:
        """A new block; MemoryRefused when the driver has none."""
        try:
            block = self._driver.keep(self._driver.cuda.mem_alloc(nbytes))
        except self._driver.cuda.MemoryError as error:
            raise MemoryRefused from error
        self._blocks[int(block)] = block
        return int(block)

    def release(self, address: int) -> None:
        """Give a block back."""
        block = self._blocks.pop(address)
        block.free()
        self._driver.drop(block)

    def free_bytes(self) -> int:
        """What the driver says is free."""
        return int(self._driver.cuda.mem_get_info()[0])

    def hand_out(self, address: int, nbytes: int) -> None:
        """The software driver's race detector takes the piece for a tensor of its own."""
        if self._driver.region is not None:
            self._driver.region(address, nbytes)

    def take_back(self, address: int, nbytes: int) -> None:
        """The software driver fills the piece with NaN, so that a use after the end shows."""
        if self._driver.poison is not None:
            self._driver.poison(address, nbytes)


class HandlePool:
    """Streams or events, made by `make` when none is free."""

    def __init__(self, driver: Driver, make: Callable[[], Any]) -> None:
        self._driver = driver
        self._make = make
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """One for the caller alone."""
        try:
            return self._free.pop()
        except IndexError:
            return self._driver.keep(self._make())

    def give_back(self, handle: Any) -> None:
        """It may be taken again at once: what the last owner put on it stays in order before what comes."""
        self._free.append(handle)


class PinnedPool:
    """Page-locked host memory as uint8 arrays, which copies read and write without the caller's waiting."""

    def __init__(self, driver: Driver, settle: Callable[[], None]) -> None:
        self._driver = driver
        self._settle = settle
        self._freed: deque[np.ndarray] = deque()
        self._free: dict[int, list[np.ndarray]] = {}
        self._free_bytes = 0
        self._lock = threading.RLock()
        self.used_bytes = 0

    def take(self, nbytes: int) -> np.ndarray:
        """An array of at least `nbytes` (a multiple of 4096), its contents undefined."""
        size = align(max(nbytes, 1), PINNED_UNIT)
        with self._lock:
            self.collect()
            kept = self._free.get(size)
            if kept:
                array = kept.pop()
                self._free_bytes -= size
            else:
                array = self._allocate(size)
            self.used_bytes += size
            return array

    def give_back(self, array: np.ndarray) -> None:
        """Note that an array from `take` is no longer wanted; safe in finalizers."""
        self._freed.append(array)

    def collect(self) -> None:
        """Make what was given back available, after the device has come to the end of its use."""
        with self._lock:
            if not self._freed:
                return
            count = len(self._freed)
            self._settle()
            for _ in range(count):
                array = self._freed.popleft()
                self.used_bytes -= array.nbytes
                self._free_bytes += array.nbytes
                self._free.setdefault(array.nbytes, []).append(array)
            if self._free_bytes > PINNED_KEPT_BYTES:
                self.trim()

    def trim(self) -> None:
        """Give all that nobody uses back to the operating system."""
        with self._lock:
            self.collect()
            for arrays in self._free.values():
                for array in arrays:
                    allocation: Any = array.base  # PyCUDA's object, of which the array is a view
                    allocation.free()
                    self._driver.drop(array)
            self._free.clear()
            self._free_bytes = 0

    def _allocate(self, size: int) -> np.ndarray:
        try:
            return self._driver.keep(self._driver.cuda.pagelocked_empty((size,), np.uint8))
        except self._driver.cuda.MemoryError as error:
            raise OutOfMemoryError(f"the host has no {format_bytes(size)} of page-locked memory for transfers; choose "
                                   f"a smaller batch, or let go of other executors", size, 0) from error


class Holdings:
    """What one owner holds of the pools. It goes back when the owner dies, or with `release`, whichever comes first."""

    def __init__(self, owner: object, pool: Pool, pinned: PinnedPool, streams: HandlePool, events: HandlePool) -> None:
        self._pool, self._pinned, self._streams, self._events = pool, pinned, streams, events
        self._held: list[tuple[Callable[[Any], None], Any]] = []
        finalizer = weakref.finalize(owner, _give_back, self._held)
        finalizer.atexit = False  # the device gives everything back then

    def memory(self, nbytes: int) -> Allocation:
        """Device memory."""
        return self._hold(self._pool.free, self._pool.allocate(nbytes))

    def pinned(self, nbytes: int) -> np.ndarray:
        """Page-locked host memory."""
        return self._hold(self._pinned.give_back, self._pinned.take(nbytes))

    def stream(self) -> Any:
        """A stream."""
        return self._hold(self._streams.give_back, self._streams.take())

    def event(self, stream: Any = None) -> Any:
        """An event. Whoever may wait for it before recording it names a stream, on which it is recorded at once: its
        last owner may have recorded it in a captured graph, and nobody can wait for that."""
        event = self._hold(self._events.give_back, self._events.take())
        if stream is not None:
            event.record(stream)
        return event

    def add(self, give_back: Callable[[Any], None], thing: Any) -> Any:
        """Something else, with what is to be done with it in the end."""
        return self._hold(give_back, thing)

    def drop(self, thing: object) -> None:
        """Give one thing back now."""
        for at, (give_back, held) in enumerate(self._held):
            if held is thing:
                del self._held[at]
                give_back(held)
                return

    def release(self) -> None:
        """Give everything back now."""
        _give_back(self._held)

    def _hold(self, give_back: Callable[[Any], None], thing: Any) -> Any:
        self._held.append((give_back, thing))
        return thing


def _give_back(held: list[tuple[Callable[[Any], None], Any]]) -> None:
    while held:
        give_back, thing = held.pop()
        give_back(thing)
