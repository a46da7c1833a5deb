"""Streams on the CPU: the calling thread computes, and a thread for each other stream copies.

A range of a plan becomes one list of steps a stream. Each wait has a lock of its own, which the record that it waits
for releases; all are made when the plan is bound. List order is a legal serial order and a wait is prepared only for a
record before it, so streams cannot block each other for good.
"""
from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...plan.plan import COMPUTE_STREAM, STREAMS, Kind
from .spaces import CHUNK_BYTES, Move

BUFFER_ELEMENTS = 2048
"""Elements of NumPy's hidden buffers for strided operands while a plan runs. They come on top of the planned bytes:
NumPy's own 8192 would take up to 200 KB for one ufunc call."""

Step = Callable[[], Any]


@dataclass(frozen=True)
class Delay:
    """Random sleeps before instructions, each up to so many seconds, drawn from `seed`: they make a race show."""

    seed: int
    out_seconds: float = 0.0
    in_seconds: float = 0.0
    compute_seconds: float = 0.0

    def bound(self, kind: int) -> float:
        """The longest sleep before an instruction of a kind."""
        return {Kind.COPY_OUT: self.out_seconds, Kind.COPY_IN: self.in_seconds,
                Kind.COMPUTE: self.compute_seconds}.get(Kind(kind), 0.0)

    def step(self, chance: random.Random, kind: int) -> Step:
        """A sleep of another length each time."""
        bound = self.bound(kind)
        return lambda: time.sleep(bound * chance.random())


class Progress:
    """What the streams of a range share while it runs: whether it has been stopped, by what, and the locks of waits."""

    def __init__(self) -> None:
        self.stopped = False
        self.error: BaseException | None = None
        self.locks: list[threading.Lock] = []

    def lock(self) -> threading.Lock:
        """A new lock for one wait."""
        self.locks.append(threading.Lock())
        return self.locks[-1]

    def begin(self) -> None:
        """Every wait holds its stream up again. Only while no stream is running."""
        self.stopped, self.error = False, None
        for lock in self.locks:
            lock.acquire(blocking=False)

    def stop(self) -> None:
        """End all streams at their next instruction, also those that are held up. May be called again and again."""
        self.stopped = True
        for lock in self.locks:
            with contextlib.suppress(RuntimeError):  # the lock was free
                lock.release()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error; the first one counts."""
        if self.error is None:
            self.error = error
        self.stop()


def walk(progress: Progress, steps: Iterable[Step]) -> None:
    """Do the steps of one stream in order until the range is stopped."""
    for step in steps:
        if progress.stopped:
            return
        step()


def copy(progress: Progress, move: Move, nbytes: int) -> None:
    """Move bytes piece by piece until the range is stopped."""
    for first in range(0, nbytes, CHUNK_BYTES):
        if progress.stopped:
            return
        move(first, min(first + CHUNK_BYTES, nbytes))


class Timeline:
    """One range of a plan, ready to run: the steps of each stream."""

    def __init__(self, progress: Progress, steps: Sequence[list[Step]]) -> None:
        self.progress = progress
        self._compute = steps[COMPUTE_STREAM]
        self._jobs = {stream: partial(_walk_or_fail, progress, mine) for stream, mine in enumerate(steps)
                      if stream != COMPUTE_STREAM and mine}

    def run(self, workers: Workers) -> None:
        """Run all streams to their ends; when one fails, the others end at their next instruction.

        Raises what the calling thread raised, such as KeyboardInterrupt, or else the first error of the others. All
        streams are idle afterwards.
        """
        progress = self.progress
        workers.drain()
        progress.begin()
        try:
            workers.start(progress, self._jobs)
            walk(progress, self._compute)
            workers.settle()
        except BaseException as error:
            progress.fail(error)
            workers.drain()
            progress.error = None
            raise
        failure, progress.error = progress.error, None
        if failure is not None:
            raise failure


def _walk_or_fail(progress: Progress, steps: Iterable[Step]) -> None:
    try:
        walk(progress, steps)
    except BaseException as error:
        progress.fail(error)


class Workers:
    """The threads of all streams but the computing one, each started when it is first needed."""

    def __init__(self) -> None:
        self._threads: dict[int, _Worker] = {}
        self._running: Progress | None = None

    def start(self, progress: Progress, jobs: Mapping[int, Step]) -> None:
        """Give every stream its part of a range."""
        if jobs:
            self._running = progress
        for stream, job in jobs.items():
            self._worker(stream).put(job)

    def settle(self) -> None:
        """Return when all threads are idle."""
        if self._running is None:
            return
        for worker in self._threads.values():
            worker.settle()
        self._running = None

    def drain(self) -> None:
        """Stop what is running and return when all threads are idle; KeyboardInterrupt only then."""
        interrupt = None
        while self._running is not None:
            try:
                self._running.stop()
                self.settle()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """End all threads."""
        self.drain()
        for worker in self._threads.values():
            worker.close()
        self._threads.clear()

    def _worker(self, stream: int) -> _Worker:
        worker = self._threads.get(stream)
        if worker is None or not worker.alive:  # a fork leaves its threads behind
            worker = self._threads[stream] = _Worker(STREAMS[stream] if stream < len(STREAMS) else str(stream))
        return worker


class _Worker:
    """One thread that does what it is given, in order. It knows nothing of this object and ends with it."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=f"minigraph-{name}", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._jobs, self._thread)

    @property
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    def put(self, job: Step) -> None:
        """Have a job done after all others; it must not raise."""
        self._jobs.put(job)

    def settle(self) -> None:
        """Return when all jobs are done. A new lock each time, so that an interrupted call leaves nothing behind."""
        done = threading.Lock()
        done.acquire()
        if self.alive:
            self.put(done.release)
            done.acquire()

    def close(self) -> None:
        """End the thread."""
        self._end()


def _serve(jobs: queue.SimpleQueue[Step | None]) -> None:
    np.setbufsize(BUFFER_ELEMENTS)
    with np.errstate(all="ignore"):
        while (job := jobs.get()) is not None:
            job()


def _end(jobs: queue.SimpleQueue[Step | None], thread: threading.Thread) -> None:
    jobs.put(None)
    if thread is not threading.current_thread():  # the garbage collector runs in any thread
        thread.join()
