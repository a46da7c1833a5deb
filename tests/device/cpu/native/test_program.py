"""Kernels that follow one another: one call runs them all."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.device.cpu.native.call import NativeCall, int64
from minigraph.device.cpu.native.run import NativeRun
from minigraph.device.cpu.program import merged

from .harness import the_library


def test_neighbouring_kernels_are_one_call_made_once_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    library = the_library()
    sums, one = np.zeros((3, 5), np.float32), np.ones(5, np.float32)

    def adding(row: np.ndarray) -> NativeRun:
        call = NativeCall("add_forward", tuple(("P", a.ctypes.data) for a in (row, one, row)) + (int64(row.size),))
        return NativeRun(library, [call.pack(library)])

    calls = [*(adding(sums[0]) for _ in range(100)), lambda: sums[1].fill(7), *(adding(sums[2]) for _ in range(50))]
    made = []
    prepare = NativeRun.__init__
    monkeypatch.setattr(NativeRun, "__init__", lambda self, *with_: made.append(self) or prepare(self, *with_))
    steps = merged(calls)
    assert len(steps) == 3 and len(made) == 2
    for step in steps:
        step()
    np.testing.assert_array_equal(sums, np.repeat(np.float32([[100], [7], [50]]), 5, axis=1))
