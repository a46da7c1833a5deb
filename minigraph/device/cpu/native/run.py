"""Prepared calls of the library, run by one call from Python."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from .library import Library
from .refusal import Refusal

Packed = tuple[int, bytes, "Refusal | None"]

_ARGUMENT_BYTES = 16
"""The arguments of each call begin at a multiple of this, as all that malloc returns."""
SLICE_SECONDS = 0.05
"""The library comes back after the instruction during which this time is over, so that Python can look at signals."""


class _Call(ctypes.Structure):
    """`Call` of kernels/cpu/program.cpp."""

    _fields_ = (("run", ctypes.c_void_p), ("args", ctypes.c_void_p))


class NativeRun:
    """Calls in order, each a function's address, its packed arguments, and what it may refuse.

    What the library reads is laid out at the first run: most instructions of a plan are only ever run joined with their
    neighbours, and a deep one has tens of thousands.
    """

    __slots__ = ("_arguments", "_prepared", "_refusals", "calls", "library")

    def __init__(self, library: Library, calls: Iterable[Packed]) -> None:
        self.library, self.calls = library, tuple(calls)
        self._prepared: Any = None

    def __call__(self, stopped: Callable[[], bool] | None = None) -> None:
        """Run all, or up to the first slice of time at whose end `stopped` is true; MXNetError for a refused number."""
        if self._prepared is None:
            self._prepare()
        run, calls, last = self.library.run, ctypes.addressof(self._prepared), len(self._prepared)
        at = run(calls, 0, last, SLICE_SECONDS)
        while at < last and not (stopped is not None and stopped()):
            at = run(calls, at, last, SLICE_SECONDS)
        for refusal in self._refusals:
            refusal.check()

    def _prepare(self) -> None:
        """Lay the arguments of all calls side by side, and list the calls with their addresses."""
        ends = list(accumulate(-(-len(packed) // _ARGUMENT_BYTES) * _ARGUMENT_BYTES for _, packed, _ in self.calls))
        self._arguments = ctypes.create_string_buffer(ends[-1] if ends else 0)
        first, prepared = ctypes.addressof(self._arguments), (_Call * len(self.calls))()
        for k, ((run, packed, _), start) in enumerate(zip(self.calls, [0, *ends], strict=False)):
            ctypes.memmove(first + start, packed, len(packed))
            prepared[k].run, prepared[k].args = run, first + start
        self._refusals = tuple(refusal for _, _, refusal in self.calls if refusal is not None)
        self._prepared = prepared


def joined(runs: Sequence[NativeRun]) -> NativeRun:
    """All of one or more, one after the other."""
    return runs[0] if len(runs) == 1 else NativeRun(runs[0].library, (call for run in runs for call in run.calls))
