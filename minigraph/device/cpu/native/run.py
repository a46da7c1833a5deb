"""Prepared calls of the library, run by one call from Python."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from .library import Library

SLICE_SECONDS = 0.05
"""The library comes back after the instruction during which this time is over, so that Python can look at signals."""


class _Call(ctypes.Structure):
    """`Call` of kernels/cpu/program.cpp."""

    _fields_ = (("run", ctypes.c_void_p), ("args", ctypes.c_void_p))


class NativeRun:
    """Calls in order, each a function's address and its packed arguments."""

    def __init__(self, library: Library, calls: Sequence[tuple[int, bytes]]) -> None:
        self.library, self.calls = library, list(calls)
        self._arguments = [ctypes.create_string_buffer(packed, len(packed)) for _, packed in calls]
        self._prepared = (_Call * len(calls))(*(_Call(function, ctypes.addressof(held)) for (function, _), held
                                                in zip(calls, self._arguments, strict=True)))

    def __call__(self, stopped: Callable[[], bool] | None = None) -> None:
        """Run all, or up to the first slice of time at whose end `stopped` is true."""
        run, calls, last = self.library.run, ctypes.addressof(self._prepared), len(self._prepared)
        at = run(calls, 0, last, SLICE_SECONDS)
        while at < last and not (stopped is not None and stopped()):
            at = run(calls, at, last, SLICE_SECONDS)


def joined(first: NativeRun, second: NativeRun) -> NativeRun:
    """Both, one after the other."""
    return NativeRun(first.library, first.calls + second.calls)
