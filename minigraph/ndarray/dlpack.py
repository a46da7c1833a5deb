"""Memory shared with other libraries by DLPack: `torch.utils.dlpack.from_dlpack(a.to_dlpack_for_write())`."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..base import MXNetError
from ..storage import HostStorage
from .array import NDArray
from .creation import host


class _Capsule:
    """A DLPack capsule of memory on the CPU, as NumPy takes one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **how: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def to_dlpack_for_read(data: NDArray) -> Any:
    """A capsule of a copy of the value."""
    return data.asnumpy().__dlpack__()


def to_dlpack_for_write(data: NDArray) -> Any:
    """A capsule of the array's own memory; MXNetError where that is not memory of NumPy, as in an executor."""
    if not isinstance(data.storage, HostStorage):
        raise MXNetError("to_dlpack_for_write shares the memory of arrays that no executor holds; copy it first, or "
                         "take to_dlpack_for_read")
    return data.storage.array.__dlpack__()


def from_dlpack(dlpack: Any) -> NDArray:
    """An NDArray over the memory of a capsule, or of an object that gives one."""
    return host(np.from_dlpack(dlpack if hasattr(dlpack, "__dlpack__") else _Capsule(dlpack)), None)
