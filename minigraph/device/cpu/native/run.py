"""Prepared calls of the library, run by one call from Python."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from .library import Library
from .refusal import Refusal

Packed = tuple[int, bytes, "Refusal | None"]

SLICE_SECONDS = 0.05
"""The library comes back after the instruction during which this time is over, so that Python can look at signals."""


class _Call(ctypes.Structure):
    """`Call` of kernels/cpu/program.cpp."""

    _fields_ = (("run", ctypes.c_void_p), ("args", ctypes.c_void_p))


class NativeRun:
    """Calls in order, each a function's address, its packed arguments, and what it may refuse."""

    def __init__(self, library: Library, calls: Sequence[Packed]) -> None:
        self.library, self.calls = library, list(calls)
        self._arguments = [ctypes.create_string_buffer(packed, len(packed)) for _, packed, _ in calls]
        self._prepared = (_Call * len(calls))(*(_Call(call[0], ctypes.addressof(held)) for call, held
                                                in zip(calls, self._arguments, strict=True)))
        self._refusals = [refusal for _, _, refusal in calls if refusal is not None]

    def __call__(self, stopped: Callable[[], bool] | None = None) -> None:
        """Run all, or up to the first slice of time at whose end `stopped` is true; MXNetError for a refused number."""
        run, calls, last = self.library.run, ctypes.addressof(self._prepared), len(self._prepared)
        at = run(calls, 0, last, SLICE_SECONDS)
        while at < last and not (stopped is not None and stopped()):
            at = run(calls, at, last, SLICE_SECONDS)
        for refusal in self._refusals:
            refusal.check()


def joined(runs: Sequence[NativeRun]) -> NativeRun:
    """All of one or more, one after the other."""
    return runs[0] if len(runs) == 1 else NativeRun(runs[0].library, [call for run in runs for call in run.calls])
