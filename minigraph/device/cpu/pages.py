"""Memory that several ranges of addresses show at once: what a transient arena consists of where plans map its pages.

The memory is that of a memfd, a file without a name or a disk. All of it is taken when it is made: if it were taken
page by page as a step first writes to it, a lack of memory would end the process (SIGBUS) and not be an error that
tells what to do. Little is lost by that, for steps use nearly all bytes of their arenas.
The system counts these pages as shared memory: once in the memory of a control group and in a process's proportional
size (PSS), but in its resident size (RSS) once for each address at which they have been touched.

Anonymous memory, of which other arenas consist, comes in huge pages where NumPy's advice is heeded, and processors look
those up faster. Shared memory gets them nearly nowhere by default, but Linux 6.1 and newer make them on demand
(MADV_COLLAPSE); a mapping shows a huge page as one where whole huge pages are mapped. With all transient buffers of a
step in pages in random order, ResNet-18 and 50 took 1.02 to 1.05 of their usual time where pages had 16 KiB to 1 MiB,
and 0.99 to 1.00 with pages of 2 MiB (batch 16, one thread of an EPYC, Linux 6.18; in one piece of such memory 1.00).
A planner maps what it must: Inception v3 took 1.00 (batch 8, pages of 40 KiB, a tenth of its buffers' bytes mapped).

A forked child would share these pages with its parent, and what it writes would change the parent's results. So they do
not come along (MADV_DONTFORK): arenas refuse a child by an error, and an array that it kept from before ends it at the
first access, instead of showing what a program in another process is writing.
"""
from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...base import MXNetError, OutOfMemoryError, format_bytes
from ...plan.plan import Extent

_HUGE_BYTES = 2 << 20
"""A multiple of the size of huge pages on x86-64 and of those on ARM with pages of 4 KiB."""
_MAP_FIXED, _PROT_NONE = 0x10, 0
_MADV_POPULATE_WRITE, _MADV_COLLAPSE = 23, 25
"""Values of Linux's headers (asm-generic/mman-common.h) that Python's module `mmap` does not have."""
_NO_MEMORY = frozenset((errno.ENOMEM, errno.ENOSPC))
_TRACE_DOMAIN = np.lib.tracemalloc_domain
"""Where tracemalloc counts NumPy's arrays, and these with them."""


@lru_cache(maxsize=1)
def least_page_bytes() -> int:
    """Bytes of the smallest pages that can be mapped at further addresses; 0 where none can, for lack of Linux."""
    able = sys.platform.startswith("linux") and sys.maxsize > 2**32 and hasattr(os, "memfd_create")
    return mmap.PAGESIZE if able and _libc() is not None else 0


class Pages:
    """So many bytes of memory, rounded up to whole pages; they are zero at first.

    `array` shows all of them, one-dimensional uint8. They are given back when no array shows them any more, and this
    object is gone. OutOfMemoryError for lack of room; MXNetError where the system makes no such memory.
    """

    def __init__(self, nbytes: int) -> None:
        self._owner = os.getpid()
        self.bytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        _check_available(self.bytes)
        try:
            self._file = os.memfd_create("minigraph-arena")
            weakref.finalize(self, os.close, self._file).atexit = False
            os.ftruncate(self._file, self.bytes)
            addresses = self._map([Extent(0, self.bytes)])
            self._take(addresses.first)
        except OSError as error:
            if error.errno in _NO_MEMORY:
                raise _no_room(self.bytes, 0) from error
            raise MXNetError(f"the system makes no memory of pages that can be mapped ({error.strerror}); raise the "
                             f"limits of this process, or give a larger memory budget, under which none are") from error
        self.array: np.ndarray = np.asarray(addresses)
        _trace(addresses, self.bytes)

    def show(self, name: str, extents: Sequence[Extent]) -> np.ndarray:
        """A new range of addresses that shows `extents` one after another, one-dimensional uint8.

        MXNetError when the system has no more mappings for arena `name`: each piece that does not go on where the one
        before it ends takes one.
        """
        self.check_owner()
        pieces = _joined(extents)
        try:
            addresses = self._map(pieces)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise MXNetError(f"arena {name!r} shows {len(pieces)} separate pieces of the transient arena, and the "
                             f"system has no more mappings for this process, which may have {_most_mappings()} in all "
                             f"(vm.max_map_count); raise that limit, or give a larger memory budget") from error
        _advise(addresses.first, addresses.bytes, _MADV_POPULATE_WRITE)  # or else a step's first writes fault
        return np.asarray(addresses)

    def check_owner(self) -> None:
        """MXNetError in a process that was forked from the one that made the pages."""
        if os.getpid() != self._owner:
            raise MXNetError(f"the arenas with mapped pages belong to the process {self._owner}, from which this one "
                             f"was forked; bind again here, or start this process with multiprocessing's \"spawn\" "
                             f"method")

    def _map(self, pieces: Iterable[Extent]) -> _Addresses:
        addresses = _Addresses(sum(piece.bytes for piece in pieces))
        at = addresses.first
        for offset, nbytes in pieces:
            _mmap(at, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, self._file, offset)
            at += nbytes
        if not _advise(addresses.first, addresses.bytes, mmap.MADV_DONTFORK):
            raise OSError(ctypes.get_errno(), "it cannot keep them from forked processes")
        return addresses

    def _take(self, first: int) -> None:
        """Have the system set all memory aside, in huge pages where it makes them: a huge page takes over the small one
        that it is given to begin with."""
        whole = self.bytes // _HUGE_BYTES * _HUGE_BYTES
        if all(_advise(at, mmap.PAGESIZE, _MADV_POPULATE_WRITE) for at in range(first, first + whole, _HUGE_BYTES)):
            _advise(first, whole, _MADV_COLLAPSE)
        os.posix_fallocate(self._file, 0, self.bytes)


