"""Seconds of a call on a machine that others use as well: without those that its thread waited for a core.

Linux counts, for each thread, how long it was ready to run while others ran. Taken off the time on the wall this leaves
what the call computes, and what it waits for copies and disks. What others take of caches and memory stays in.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_NANOSECOND = 1e-9
_LONGEST = 128
"""Bytes that hold a line of three numbers of 64 bits."""


@dataclass(frozen=True)
class Timed:
    """One call: `seconds` without the caller's waits for a core; `waited` are those of all threads of the process."""

    seconds: float
    waited: float


def timed(call: Callable[[], object]) -> Timed:
    """Time one call; where the system does not tell about waits, there are none.

    The waits that are taken off lie within the time that they are taken off, whenever the thread has to wait.
    """
    with _waits_of_this_thread() as waited:
        before = _waited_by_all()
        start = time.perf_counter()
        mine = waited()
        call()
        mine = waited() - mine
        taken = time.perf_counter() - start
        return Timed(taken - mine, max(_waited_by_all() - before, mine))


def least_disturbed(values: Sequence[Timed]) -> list[float]:
    """Seconds of the half of the calls whose threads waited least, one at least; ValueError without any."""
    if not values:
        raise ValueError("least_disturbed needs one call or more, got none")
    by_waits = sorted(values, key=lambda each: each.waited)
    return [each.seconds for each in by_waits[:(len(values) + 1) // 2]]


@contextmanager
def _waits_of_this_thread() -> Iterator[Callable[[], float]]:
    """Gives what tells the seconds that this thread has waited, in a microsecond or two: its file is open already."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: _seconds(os.pread(file, _LONGEST, 0).decode("ascii"))
    finally:
        os.close(file)


def _waited_by_all() -> float:
    """The same of all threads of the process together."""
    try:
        return sum(map(_waited, os.listdir("/proc/self/task")))
    except OSError:
        return 0.0


def _waited(thread: str) -> float:
    try:
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            return _seconds(file.read())
    except OSError:
        return 0.0


def _seconds(schedstat: str) -> float:
    """The second word: for how long a thread has been ready without running."""
    try:
        return int(schedstat.split()[1]) * _NANOSECOND
    except (IndexError, ValueError):
        return 0.0
