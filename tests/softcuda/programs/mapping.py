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
        return int(self.library.cuMemMap(ADDRESS(address), SIZE(nbytes), SIZE(offset), ADDRESS(handle), ADDRESS(0)))

    def set_access(self, address: int, nbytes: int = PAGE, flags: int = READ_WRITE, device: int = 0) -> int:
        access = Access(Location(1, device), flags)
        return int(self.library.cuMemSetAccess(ADDRESS(address), SIZE(nbytes), ctypes.byref(access), SIZE(1)))

    def get_access(self, address: int) -> int:
        flags, place = ctypes.c_ulonglong(99), Location(1, 0)
        self.must(self.library.cuMemGetAccess(ctypes.byref(flags), ctypes.byref(place), ADDRESS(address)))
        return flags.value

    def unmap(self, address: int, nbytes: int = PAGE) -> int:
        return int(self.library.cuMemUnmap(ADDRESS(address), SIZE(nbytes)))

    def release(self, handle: int) -> int:
        return int(self.library.cuMemRelease(ADDRESS(handle)))

    def free_addresses(self, address: int, nbytes: int = PAGE) -> int:
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
