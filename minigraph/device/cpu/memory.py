"""Arenas in RAM and, for swapping, in files; and the threads that copy between them."""
from __future__ import annotations

import os
from math import prod

import numpy as np

from ...base import ALIGNMENT, MXNetError, OutOfMemoryError, Shape, format_bytes
from .spaces import FilePlace, Place, SwapFile
from .streams import Workers

_DEVICE = ("persistent", "transient")


class CpuMemory:
    """The persistent and the transient arena of one group, and the arenas to which its programs swap.

    `generation` counts how often an arena has moved. `disk` is the folder of swap files. `workers` are the group's
    copy threads: its programs run one at a time, so they share them.
    """

    def __init__(self, disk: str | os.PathLike[str] | None = None) -> None:
        self.arenas = {name: _allocate(0) for name in _DEVICE}
        self.files: dict[str, SwapFile] = {}
        self.disk = disk
        self.workers = Workers()
        self.generation = 0

    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Make both arenas at least this large; persistent contents are kept, new persistent bytes are zero."""
        if persistent_bytes > self.arenas["persistent"].size:
            self._grow("persistent", persistent_bytes)
        if transient_bytes > self.arenas["transient"].size:
            self.arenas["transient"] = _allocate(0)
            self.arenas["transient"] = _allocate(transient_bytes)
            self.generation += 1

    def reserve_space(self, name: str, space: str, nbytes: int) -> None:
        """Make an arena of the space "host" or "file" at least this large; its contents are kept.

        New bytes are zero. OutOfMemoryError when memory or disk have no room; everything is then as before.
        """
        if name in _DEVICE or name in (self.arenas if space == "file" else self.files):
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
        """Give the persistent arena back with all it holds; `reserve` makes a new one."""
        self.arenas["persistent"] = _allocate(0)
        self.generation += 1

    def _grow(self, name: str, nbytes: int) -> None:
        old, grown = self.arenas[name], _allocate(nbytes)
        grown[:old.size] = old
        self.arenas[name] = grown
        self.generation += 1

    def place(self, arena: str, offset: int, nbytes: int) -> Place:
        """Planned bytes, in memory or in a file."""
        file = self.files.get(arena)
        return self.arenas[arena][offset:offset + nbytes] if file is None else FilePlace(file, offset, nbytes)

    def view(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """A live array over planned bytes in memory."""
        nbytes = prod(shape) * dtype.itemsize
        return self.arenas[arena][offset:offset + nbytes].view(dtype).reshape(shape)

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
        for file in self.files.values():
            file.close()
        self.files = {}
        self.arenas = {name: _allocate(0) for name in _DEVICE}
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
