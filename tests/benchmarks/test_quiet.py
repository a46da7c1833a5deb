"""Timing on a busy machine: what a thread waited for a core does not count, and disturbed calls are left out."""
from __future__ import annotations

import time

import pytest

from benchmarks import quiet
from benchmarks.quiet import Timed, least_disturbed, timed


def test_the_half_of_the_calls_that_waited_least_counts() -> None:
    calls = [Timed(1.0, 0.5), Timed(2.0, 0.0), Timed(3.0, 0.1), Timed(4.0, 0.2), Timed(5.0, 0.9)]
    assert least_disturbed(calls) == [2.0, 3.0, 4.0]
    assert least_disturbed(calls[:1]) == [1.0]
    with pytest.raises(ValueError, match="one call or more"):
        least_disturbed([])


def test_sleep_counts_and_waits_for_a_core_do_not() -> None:
    found = timed(lambda: time.sleep(0.02))
    assert found.seconds + found.waited >= 0.02
    start, processor = time.perf_counter(), time.thread_time()
    busy = timed(lambda: sum(range(300_000)))
    assert time.perf_counter() - start >= busy.seconds > 0
    assert time.thread_time() - processor > 0 and busy.waited >= 0


def test_no_wait_counts_that_lies_outside_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a core whenever it reads a file of its waits, by a clock of the test's own."""
    clock, waits = [0.0], [0.0]

    def wait() -> None:
        clock[0] += 5
        waits[0] += 5

    def pread(file: int, count: int, offset: int) -> bytes:
        wait()
        told = f"0 {round(waits[0] * 1e9)} 0".encode()
        wait()
        return told

    monkeypatch.setattr(quiet.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(quiet.os, "pread", pread)

    def call() -> None:
        clock[0] += 3  # computes
        wait()

    found = timed(call)
    assert found.seconds >= 3 and found.waited >= 15
