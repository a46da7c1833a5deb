"""Calls of kernels written to a file, for `replay.cpp` to run in a program without Python.

`python -m tests.device.cpu.native.recording FILE TESTS` runs test files and records what their `run` runs. Of calls
that differ in addresses and values alone the first is kept; of those with much memory, one for each size to a factor of
two. Layout: replay.cpp.
"""
from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from minigraph.device.cpu.native.call import KernelAddress, NativeCall

from . import harness

NOT_WHOLE_NUMBERS = "fd"
"""Kinds of numpy's that are compared with a tolerance."""
MUCH_BYTES = 1 << 20
KERNEL = -1
"""As a region: what is named is a kernel's function."""


class Recorder:
    """An observer of `harness.run` that writes to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._seen: set[Any] = set()
        self.kernels: set[str] = set()

    def __call__(self, ran: harness.Ran) -> None:
        """Write what ran, unless the same was written before."""
        regions = [_Region(array, before) for array, before in zip(ran.memory, ran.before, strict=True)]
        for result in ran.results:
            next(region for region in regions if region.begin == result.ctypes.data).expected = result
        calls = [_Call(call, regions) for call in ran.calls]
        size = sum(region.bytes for region in regions)
        form = tuple((call.name, size.bit_length() if size > MUCH_BYTES else call.template) for call in calls)
        if form not in self._seen:
            self._seen.add(form)
            self.kernels.update(name for call in calls for name in (call.name, *call.called))
            self._write(ran.name, regions, calls)

    def _write(self, name: str, regions: Sequence[_Region], calls: Sequence[_Call]) -> None:
        self._text(name)
        self._numbers(len(regions))
        for region in regions:
            self._numbers(region.bytes, region.before is not None, region.element_bytes)
            self._file.write(region.before or b"")
            self._file.write(b"" if region.expected is None else region.expected.tobytes())
        self._numbers(len(calls))
        for call in calls:
            self._text(call.name)
            self._numbers(len(call.packed), len(call.pointers))
            self._file.write(call.packed)
            for at, region, offset in call.pointers:
                self._numbers(at, region)
                if isinstance(offset, str):
                    self._text(offset)
                else:
                    self._numbers(offset)

    def _numbers(self, *numbers: int) -> None:
        self._file.write(struct.pack(f"<{len(numbers)}q", *numbers))

    def _text(self, text: str) -> None:
        self._numbers(len(text))
        self._file.write(text.encode())


class _Region:
    """One operand's memory; `element_bytes` is 0 for what is not compared, and negative for whole numbers."""

    def __init__(self, array: np.ndarray, before: bytes | None) -> None:
        self.begin, self.bytes, self.before = array.ctypes.data, array.nbytes, before
        self.expected: np.ndarray | None = None

    @property
    def element_bytes(self) -> int:
        if self.expected is None:
            return 0
        dtype = self.expected.dtype
        return dtype.itemsize if dtype.char in NOT_WHOLE_NUMBERS else -dtype.itemsize


class _Call:
    """A call with zeros for its addresses, and what they name."""

    def __init__(self, call: NativeCall, regions: list[_Region]) -> None:
        self.name, self.called, forms, values = call.kernel, list[str](), "@", list[Any]()
        self.pointers: list[tuple[int, int, int | str]] = []
        for form, value in call.args:
            if form == "P" and value != 0:
                self.pointers.append((struct.calcsize(f"{forms}0P"), *self._named(value, regions, call)))
                value = 0
            forms += form
            values += value if isinstance(value, tuple) else (value,)
        self.packed = struct.pack(f"{forms}0P", *values)
        self.template = self.packed, tuple(self.pointers)

    def _named(self, value: int | KernelAddress, regions: list[_Region], call: NativeCall) -> tuple[int, int | str]:
        if isinstance(value, KernelAddress):
            self.called.append(value.kernel)
            return KERNEL, value.kernel
        for k, region in enumerate(regions):
            if region.begin <= value < region.begin + max(region.bytes, 1):
                return k, value - region.begin
        assert call.refusal is not None and value == call.refusal.argument()[1], f"{call.kernel} names other memory"
        word = np.frombuffer(bytearray(struct.pack("<qd", -1, 0.0)), np.uint8)
        regions.append(_Region(word, word.tobytes()))
        return len(regions) - 1, 0


@contextmanager
def recorded(path: Path) -> Iterator[Recorder]:
    """While this lasts, what `harness.run` runs is written to the file."""
    with open(path, "wb") as file:
        recorder = Recorder(file)
        harness.observers.append(recorder)
        try:
            yield recorder
        finally:
            harness.observers.remove(recorder)


if __name__ == "__main__":
    with recorded(Path(sys.argv[1])) as made:
        status = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
    print("kernels:", *sorted(made.kernels))
    sys.exit(status)
