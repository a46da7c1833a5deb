"""Seconds of a call on a machine that others use as well: without those that its thread waited for a core.

Linux counts, for each thread, how long it was ready to run while others ran. Taken off the time on the wall this leaves
what the call computes, and what it waits for copies and disks. What others take of caches and memory stays in.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_NANOSECOND = 1e-9


@dataclass(frozen=True)
class Timed:
    """One call: `seconds` without the caller's waits for a core; `waited` are those of all threads of the process."""

    seconds: float
    waited: float


def timed(call: Callable[[], object]) -> Timed:
    """Time one call; where the system does not tell about waits, there are none."""
    mine, all_threads = _waited("thread-self"), _waited_by_all()
    start = time.perf_counter()
    call()
    taken = time.perf_counter() - start
    return Timed(taken - (_waited("thread-self") - mine), _waited_by_all() - all_threads)


def least_disturbed(values: Sequence[Timed]) -> list[float]:
    """Seconds of the half of the calls whose threads waited least, one at least; ValueError without any."""
    if not values:
        raise ValueError("least_disturbed needs one call or more, got none")
    by_waits = sorted(values, key=lambda each: each.waited)
    return [each.seconds for each in by_waits[:(len(values) + 1) // 2]]


def _waited_by_all() -> float:
    try:
        return sum(_waited(f"self/task/{thread}") for thread in os.listdir("/proc/self/task"))
    except OSError:
        return 0.0


def _waited(thread: str) -> float:
    """Seconds that a thread has been ready without running: the second word of its schedstat."""
    try:
        with open(f"/proc/{thread}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * _NANOSECOND
    except (OSError, IndexError, ValueError):
        return 0.0
