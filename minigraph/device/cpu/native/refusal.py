"""How kernels refuse a number: a word outside the plan's memory, looked at when a run is over."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ....base import Shape
from ....ops.indexing import out_of_range

NONE = -1


class _Word(ctypes.Structure):
    """`Refusal` of kernels/cpu/refusal.h."""

    _fields_ = (("position", ctypes.c_int64), ("value", ctypes.c_double))


class Refusal:
    """What one instruction refuses: numbers in a tensor of `shape` outside [0, bound), but for an ignored one.

    `first` is the row of the whole tensor at which this one begins.
    """

    def __init__(self, where: str, shape: Shape, bound: int, ignored: float | None = None, first: int = 0) -> None:
        self.where, self.shape, self.bound, self.ignored, self.first = where, shape, bound, ignored, first
        self.node = ""
        """The instruction's name, which `check` tells."""
        self._word = _Word(NONE, 0.0)

    def argument(self) -> tuple[str, Any]:
        """A kernel argument: the word's address."""
        return "P", ctypes.addressof(self._word)

    def check(self) -> None:
        """Raise MXNetError, with position and value, when a number was refused since the last time."""
        position = self._word.position
        if position != NONE:
            self._word.position = NONE
            raise out_of_range(f"{self.node}: {self.where}", np.float32(self._word.value), position, self.shape,
                               self.bound, self.ignored, self.first)
