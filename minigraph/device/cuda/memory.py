"""Arenas in device memory, the group's streams, and the ways in and out for arrays of the host.

`CudaMemory` keeps each arena in one piece of the pool, or the transient one in pages, of which mapped arenas show some
once more. `SeparateMemory` gives every storage an allocation of its own, for finding a kernel that leaves its buffer.
Both say where a plan's buffers lie by `bind`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ...base import MXNetError, Shape, format_bytes
from ...plan.plan import STREAMS, Arena, Plan
from ..storages import storage_roots
from .allocator import Allocation
from .paged import MappedArena, PagedArena
from .staging import Staging

if TYPE_CHECKING:
    from .device import CudaDevice

TRANSFER_BYTES = 1 << 20
"""Page-locked bytes through which `write` sends an array; two of them, so that one fills while the other travels."""
NOTHING = Allocation(0, 0, None)
Span = tuple[int, int]
"""Bytes of device memory: (address, address past the end)."""


@dataclass(frozen=True)
class Binding:
    """Where a plan's buffers lie: an address for each, 0 for those on the host; `host` is the host arenas by number.

    It holds while the memory's `generation` is the same. Mapped arenas are there as long as somebody holds them.
    """

    addresses: list[int]
    host: dict[int, np.ndarray]
    generation: int
    mapped: tuple[MappedArena, ...] = ()


class CudaMemory:
    """The persistent and the transient arena of one group; `generation` counts how often either has moved.

    A group has streams of its own, so that groups never wait for each other.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.generation = 0
        self.holdings = device.holdings(self)
        self.arenas: dict[str, Allocation | PagedArena] = {"persistent": NOTHING, "transient": NOTHING}
        self._sizes = {"persistent": 0, "transient": 0}
        self._mapped: WeakValueDictionary[str, MappedArena] = WeakValueDictionary()
        self._host: dict[str, np.ndarray] = {}
        with device.context:
            self.streams = tuple(self.holdings.stream() for _ in STREAMS)
            self.staging = Staging(device, self.holdings, self.streams[0])
        self._transfer: tuple[tuple[np.ndarray, Any], ...] = ()

    # -- arenas ------------------------------------------------------------------------------------------------
    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Make both arenas at least this large; persistent contents are kept, new persistent bytes are zero.

        With `page_bytes` the transient one is made of pages from now on. DeviceMemoryError when there is no room: the
        persistent arena is then as before, and the transient one is as large as before, its contents lost.
        """
        self._check_pages(page_bytes)
        in_pages = page_bytes > 0 and not isinstance(self.arenas["transient"], PagedArena)
        if in_pages or persistent_bytes > self._sizes["persistent"] or transient_bytes > self._sizes["transient"]:
            with self.device.context:
                self._reserve_persistent(persistent_bytes)
                self._reserve_transient(transient_bytes, in_pages)

    def _check_pages(self, page_bytes: int) -> None:
        least = self.device.page_bytes
        if page_bytes and (least == 0 or page_bytes % least):
            can = f"pages of {least} bytes and their multiples" if least else "no pages"
            raise MXNetError(f"the transient arena is to be made of pages of {page_bytes} bytes, and "
                             f"{self.device.context.device_name} maps {can}; compile the plan for this device "
                             f"(Request.page_bytes)")

    def _reserve_persistent(self, nbytes: int) -> None:
        had, old = self._sizes["persistent"], self.arenas["persistent"]
        if nbytes <= had:
            return
        new = self.holdings.memory(nbytes)
        cuda, stream = self.device.driver.cuda, self.streams[0]
        if had:
            cuda.memcpy_dtod_async(new.address, old.address, had, stream)
        cuda.memset_d8_async(new.address + had, 0, nbytes - had, stream)
        self._replace("persistent", new, nbytes)

    def _reserve_transient(self, nbytes: int, in_pages: bool) -> None:
        had, arena = self._sizes["transient"], self.arenas["transient"]
        if isinstance(arena, PagedArena):
            arena.grow(nbytes)
            self._sizes["transient"] = arena.nbytes
            return
        if nbytes <= had and not in_pages:
            return
        self._replace("transient", NOTHING, 0)
        try:
            if in_pages:
                self._make_pages(max(nbytes, had))
            else:
                self._replace("transient", self.holdings.memory(nbytes), nbytes)
        except MXNetError:
            self._replace("transient", self.holdings.memory(had), had)
            raise

    def _make_pages(self, nbytes: int) -> None:
        arena = self.device.paged_arena()
        try:
            arena.grow(nbytes)
        except BaseException:
            arena.free()
            raise
        self._replace("transient", self.holdings.add(PagedArena.free, arena), arena.nbytes)

    def _replace(self, name: str, allocation: Allocation | PagedArena, nbytes: int) -> None:
        self.holdings.drop(self.arenas[name])
        self.arenas[name], self._sizes[name] = allocation, nbytes
        self.generation += 1

    def forget(self) -> None:
        """Give all arenas back with what they hold, and begin anew; programs loaded before must not run any more."""
        with self.device.context:
            self.device.context.synchronize()
            for shown in list(self._mapped.values()):
                shown.free()
            self._mapped.clear()
            for name in self.arenas:
                self._replace(name, NOTHING, 0)
            for array in self._host.values():
                self.holdings.drop(array)
            self._host.clear()

    def clear(self, arena: str, offset: int, nbytes: int) -> None:
        """Make bytes of an arena zero, where a tensor begins that is not the one that lay there before."""
        if arena in self._host:
            place = self._settled(arena, offset, nbytes)
            self.device.touch(place, nbytes)
            place[:] = 0
        elif nbytes:
            with self.device.context:
                self.device.driver.cuda.memset_d8_async(self._address(arena, offset, nbytes), 0, nbytes,
                                                        self.streams[0])

    def reserve_space(self, name: str, space: str, nbytes: int) -> None:
        """Make a page-locked arena at least this large; its contents are kept, and new bytes are zero."""
        if space != "host":
            raise MXNetError(f"the {name} arena of {format_bytes(nbytes)} is to lie in a {space}; the GPU keeps what "
                             f"is not on the device in host memory: give host_budget=, and no disk=")
        self.host_arena(name, nbytes)

    def host_arena(self, name: str, nbytes: int) -> np.ndarray:
        """A page-locked arena of the host as uint8, for swapping; made larger it keeps its contents."""
        have = self._host.get(name)
        if have is not None and have.nbytes >= nbytes:
            return have
        with self.device.context:
            array = self.holdings.pinned(nbytes)
            kept = 0 if have is None else have.nbytes
            self.device.touch(array, array.nbytes)
            array[kept:] = 0
            if have is not None:
                self.device.context.synchronize()
                array[:kept] = have
                self.holdings.drop(have)
                self.generation += 1
        self._host[name] = array
        return array

    def bind(self, plan: Plan) -> Binding:
        """Where the plan's buffers lie now, with its mapped arenas made; MXNetError when its arenas are larger than
        these."""
        host, columns = self._host_arenas(plan), plan.buffers
        mapped = {number: self._mapped_arena(arena) for number, arena in enumerate(plan.arenas)
                  if arena.space == "mapped"}
        bases = [0 if number in host else mapped[number].address if number in mapped else self._base(plan, arena)
                 for number, arena in enumerate(plan.arenas)]
        addresses = [0 if arena in host else bases[arena] + offset
                     for arena, offset in zip(columns.arena, columns.offset, strict=True)]
        return Binding(addresses, host, self.generation, tuple(mapped.values()))

    def _base(self, plan: Plan, arena: Arena) -> int:
        if arena.bytes > self._sizes[arena.name]:
            raise MXNetError(f"the plan of `{plan.program}` takes {format_bytes(arena.bytes)} of the {arena.name} "
                             f"arena, which has {format_bytes(self._sizes[arena.name])}; reserve it first")
        return self.arenas[arena.name].address

    def _mapped_arena(self, arena: Arena) -> MappedArena:
        """What shows the arena's extents; programs with equal ones share it."""
        found, pages = self._mapped.get(arena.name), self.arenas["transient"]
        if found is None:
            if not isinstance(pages, PagedArena):
                raise MXNetError(f"the arena {arena.name} shows pages of the transient arena, which is not made of "
                                 f"pages; reserve it with page_bytes={arena.page_bytes} first")
            found = self._mapped[arena.name] = pages.mapped(arena)
        elif found.extents != arena.extents:
            raise MXNetError(f"two plans have mapped arenas of the name {arena.name} that show other pages; name each "
                             f"after its extents")
        return found

    def spans(self, plan: Plan, b: int, binding: Binding) -> list[Span]:
        """Where the bytes of a device buffer lie, by addresses that tell them from all others: of no mapped arena."""
        found = [(self.arenas[plan.arenas[k].name].address + offset, nbytes) for k, offset, nbytes in plan.pieces(b)]
        return [(begin, begin + nbytes) for begin, nbytes in found]

    def _host_arenas(self, plan: Plan) -> dict[int, np.ndarray]:
        for arena in plan.arenas:
            if not arena.on_device and arena.space != "host" and arena.bytes:
                raise MXNetError(f"the plan of `{plan.program}` swaps {format_bytes(arena.bytes)} to a {arena.space}; "
                                 f"the GPU swaps to host memory: plan with host_budget=")
        return {number: self.host_arena(arena.name, arena.bytes) for number, arena in enumerate(plan.arenas)
                if not arena.on_device}

    # -- contents ----------------------------------------------------------------------------------------------
    def read(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """The tensor at a place of an arena, copied to the host once everything before has run."""
        result = np.empty(shape, dtype)
        if arena in self._host:
            result.reshape(-1).view(np.uint8)[:] = self._settled(arena, offset, result.nbytes)
        elif result.nbytes:
            with self.device.context:
                address = self._address(arena, offset, result.nbytes)
                self.device.driver.cuda.memcpy_dtoh_async(result, address, self.streams[0])
                self.streams[0].synchronize()
        return result

    def write(self, arena: str, offset: int, value: np.ndarray) -> None:
        """Copy an array to a place of an arena, through page-locked memory; done when it returns."""
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if arena in self._host:
            place = self._settled(arena, offset, data.nbytes)
            self.device.touch(place, data.nbytes)
            place[:] = data
        elif data.nbytes:
            with self.device.context:
                self._send(self._address(arena, offset, data.nbytes), data)

    def _settled(self, arena: str, offset: int, nbytes: int) -> np.ndarray:
        """Bytes of a host arena once everything before has run."""
        with self.device.context:
            self.streams[0].synchronize()
        return self._host[arena][offset:offset + nbytes]

    def _send(self, address: int, data: np.ndarray) -> None:
        cuda, stream = self.device.driver.cuda, self.streams[0]
        pieces = self._transfer or self._make_transfer()
        for number, start in enumerate(range(0, data.nbytes, TRANSFER_BYTES)):
            piece = data[start:start + TRANSFER_BYTES]
            buffer, sent = pieces[number % 2]
            sent.synchronize()
            self.device.touch(buffer, piece.nbytes)
            buffer[:piece.nbytes] = piece
            cuda.memcpy_htod_async(address + start, buffer[:piece.nbytes], stream)
            sent.record(stream)
        stream.synchronize()

    def _make_transfer(self) -> tuple[tuple[np.ndarray, Any], ...]:
        self._transfer = tuple((self.holdings.pinned(TRANSFER_BYTES), self.holdings.event(self.streams[0]))
                               for _ in range(2))
        return self._transfer

    def _address(self, arena: str, offset: int, nbytes: int) -> int:
        shown = self._mapped.get(arena)
        size = self._sizes.get(arena, 0) if shown is None else shown.nbytes
        if offset + nbytes > size:
            raise MXNetError(f"the {arena} arena has {size} bytes, and bytes {offset} to {offset + nbytes} were asked "
                             f"for; reserve it first")
        return (self.arenas[arena] if shown is None else shown).address + offset

    def ran(self, plan: Plan, binding: Binding) -> None:
        """Told after each run of a plan."""

    def drain(self) -> None:
        """Return when the group's streams have come to their end, whatever failed on them."""
        for stream in (*self.streams, self.staging.stream):
            try:
                stream.synchronize()
            except self.device.driver.cuda.Error:
                continue

    def close(self) -> None:
        """Give arenas, streams and host memory back."""
        for shown in list(self._mapped.values()):
            shown.free()
        self._mapped.clear()
        self.arenas = dict.fromkeys(self.arenas, NOTHING)
        self._sizes = dict.fromkeys(self._sizes, 0)
        self._host.clear()
        self._transfer = ()
        self.generation += 1
        self.holdings.release()


class SeparateMemory(CudaMemory):
    """Arenas of which every storage is an allocation of its own: an overrun has nowhere to go."""

    def __init__(self, device: CudaDevice) -> None:
        super().__init__(device)
        self._kept: dict[int, Allocation] = {}
        self._last: dict[tuple[str, int], int] = {}

    def forget(self) -> None:
        """Give all persistent allocations back, and the host arenas."""
        for place in self._kept.values():
            self.holdings.drop(place)
        self._kept.clear()
        self._last.clear()
        super().forget()

    def clear(self, arena: str, offset: int, nbytes: int) -> None:
        """Give the allocations back that lay there; the next one at a place is new, and zero."""
        if arena != "persistent":
            super().clear(arena, offset, nbytes)
            return
        for begin in [each for each, place in self._kept.items()
                      if each < offset + nbytes and offset < each + max(place.nbytes, 1)]:
            self.holdings.drop(self._kept.pop(begin))

    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Nothing is reserved: allocations are made when a plan is bound."""

    def bind(self, plan: Plan) -> Binding:
        """Make an allocation for each storage of the plan; persistent ones by their place, for all plans."""
        columns, roots, host = plan.buffers, storage_roots(plan), self._host_arenas(plan)
        begin, end = list(columns.offset), [0] * len(columns)
        for b, root in enumerate(roots):
            begin[root] = min(begin[root], columns.offset[b])
            end[root] = max(end[root], columns.offset[b] + columns.bytes[b])
        bases: dict[int, int] = {}
        for root in sorted(set(roots)):
            if columns.arena[root] in host:
                continue
            persistent = plan.arenas[columns.arena[root]].name == "persistent"
            nbytes = end[root] - begin[root]
            bases[root] = (self._place(begin[root], nbytes) if persistent else self.holdings.memory(nbytes)).address
        addresses = [bases[root] + columns.offset[b] - begin[root] if root in bases else 0
                     for b, root in enumerate(roots)]
        return Binding(addresses, host, self.generation)

    def spans(self, plan: Plan, b: int, binding: Binding) -> list[Span]:
        """The buffer's bytes in the allocation of its storage."""
        return [(binding.addresses[b], binding.addresses[b] + plan.buffers.bytes[b])]

    def ran(self, plan: Plan, binding: Binding) -> None:
        """Note where outputs lie, for they are asked for by their place in the arena."""
        for b in (*(out.buffer for out in plan.outputs), *plan.inputs.values()):
            self._last[plan.arenas[plan.buffers.arena[b]].name, plan.buffers.offset[b]] = binding.addresses[b]

    def close(self) -> None:
        """Give everything back."""
        self._kept.clear()
        self._last.clear()
        super().close()

    def _address(self, arena: str, offset: int, nbytes: int) -> int:
        if arena == "persistent":
            return self._place(offset, nbytes).address
        if (arena, offset) not in self._last:
            raise MXNetError(f"no program has run that keeps a value at byte {offset} of the {arena} arena")
        return self._last[arena, offset]

    def _place(self, offset: int, nbytes: int) -> Allocation:
        place = self._kept.get(offset)
        if place is not None and 0 < place.nbytes < nbytes:
            raise MXNetError(f"{nbytes} bytes were asked for at byte {offset} of the persistent arena, where a tensor "
                             f"of {place.nbytes} lies; with MINIGRAPH_CUDA_POOL=off nothing lies behind it")
        if place is None or place.nbytes < nbytes:
            place = self._kept[offset] = self.holdings.memory(nbytes)
            if nbytes:
                self.device.driver.cuda.memset_d8_async(place.address, 0, nbytes, self.streams[0])
        return place
