"""A step that breaks off: it ends at the next instruction, tells its reason, and leaves idle threads behind."""
from __future__ import annotations

import errno
import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cpu import CpuDevice, Delay
from minigraph.device.cpu import streams as streams_module
from minigraph.plan.plan import OUT_STREAM
from tests.plan import build
from tests.plan.build import Maker

from .plans import chain, expected, feeds, in_file, load, mixed, run, same_bits, set_values


class Counting:
    """Stands in for a function and fails at one of its calls."""

    def __init__(self, real: Any, error: BaseException, at: int) -> None:
        self.real, self.error, self.at = real, error, at
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return self.real(*arguments)


def copy_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("minigraph-")]


@pytest.mark.parametrize("at", [1, 5, 16])
@pytest.mark.parametrize("error", [ValueError("seven"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: repr(e))
def test_an_error_while_computing_ends_the_step_there_and_the_next_run_is_right(
        at: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(8, 1)
    given, program = feeds(plan), load(plan, CpuDevice(delay=Delay(at, 1e-3, 1e-3)))
    failing = Counting(mixed, error, at)
    with monkeypatch.context() as patch:
        patch.setattr(build.Dense, "compute", lambda self, *arguments: failing(self, *arguments))
        set_values(program, given)
        with pytest.raises(type(error)) as caught:
            program.run("step")
    assert caught.value is error and failing.calls == at
    for _ in range(3):
        assert same_bits(run(program, given), expected(plan, given))


@pytest.mark.parametrize("at", [1, 3, 8])
def test_a_full_disk_is_an_out_of_memory_error_that_names_file_and_bytes(
        at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = in_file(chain(8, 1))
    given, program = feeds(plan), load(plan)
    full = Counting(os.pwrite, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), at)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        set_values(program, given)
        with pytest.raises(OutOfMemoryError) as caught:
            program.run("step")
    assert program.memory.files["file"].path in str(caught.value)
    assert "cannot take 64 bytes" in str(caught.value) and "No space left" in str(caught.value)
    assert caught.value.asked_bytes == 64
    assert full.calls == at, "no copy follows the one that failed"
    for _ in range(3):
        assert same_bits(run(program, given), expected(plan, given))


def test_another_error_of_the_disk_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = in_file(chain(8, 1))
    program = load(plan)
    set_values(program, feeds(plan))
    for name, words in (("pwrite", "cannot take 64 bytes: Input/output"), ("preadv", "cannot be read at byte")):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, Counting(getattr(os, name), OSError(errno.EIO, os.strerror(errno.EIO)), 2))
            with pytest.raises(MXNetError, match=words) as caught:
                program.run("step")
            assert not isinstance(caught.value, OutOfMemoryError)


def test_an_error_of_a_copy_thread_reaches_the_caller_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Maker()
    data, a, out = (m.value(name) for name in ("data", "a", "out"))
    m.run("t_first", (data, data), (a,), stream=OUT_STREAM)
    m.record(0, OUT_STREAM)
    m.wait(0)
    m.run("t_unary", (a,), (out,))
    plan = m.plan((data,), (out,))
    error = ZeroDivisionError("seven")
    monkeypatch.setattr(build.First, "compute", Counting(None, error, 1))
    with pytest.raises(ZeroDivisionError) as caught:
        run(load(plan), feeds(plan))
    assert caught.value is error


def test_a_long_copy_is_broken_off_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = in_file(chain(2, 0, 3 << 20))
    program = load(plan)
    set_values(program, feeds(plan))
    started, failed = threading.Event(), threading.Event()
    real_pwrite, real_fail, pieces = os.pwrite, streams_module.Progress.fail, []

    def pwrite(*arguments: Any) -> int:
        pieces.append(arguments)
        started.set()
        failed.wait()
        return real_pwrite(*arguments)

    def compute(self: Any, *arguments: Any) -> None:
        started.wait()
        raise ValueError("seven")

    def fail(self: Any, error: BaseException) -> None:
        real_fail(self, error)
        failed.set()

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(build.Dense, "compute", _after_first(compute, mixed))
    monkeypatch.setattr(streams_module.Progress, "fail", fail)
    with pytest.raises(ValueError, match="seven"):
        program.run("step")
    assert len(pieces) == 1


def _after_first(later: Any, first: Any) -> Any:
    calls = []

    def compute(self: Any, *arguments: Any) -> None:
        calls.append(1)
        (first if len(calls) == 1 else later)(self, *arguments)

    return compute


def test_copy_threads_start_at_the_first_run_and_end_with_the_memory() -> None:
    before = set(copy_threads())
    plan = chain(4, 1)
    program = load(plan)
    assert set(copy_threads()) == before
    run(program, feeds(plan))
    started = set(copy_threads()) - before
    assert sorted(thread.name for thread in started) == ["minigraph-in", "minigraph-out"]
    program.memory.close()
    assert not any(thread.is_alive() for thread in started)


def test_copy_threads_and_arenas_end_when_nobody_holds_the_program() -> None:
    gc.collect()
    before = set(copy_threads())
    plan = in_file(chain(4, 1))
    program = load(plan)
    run(program, feeds(plan))
    started, file = set(copy_threads()) - before, program.memory.files["file"]._file
    gc.disable()
    try:
        del program
        assert not any(thread.is_alive() for thread in started), "a cycle keeps them"
    finally:
        gc.enable()
    with pytest.raises(OSError):
        os.fstat(file)


def test_a_failed_run_keeps_its_error_no_longer_than_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = in_file(chain(4, 1))
    program = load(plan)
    set_values(program, feeds(plan))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", Counting(os.pwrite, OSError(errno.ENOSPC, "full"), 1))
        with pytest.raises(OutOfMemoryError):
            program.run("step")
    timeline = next(iter(program._timelines.values()))  # type: ignore[attr-defined]
    assert timeline.progress.error is None
    assert np.isfinite(run(program, feeds(plan))["out"]).all()