class _Addresses:
    """A range of addresses at which nothing lies yet; given back when nobody holds it, nor an array over it.

    It begins at a multiple of the size of huge pages. `first` is its address.
    """

    def __init__(self, nbytes: int) -> None:
        self.bytes, self.reserved = nbytes, nbytes + _HUGE_BYTES
        self.start = _mmap(None, self.reserved, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        self.first = -(-self.start // _HUGE_BYTES) * _HUGE_BYTES
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (self.first, False)}
        weakref.finalize(self, _unmap, self.start, self.reserved, os.getpid()).atexit = False  # arrays may live longer
        _all_addresses.add(self)


_all_addresses: weakref.WeakSet[_Addresses] = weakref.WeakSet()


def _keep_from_child() -> None:
    """In a forked child: nothing else may come to lie where its parent's pages were."""
    for addresses in list(_all_addresses):
        _mmap(addresses.start, addresses.reserved, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED,
              -1, 0)


def _unmap(start: int, nbytes: int, owner: int) -> None:
    if os.getpid() == owner:
        _libc().munmap(start, nbytes)


def _joined(extents: Iterable[Extent]) -> list[Extent]:
    """The same bytes in the same order, in the fewest pieces."""
    pieces: list[Extent] = []
    for offset, nbytes in extents:
        if pieces and pieces[-1].offset + pieces[-1].bytes == offset:
            pieces[-1] = Extent(pieces[-1].offset, pieces[-1].bytes + nbytes)
        else:
            pieces.append(Extent(offset, nbytes))
    return pieces


def _check_available(nbytes: int) -> None:
    """OutOfMemoryError when the host has no room for pages that are taken at once: the system would rather end
    processes than refuse them."""
    free = _available_bytes()
    if free is not None and nbytes > free:
        raise _no_room(nbytes, free)


def _available_bytes() -> int | None:
    """Memory that the system could give to a process; None when it does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in file)}
        return 1024 * (kib["MemAvailable"] + kib["SwapFree"])
    except (OSError, KeyError, ValueError):
        return None


def _no_room(nbytes: int, free: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"the host has no {format_bytes(nbytes)} for an arena; choose a smaller batch or a memory "
                            f"budget", nbytes, free)


def _most_mappings() -> str:
    try:
        with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "few"


# -- the system ------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _libc() -> Any:
    """The C library's functions for addresses; None where it has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                              ctypes.c_int64)
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    except AttributeError:
        return None
    os.register_at_fork(after_in_child=_keep_from_child)
    return libc


def _mmap(address: int | None, nbytes: int, protection: int, flags: int, file: int, offset: int) -> int:
    at = _libc().mmap(address, nbytes, protection, flags, file, offset)
    if at in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, f"mapping {nbytes} bytes: {os.strerror(code)}")
    return at


def _advise(first: int, nbytes: int, advice: int) -> bool:
    """Whether the system took an advice about a range of addresses."""
    return nbytes == 0 or _libc().madvise(first, nbytes, advice) == 0


def _trace(addresses: _Addresses, nbytes: int) -> None:
    """Have tracemalloc count the bytes for as long as they have these addresses, as it does for NumPy's arrays."""
    api = ctypes.pythonapi
    api.PyTraceMalloc_Track.argtypes = (ctypes.c_uint, ctypes.c_size_t, ctypes.c_size_t)
    api.PyTraceMalloc_Untrack.argtypes = (ctypes.c_uint, ctypes.c_size_t)
    api.PyTraceMalloc_Track(_TRACE_DOMAIN, addresses.first, nbytes)
    weakref.finalize(addresses, api.PyTraceMalloc_Untrack, _TRACE_DOMAIN, addresses.first).atexit = False
