"""CUDA's virtual memory management: physical pages, and ranges of addresses that show them, also several times.

PyCUDA has no wrappers of it. Sources are the CUDA driver API's chapter "Virtual Memory Management" and the CUDA C++
programming guide's of the same name: pages are made by cuMemCreate in multiples of a granularity, and cuMemMap takes a
whole page only (its offset must be 0), so each page is a handle of its own.

What one device operation (a kernel, a copy, a fill) writes by one address is seen by others of the same page by every
operation that begins after it has completed (programming guide, "Virtual Aliasing Support"). Plans order all uses of a
byte by their stream or by events, and no instruction uses a byte by two addresses, so that nothing more is needed.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .allocator import MemoryRefused
from .driver import Driver
from .library import LibraryFunctions

SUPPORTED = 102
"""CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED."""
PINNED, ON_DEVICE, MINIMUM, READ_WRITE, OUT_OF_MEMORY = 1, 1, 0, 3, 2
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOC_GRANULARITY_MINIMUM,
CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_OUT_OF_MEMORY."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp; what is not set here is 0: not shared with other processes, not compressed."""

    _fields_ = (("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8))


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


_WORD, _SIZE, _ADDRESS, _FLAGS = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_ulonglong
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuMemGetAllocationGranularity": (ctypes.POINTER(_SIZE), ctypes.POINTER(Properties), ctypes.c_int),
    "cuMemCreate": (ctypes.POINTER(_WORD), _SIZE, ctypes.POINTER(Properties), _FLAGS),
    "cuMemRelease": (_WORD,),
    "cuMemAddressReserve": (ctypes.POINTER(_ADDRESS), _SIZE, _SIZE, _ADDRESS, _FLAGS),
    "cuMemAddressFree": (_ADDRESS, _SIZE),
    "cuMemMap": (_ADDRESS, _SIZE, _SIZE, _WORD, _FLAGS),
    "cuMemSetAccess": (_ADDRESS, _SIZE, ctypes.POINTER(Access), _SIZE),
    "cuMemUnmap": (_ADDRESS, _SIZE),
}


@dataclass(eq=False)
class Range:
    """Reserved addresses, of which the first `shown_bytes` show pages."""

    address: int
    nbytes: int
    shown_bytes: int = 0


class VirtualMemory:
    """Pages of a device and ranges that show them; `page_bytes` is the size of a page, 0 where the device has none.

    The current context must be the device's. MXNetError when the driver refuses what nobody could expect it to.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self._library = LibraryFunctions(driver, _FUNCTIONS, "map pages of device memory",
                                         "compile the plan without mapped arenas")
        location = Location(ON_DEVICE, index)
        self._properties = Properties(PINNED, 0, location)
        self._access = Access(location, READ_WRITE)
        self._pages: set[int] = set()
        self._ranges: set[Range] = set()
        self.page_bytes = self._granularity() if self._is_supported(index) else 0

    # -- pages -------------------------------------------------------------------------------------------------
    def create(self, count: int) -> list[int]:
        """The handles of so many new pages; MemoryRefused, and none is made, when there is no room for all."""
        pages: list[int] = []
        try:
            for _ in range(count):
                pages.append(self._create())
        except BaseException:
            self.release(pages)
            raise
        return pages

    def release(self, pages: Sequence[int]) -> None:
        """Give pages up. Their memory is free when no range shows them any more."""
        for page in pages:
            self._library.call("cuMemRelease", page)
            self._pages.remove(page)

    def _create(self) -> int:
        handle = _WORD()
        arguments = ctypes.byref(handle), self.page_bytes, ctypes.byref(self._properties), 0
        result = self._library.result("cuMemCreate", *arguments)
        if result == OUT_OF_MEMORY:
            raise MemoryRefused
        if result:
            raise self._library.failure("cuMemCreate", result)
        self._pages.add(handle.value)
        return handle.value

    # -- ranges ------------------------------------------------------------------------------------------------
    def reserve(self, nbytes: int) -> Range:
        """So many addresses (a multiple of `page_bytes`) that show nothing yet, and so take no memory."""
        address = _ADDRESS()
        self._library.call("cuMemAddressReserve", ctypes.byref(address), nbytes, self.page_bytes, 0, 0)
        where = Range(address.value, nbytes)
        self._ranges.add(where)
        return where

    def show(self, where: Range, pages: Sequence[int]) -> None:
        """Make a range show further pages, one after another, behind those that it shows; all of them or none."""
        begin = where.address + where.shown_bytes
        end = begin
        try:
            for page in pages:
                self._library.call("cuMemMap", end, self.page_bytes, 0, page, 0)
                end += self.page_bytes
            if end > begin:
                self._library.call("cuMemSetAccess", begin, end - begin, ctypes.byref(self._access), 1)
        except BaseException:
            self._unmap(begin, end - begin)
            raise
        where.shown_bytes += end - begin

    def free(self, where: Range) -> None:
        """Give a range up with all that it shows; nothing on the device may use it any more."""
        self._unmap(where.address, where.shown_bytes)
        self._library.call("cuMemAddressFree", where.address, where.nbytes)
        self._ranges.remove(where)

    def _unmap(self, address: int, nbytes: int) -> None:
        if nbytes:
            self._library.call("cuMemUnmap", address, nbytes)

    def free_all(self) -> None:
        """Give every range and page up, whoever still holds them; the virtual memory is not used again."""
        for where in list(self._ranges):
            self.free(where)
        self.release(list(self._pages))

    # -- the device --------------------------------------------------------------------------------------------
    def _is_supported(self, index: int) -> bool:
        answer = ctypes.c_int()
        self._library.call("cuDeviceGetAttribute", ctypes.byref(answer), SUPPORTED, index)
        return bool(answer.value)

    def _granularity(self) -> int:
        answer = _SIZE()
        self._library.call("cuMemGetAllocationGranularity", ctypes.byref(answer), ctypes.byref(self._properties),
                           MINIMUM)
        return answer.value
