"""Virtual memory management: memory, addresses, and mappings that put them together. Run by child.py."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

PAGE = 2 << 20
"""The granularity, in bytes."""
FLOATS = PAGE // 4
NO_ACCESS, READ, READ_WRITE = 0, 1, 3
SIZE, ADDRESS = ctypes.c_size_t, ctypes.c_uint64


class Location(ctypes.Structure):
    """CUmemLocation; type 1 is a device."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp; type 1 is pinned memory, the only one that there is."""

    _fields_ = (("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4))


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def properties(kind: int = 1, device: int = 0, **others: int) -> Any:
    """The properties of memory on the device, by reference."""
    return ctypes.byref(Properties(type=kind, location=Location(1, device), **others))


class Memory:
    """The functions, through ctypes; each returns the call's CUresult, or raises for one that must succeed."""

    def __init__(self, gpu: Any) -> None:
        self.gpu, self.library = gpu, gpu.library

    def must(self, result: int) -> None:
        """RuntimeError unless the result is CUDA_SUCCESS."""
        if result:
            raise RuntimeError(f"{result}: {self.library.softcuda_message().decode()}")

    def create(self, pages: int = 1) -> int:
        """A handle of new memory."""
        handle = ctypes.c_uint64()
        self.must(self.library.cuMemCreate(ctypes.byref(handle), SIZE(pages * PAGE), properties(), ADDRESS(0)))
        return handle.value

    def reserve(self, pages: int = 1, alignment: int = 0) -> int:
        """Addresses that show nothing yet."""
        address = ADDRESS()
        self.must(self.library.cuMemAddressReserve(ctypes.byref(address), SIZE(pages * PAGE), SIZE(alignment),
                                                   ADDRESS(0), ADDRESS(0)))
        return address.value

    def map(self, address: int, handle: int, nbytes: int = PAGE, offset: int = 0) -> int:
        """Show a handle's memory at the address."""
        return int(self.library.cuMemMap(ADDRESS(address), SIZE(nbytes), SIZE(offset), ADDRESS(handle), ADDRESS(0)))

    def set_access(self, address: int, nbytes: int = PAGE, flags: int = READ_WRITE, device: int = 0) -> int:
        """Open mappings for reads or writes, or close them."""
        access = Access(Location(1, device), flags)
        return int(self.library.cuMemSetAccess(ADDRESS(address), SIZE(nbytes), ctypes.byref(access), SIZE(1)))

    def get_access(self, address: int) -> int:
        """What the address is open for."""
        flags, place = ctypes.c_ulonglong(99), Location(1, 0)
        self.must(self.library.cuMemGetAccess(ctypes.byref(flags), ctypes.byref(place), ADDRESS(address)))
        return flags.value

    def unmap(self, address: int, nbytes: int = PAGE) -> int:
        """Show nothing there any more."""
        return int(self.library.cuMemUnmap(ADDRESS(address), SIZE(nbytes)))

    def release(self, handle: int) -> int:
        """Give the handle up."""
        return int(self.library.cuMemRelease(ADDRESS(handle)))

    def free_addresses(self, address: int, nbytes: int = PAGE) -> int:
        """Give a reservation back."""
        return int(self.library.cuMemAddressFree(ADDRESS(address), SIZE(nbytes)))

    def show(self, handles: Sequence[int]) -> int:
        """New addresses that show these handles' pages, one after another."""
        address = self.reserve(len(handles))
        for i, handle in enumerate(handles):
            self.must(self.map(address + i * PAGE, handle))
        self.must(self.set_access(address, len(handles) * PAGE))
        return address


def support(gpu: Any) -> Any:
    """What the device says: attribute 102, and the least and the recommended granularity."""
    value, granularities = ctypes.c_int(), []
    gpu.library.cuDeviceGetAttribute(ctypes.byref(value), 102, 0)
    for option in (0, 1):
        size = SIZE()
        gpu.library.cuMemGetAllocationGranularity(ctypes.byref(size), properties(), option)
        granularities.append(size.value)
    return [value.value, *granularities]


def write_here_read_there(gpu: Any) -> Any:
    """One page at two addresses: a copy writes at the one, a kernel changes it at the other, a copy reads."""
    memory = Memory(gpu)
    handle = memory.create()
    here, there = memory.show([handle]), memory.show([handle])
    ones = gpu.drv.to_device(gpu.np.ones(256, "float32"))
    gpu.drv.memcpy_htod(here, gpu.np.arange(256, dtype="float32"))
    gpu.launch("axpy", "fPPi", (2.0, ones, there, 256), block=256)
    seen = gpu.read(here, 256)
    gpu.drv.memset_d32(here, 0, 256)
    return [here != there, bool((seen == gpu.np.arange(256) + 2).all()), float(gpu.read(there, 256).sum())]


def count_up(gpu: Any, address: int, pages: int) -> Any:
    """Copy 0, 1, 2, ... to so many pages in one piece; the values."""
    values = gpu.np.arange(pages * FLOATS, dtype="float32")
    gpu.drv.memcpy_htod(address, values)
    return values


def cross_mappings(gpu: Any) -> Any:
    """Copies, a fill and a kernel over pages side by side that lie in memory in another order."""
    np, memory = gpu.np, Memory(gpu)
    handles = [memory.create() for _ in range(3)]
    ordered, mixed = memory.show(handles), memory.show([handles[i] for i in (2, 0, 1)])
    pages = count_up(gpu, ordered, 3).reshape(3, FLOATS)
    copied = bool((gpu.read(mixed, 3 * FLOATS).reshape(3, FLOATS) == pages[[2, 0, 1]]).all())
    seam = mixed + PAGE - 4 * 100
    gpu.launch("axpy", "fPPi", (1.0, gpu.drv.to_device(np.ones(200, "float32")), seam, 200), block=200)
    changed = gpu.read(mixed, 3 * FLOATS) - pages[[2, 0, 1]].ravel()
    gpu.drv.memset_d32(seam + PAGE, 0, 200)
    back = gpu.drv.mem_alloc(2 * PAGE)
    gpu.drv.memcpy_dtod(back, mixed + PAGE, 2 * PAGE)
    filled = gpu.read(back, 2 * FLOATS)
    return [copied, np.flatnonzero(changed).tolist() == list(range(FLOATS - 100, FLOATS + 100)),
            bool((filled[FLOATS - 100:FLOATS + 100] == 0).all()), int((filled == 0).sum())]


def map_a_part(gpu: Any) -> Any:
    """The first of a handle's two pages, mapped alone; it is the first one."""
    memory = Memory(gpu)
    handle, whole, part = memory.create(2), memory.reserve(2), memory.reserve(2)
    memory.must(memory.map(whole, handle, 2 * PAGE))
    memory.must(memory.set_access(whole, 2 * PAGE))
    memory.must(memory.map(part, handle))
    memory.must(memory.set_access(part))
    values = count_up(gpu, whole, 2)
    return bool((gpu.read(part, FLOATS) == values[:FLOATS]).all())


def align(gpu: Any) -> Any:
    """Reservations at a given alignment; what is left of their addresses."""
    memory = Memory(gpu)
    return [memory.reserve(1, alignment) % max(alignment, PAGE) for alignment in (0, 4096, PAGE, 16 * PAGE, 1 << 30)]


def refusals(gpu: Any) -> Any:
    """Calls that CUDA refuses, and the result of each."""
    memory, library = Memory(gpu), gpu.library
    out, place, half = ADDRESS(), ctypes.byref(Location(1, 0)), PAGE // 2
    handle, released, shown = memory.create(2), memory.create(), memory.create()
    area, other = memory.reserve(4), memory.reserve()
    memory.must(memory.map(area, handle, 2 * PAGE))
    memory.show([shown])
    for gone in (released, shown):
        memory.must(memory.release(gone))

    def create(nbytes: int = PAGE, how: Any = None, flags: int = 0) -> int:
        return int(library.cuMemCreate(ctypes.byref(out), SIZE(nbytes), how or properties(), ADDRESS(flags)))

    def reserve(nbytes: int = PAGE, alignment: int = 0, hint: int = 0, flags: int = 0) -> int:
        return int(library.cuMemAddressReserve(ctypes.byref(out), SIZE(nbytes), SIZE(alignment), ADDRESS(hint),
                                               ADDRESS(flags)))

    calls = {
        "create nothing": lambda: create(0),
        "create half a page": lambda: create(half),
        "create with flags": lambda: create(flags=1),
        "create on another device": lambda: create(how=properties(device=1)),
        "create of another kind": lambda: create(how=properties(kind=2)),
        "create to share": lambda: create(how=properties(handle_types=1)),
        "release an unknown handle": lambda: memory.release(12345),
        "release twice": lambda: memory.release(released),
        "release twice what is mapped": lambda: memory.release(shown),
        "reserve nothing": lambda: reserve(0),
        "reserve half a page": lambda: reserve(half),
        "reserve at an odd alignment": lambda: reserve(alignment=3 * PAGE),
        "reserve at an odd hint": lambda: reserve(hint=half),
        "reserve with flags": lambda: reserve(flags=1),
        "free what is mapped": lambda: memory.free_addresses(area, 4 * PAGE),
        "free a part": lambda: memory.free_addresses(area, PAGE),
        "free from the middle": lambda: memory.free_addresses(area + 2 * PAGE, 2 * PAGE),
        "map at an offset": lambda: memory.map(area + 2 * PAGE, handle, PAGE, PAGE),
        "map half a page": lambda: memory.map(area + 2 * PAGE, handle, half),
        "map nothing": lambda: memory.map(area + 2 * PAGE, handle, 0),
        "map between pages": lambda: memory.map(area + 2 * PAGE + half, handle),
        "map more than there is": lambda: memory.map(area, handle, 3 * PAGE),
        "map behind the reservation": lambda: memory.map(area + 3 * PAGE, handle, 2 * PAGE),
        "map outside reservations": lambda: memory.map(1 << 40, handle),
        "map what is mapped": lambda: memory.map(area + PAGE, handle),
        "map onto what is mapped": lambda: memory.map(area + PAGE, handle, 2 * PAGE),
        "map a released handle": lambda: memory.map(other, released),
        "map a released handle again": lambda: memory.map(other, shown),
        "unmap a part": lambda: memory.unmap(area),
        "unmap more than is mapped": lambda: memory.unmap(area, 3 * PAGE),
        "unmap what is not mapped": lambda: memory.unmap(other),
        "open a part": lambda: memory.set_access(area),
        "open what is not mapped": lambda: memory.set_access(area, 3 * PAGE),
        "open for another device": lambda: memory.set_access(area, 2 * PAGE, device=1),
        "open by unknown flags": lambda: memory.set_access(area, 2 * PAGE, flags=2),
        "open without a description": lambda: library.cuMemSetAccess(ADDRESS(area), SIZE(2 * PAGE), None, SIZE(0)),
        "ask for access where nothing is mapped":
            lambda: library.cuMemGetAccess(ctypes.byref(out), place, ADDRESS(other)),
        "cuMemFree of a mapping": lambda: library.cuMemFree_v2(ADDRESS(area)),
    }
    results = {name: call() for name, call in calls.items()}
    memory.must(memory.unmap(area, 2 * PAGE))
    memory.must(memory.free_addresses(area, 4 * PAGE))
    return results


def fill_capacity(gpu: Any) -> Any:
    """With room for three pages: how far creating gets, and what mapping, releasing and unmapping leave free."""
    memory, area, free = Memory(gpu), 0, []

    def note() -> None:
        free.append(gpu.drv.mem_get_info()[0] // PAGE)

    handles = [memory.create(2), memory.create()]
    note()
    try:
        memory.create()
    except RuntimeError as error:
        refused = str(error)[:2]
    area = memory.reserve(2)
    memory.must(memory.map(area, handles[1]))
    memory.must(memory.map(area + PAGE, handles[1]))
    note()
    memory.must(memory.release(handles[1]))
    note()
    memory.must(memory.unmap(area))
    note()
    memory.must(memory.unmap(area + PAGE))
    note()
    memory.must(memory.release(handles[0]))
    note()
    return [refused, free]


def keep_memory_while_mapped(gpu: Any) -> Any:
    """A released handle's memory is there while it is mapped; and new memory is poison, whoever had it before."""
    memory = Memory(gpu)
    handle = memory.create()
    area = memory.show([handle])
    memory.must(memory.release(handle))
    values = count_up(gpu, area, 1)
    kept = bool((gpu.read(area, FLOATS) == values).all())
    memory.must(memory.unmap(area))
    return [kept, int(gpu.np.isnan(gpu.read(memory.show([memory.create()]), FLOATS)).sum()) == FLOATS]


def map_elsewhere(gpu: Any) -> Any:
    """A page is unmapped, and another one shown at its addresses; the first keeps its bytes."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area = memory.show(handles[:1])
    values = count_up(gpu, area, 1)
    memory.must(memory.unmap(area))
    memory.must(memory.map(area, handles[1]))
    memory.must(memory.set_access(area))
    fresh = bool(gpu.np.isnan(gpu.read(area, FLOATS)).all())
    return [fresh, bool((gpu.read(memory.show(handles[:1]), FLOATS) == values).all())]


def poison_part(gpu: Any) -> Any:
    """A part over two pages is poisoned by one address; where the NaNs are by another."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area, swapped = memory.show(handles), memory.show(handles[::-1])
    gpu.drv.memset_d32(area, 0, 2 * FLOATS)
    gpu.library.softcuda_poison(area + PAGE - 400, 800)
    nan = gpu.np.flatnonzero(gpu.np.isnan(gpu.read(swapped, 2 * FLOATS)))
    return nan.tolist() == [*range(100), *range(2 * FLOATS - 100, 2 * FLOATS)]


def leave_things(gpu: Any) -> Any:
    """A live handle, a released one that is mapped, and two reservations at the end of their context."""
    memory = Memory(gpu)
    memory.create(2)
    handle = memory.create()
    memory.show([handle])
    memory.reserve(3)
    memory.must(memory.release(handle))
    gpu.library.cuCtxDestroy_v2(ctypes.c_void_p(gpu.context.handle))


def give_everything_back(gpu: Any) -> Any:
    """As above, in order; nothing is left."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area = memory.show([*handles, handles[0]])
    live = [gpu.counter("mappings_live"), gpu.counter("reservations_live")]
    memory.must(memory.unmap(area, 3 * PAGE))
    for handle in handles:
        memory.must(memory.release(handle))
    memory.must(memory.free_addresses(area, 3 * PAGE))
    gpu.library.cuCtxDestroy_v2(ctypes.c_void_p(gpu.context.handle))
    return live


def map_many(gpu: Any, pages: int) -> Any:
    """Two views of so many pages in one order: the entries that the process's table of mappings gets."""

    def entries() -> int:
        with open("/proc/self/maps") as table:
            return len(table.readlines())

    memory, before = Memory(gpu), entries()
    handles = [memory.create() for _ in range(pages)]
    for _ in range(2):
        memory.show(handles)
    return entries() - before


# ---- addresses that nobody may use ---------------------------------------------------------------


def use_closed(gpu: Any) -> Any:
    """Copies and launches with addresses that are reserved, mapped, opened for reading, opened, and unmapped."""
    memory, values = Memory(gpu), gpu.np.zeros(64, "float32")
    handle, area, y = memory.create(), memory.reserve(2), gpu.zeros(64)
    steps = {
        "reserved": lambda: 0,
        "mapped": lambda: memory.map(area, handle),
        "readable": lambda: memory.set_access(area, flags=READ),
        "open": lambda: memory.set_access(area),
        "closed": lambda: memory.set_access(area, flags=NO_ACCESS),
        "unmapped": lambda: memory.unmap(area),
    }
    uses = {
        "write": lambda: gpu.drv.memcpy_htod(area, values),
        "read": lambda: gpu.drv.memcpy_dtoh(values, area),
        "fill": lambda: gpu.drv.memset_d32(area, 0, 64),
        "launch": lambda: gpu.launch("axpy", "fPPi", (1.0, area, y, 64), block=64),
        "read on": lambda: gpu.drv.memcpy_dtoh(gpu.np.zeros(FLOATS + 1, "float32"), area),
    }

    def allowed(use: Any) -> bool:
        try:
            use()
        except gpu.drv.LogicError as error:
            assert "invalid argument" in str(error)
            return False
        return True

    table = {}
    for name, step in steps.items():
        memory.must(step())
        table[name] = [use for use, call in uses.items() if allowed(call)]
    return table


def ask_for_access(gpu: Any) -> Any:
    """What cuMemGetAccess says of a page that is mapped, read only, open; and of the second of two."""
    memory = Memory(gpu)
    area, handle = memory.reserve(2), memory.create()
    memory.must(memory.map(area, handle))
    said = [memory.get_access(area)]
    for flags in (READ, READ_WRITE):
        memory.must(memory.set_access(area, flags=flags))
        said.append(memory.get_access(area + 100))
    memory.must(memory.map(area + PAGE, handle))
    return [*said, memory.get_access(area + PAGE)]


def run_off_the_page(gpu: Any, behind: str) -> Any:
    """A kernel writes one element too many at the end of a page; behind it the reservation goes on, or ends."""
    memory = Memory(gpu)
    area = memory.reserve(1 if behind == "nothing" else 2)
    for i in range(2 if behind == "a closed page" else 1):
        memory.must(memory.map(area + i * PAGE, memory.create()))
    memory.must(memory.set_access(area))
    last = area + PAGE - 4 * 64
    gpu.launch("no_bounds_test", "PP", (last, last), block=65)
    gpu.context.synchronize()


def write_what_may_only_be_read(gpu: Any) -> Any:
    """A kernel writes a page that is open for reads."""
    memory = Memory(gpu)
    area = memory.show([memory.create()])
    memory.must(memory.set_access(area, flags=READ))
    gpu.launch("axpy", "fPPi", (1.0, gpu.zeros(64), area, 64), block=64)
    gpu.context.synchronize()
