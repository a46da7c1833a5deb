"""Arenas in RAM and, for swapping, in files; and the threads that copy between them."""
from __future__ import annotations

import os
import weakref
from math import prod

import numpy as np

from ...base import ALIGNMENT, MXNetError, OutOfMemoryError, Shape, format_bytes
from ...plan.plan import Arena
from .pages import Pages, least_page_bytes
from .spaces import FilePlace, Place, SwapFile
from .streams import Workers

_DEVICE = ("persistent", "transient")


class MappedArena:
    """Addresses that show pages of the transient arena, whichever that is at present.

    A group's memory has a mapped arena for as long as somebody holds it.
    """

    def __init__(self, arena: Arena) -> None:
        self.name, self.extents = arena.name, arena.extents
        self.array = _allocate(0)


class CpuMemory:
    """The persistent and the transient arena of one group, and the arenas to which its programs swap.

    Once a program maps pages of the transient arena, this consists of pages that can be mapped (`pages.py`) until
    `close`. `generation` counts how often an arena has moved. `disk` is the folder of swap files. `workers` are the
    group's copy threads: its programs run one at a time, so they share them.
    """

    def __init__(self, disk: str | os.PathLike[str] | None = None) -> None:
        self.arenas = {name: _allocate(0) for name in _DEVICE}
        self._pages: Pages | None = None
        self._mapped: weakref.WeakValueDictionary[str, MappedArena] = weakref.WeakValueDictionary()
        self.files: dict[str, SwapFile] = {}
        self.disk = disk
        self.workers = Workers()
        self.generation = 0

    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Make both arenas at least this large; persistent contents are kept, new persistent bytes are zero.

        With `page_bytes` the transient arena is made of pages that can be mapped; it is replaced if it is not so yet.
        Mapped arenas show the new one. OutOfMemoryError when there is no room, MXNetError for pages that the system
        does not map: persistent contents are kept then too, and the transient arena is as large as before.
        """
        least = least_page_bytes()
        if page_bytes and (not least or page_bytes % least):
            raise MXNetError(f"the plan maps pages of {page_bytes} bytes, and this system maps "
                             f"{f'multiples of {least} bytes' if least else 'none'}; compile the plan for this device")
        if persistent_bytes > self.arenas["persistent"].size:
            self._grow("persistent", persistent_bytes)
        had = self.arenas["transient"].size
        wanted = max(transient_bytes, had)
        if wanted > had or (page_bytes and wanted and self._pages is None):
            self._replace_transient(wanted, page_bytes > 0 or self._pages is not None)

    def _replace_transient(self, nbytes: int, paged: bool) -> None:
        had, was_paged = self.arenas["transient"].size, self._pages is not None
        self.generation += 1
        try:
            self._make_transient(nbytes, paged)
        except BaseException:  # such as KeyboardInterrupt, for pages of a gigabyte take up to two seconds
            self._make_transient(had, was_paged)
            raise

    def _make_transient(self, nbytes: int, paged: bool) -> None:
        """Another transient arena, for which the present one makes room, and its pages wherever they are mapped."""
        self.arenas["transient"], self._pages = _allocate(0), None
        for mapped in list(self._mapped.values()):
            mapped.array = _allocate(0)
        if not paged:
            self.arenas["transient"] = _allocate(nbytes)
            return
        self._pages = Pages(nbytes)
        self.arenas["transient"] = self._pages.array[:nbytes]
        for mapped in list(self._mapped.values()):
            mapped.array = self._pages.show(mapped.name, mapped.extents)

    def map(self, arena: Arena) -> MappedArena:
        """A mapped arena of a plan, to hold for as long as it is used; of several plans' equal ones there is one.

        MXNetError when the transient arena is too small for it, or does not consist of pages.
        """
        mapped = self._mapped.get(arena.name)
        if mapped is None:
            mapped = MappedArena(arena)
            mapped.array = self._show(arena)
            self._mapped[arena.name] = mapped
        elif mapped.extents != arena.extents:
            raise MXNetError(f"arena {arena.name!r} of this group shows other pages than the plan has it show; give "
                             f"arenas of different extents different names")
        return mapped

    def _show(self, arena: Arena) -> np.ndarray:
        size, least = self.arenas["transient"].size, least_page_bytes()
        if self._pages is None:
            raise MXNetError(f"arena {arena.name!r} shows pages of a transient arena that has none; reserve with "
                             f"page_bytes={arena.page_bytes}")
        for offset, nbytes in arena.extents:
            if offset % least or nbytes % least or nbytes <= 0 or not 0 <= offset <= size - nbytes:
                raise MXNetError(f"arena {arena.name!r} shows bytes [{offset}, {offset + nbytes}) of the transient "
                                 f"arena, which must be whole pages of {least} bytes of its {size}; compile the plan "
                                 f"for this device")
        return self._pages.show(arena.name, arena.extents)

    def reserve_space(self, name: str, space: str, nbytes: int) -> None:
        """Make an arena of the space "host" or "file" at least this large; its contents are kept.

        New bytes are zero. OutOfMemoryError when memory or disk have no room; everything is then as before.
        """
        if name in _DEVICE or name in self._mapped or name in (self.arenas if space == "file" else self.files):
            raise MXNetError(f"arena {name!r} of this group lies elsewhere than in {space!r}, where the plan has it; "
                             f"give arenas of different spaces different names")
        if space == "host":
            if nbytes > self.arenas.setdefault(name, _allocate(0)).size:
                self._grow(name, nbytes)
        else:
            if name not in self.files:
                self.files[name] = SwapFile(self.disk)
            self.files[name].grow(nbytes)

    def forget(self) -> None:
        """Give all arenas back with what they hold, and begin anew; programs loaded before must not run any more."""
        self._give_back()
        self._mapped.clear()

    def clear(self, arena: str, offset: int, nbytes: int) -> None:
        """Make bytes of an arena zero, where a tensor begins that is not the one that lay there before."""
        self.write(arena, offset, np.zeros(nbytes, np.uint8))

    def _grow(self, name: str, nbytes: int) -> None:
        old, grown = self.arenas[name], _allocate(nbytes)
        grown[:old.size] = old
        self.arenas[name] = grown
        self.generation += 1

    def check_owner(self) -> None:
        """MXNetError in a forked child where the transient arena consists of pages: they have not come along."""
        if self._pages is not None:
            self._pages.check_owner()

    def _array(self, arena: str) -> np.ndarray:
        """All bytes of an arena in memory."""
        mapped = self._mapped.get(arena)
        if mapped is not None or arena == "transient":
            self.check_owner()
        return self.arenas[arena] if mapped is None else mapped.array

    def place(self, arena: str, offset: int, nbytes: int) -> Place:
        """Planned bytes, in memory or in a file."""
        file = self.files.get(arena)
        return self._array(arena)[offset:offset + nbytes] if file is None else FilePlace(file, offset, nbytes)

    def view(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """A live array over planned bytes in memory."""
        nbytes = prod(shape) * dtype.itemsize
        return self._array(arena)[offset:offset + nbytes].view(dtype).reshape(shape)

    def read(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """The tensor at a place: a live array, or a copy of what a file holds."""
        file = self.files.get(arena)
        if file is None:
            return self.view(arena, offset, shape, dtype)
        data = np.empty(prod(shape) * dtype.itemsize, np.uint8)
        file.read(offset, data.data)
        return data.view(dtype).reshape(shape)

    def write(self, arena: str, offset: int, value: np.ndarray) -> None:
        """Copy an array to a place."""
        file = self.files.get(arena)
        if file is None:
            np.copyto(self.view(arena, offset, value.shape, value.dtype), value)
        else:
            file.write(offset, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)

    def close(self) -> None:
        """Give the arenas back, remove the files and end the threads."""
        self.workers.close()
        self._give_back()

    def _give_back(self) -> None:
        for file in self.files.values():
            file.close()
        self.files = {}
        self.arenas = {"persistent": _allocate(0)}
        self._make_transient(0, paged=False)
        self.generation += 1


def _allocate(nbytes: int) -> np.ndarray:
    """Zeroed bytes that begin at a multiple of ALIGNMENT."""
    try:
        raw = np.zeros(nbytes + ALIGNMENT, dtype=np.uint8)
    except MemoryError as error:
        raise OutOfMemoryError(f"the host has no {format_bytes(nbytes)} for an arena; choose a smaller batch or a "
                               f"memory budget", nbytes, 0) from error
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + nbytes]
