"""Arenas in RAM."""
from __future__ import annotations

from math import prod

import numpy as np

from ...base import ALIGNMENT, OutOfMemoryError, Shape, format_bytes


class CpuMemory:
    """The persistent and the transient arena of one group; `generation` counts how often either has moved."""

    def __init__(self) -> None:
        self.arenas = {"persistent": _allocate(0), "transient": _allocate(0)}
        self.generation = 0

    def reserve(self, persistent_bytes: int, transient_bytes: int) -> None:
        """Make both arenas at least this large; persistent contents are kept, new persistent bytes are zero."""
        old = self.arenas["persistent"]
        if persistent_bytes > old.size:
            grown = _allocate(persistent_bytes)
            grown[:old.size] = old
            self.arenas["persistent"] = grown
            self.generation += 1
        if transient_bytes > self.arenas["transient"].size:
            self.arenas["transient"] = _allocate(0)
            self.arenas["transient"] = _allocate(transient_bytes)
            self.generation += 1

    def view(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """A live array over planned bytes."""
        nbytes = prod(shape) * dtype.itemsize
        return self.arenas[arena][offset:offset + nbytes].view(dtype).reshape(shape)

    read = view

    def write(self, arena: str, offset: int, value: np.ndarray) -> None:
        """Copy an array to a place."""
        np.copyto(self.view(arena, offset, value.shape, value.dtype), value)

    def close(self) -> None:
        """Give the arenas back."""
        self.arenas = {name: _allocate(0) for name in self.arenas}
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
