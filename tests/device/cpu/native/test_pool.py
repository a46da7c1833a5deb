"""The pool: results do not depend on threads, callers do not wait for each other's tasks, and a fork has its own."""
from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np

from minigraph.device.cpu.native.call import NativeCall, int64
from minigraph.device.cpu.native.run import NativeRun

from .harness import the_library, threads

SIZE = 300_000


def adder(lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray, times: int = 1) -> NativeRun:
    """out = lhs + rhs, so many times."""
    library = the_library()
    call = NativeCall("add_forward", tuple(("P", a.ctypes.data) for a in (lhs, rhs, out)) + (int64(out.size),))
    return NativeRun(library, [call.pack(library)] * times)


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    lhs, rhs = rng.standard_normal((2, SIZE)).astype(np.float32)
    return lhs, rhs, np.zeros(SIZE, np.float32)


def test_many_jobs_on_changing_numbers_of_threads_all_come_to_their_ends() -> None:
    lhs, rhs, out = operands()
    run = adder(lhs, rhs, out, 50)
    for count in (1, 2, 7, 3, 1, 4):
        with threads(count):
            out.fill(0)
            run()
            np.testing.assert_array_equal(out, lhs + rhs)


def test_callers_in_several_python_threads_get_their_own_results() -> None:
    errors: list[str] = []

    def work(seed: int) -> None:
        lhs, rhs, out = operands()
        lhs += seed
        run = adder(lhs, rhs, out)
        for _ in range(100):
            out.fill(0)
            run()
            if not np.array_equal(out, lhs + rhs):
                errors.append(f"caller {seed}")
    with threads(3):
        callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert errors == []


def test_a_forked_child_computes_with_threads_of_its_own() -> None:
    lhs, rhs, out = operands()
    run = adder(lhs, rhs, out)
    with threads(3):
        run()
        child = os.fork()
        if child == 0:
            out.fill(0)
            run()
            os._exit(0 if np.array_equal(out, lhs + rhs) else 1)
        assert os.waitpid(child, 0)[1] == 0
        run()


def test_a_long_run_of_kernels_lets_python_look_at_signals() -> None:
    code = """
import signal, numpy as np
from tests.device.cpu.native.test_pool import adder, operands
lhs, rhs, out = operands()
run = adder(lhs, rhs, out, 200_000)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    run()
except KeyboardInterrupt:
    raise SystemExit(7)
"""
    the_library()
    assert subprocess.run([sys.executable, "-c", code], timeout=500).returncode == 7


def test_stopping_ends_a_run_before_its_last_instruction() -> None:
    lhs, rhs, out = operands()
    asked = []
    adder(lhs, rhs, out, 10_000)(lambda: not asked.append(1))
    assert len(asked) == 1


def test_a_thread_that_comes_late_claims_nothing_of_a_job_that_is_over() -> None:
    code = """
import numpy as np
from minigraph.device.cpu.native.run import NativeRun
from tests.device.cpu.native.harness import the_library, threads
from tests.device.cpu.native.test_pool import adder
few, many = np.zeros(16_385, np.float32), np.zeros(6 * 16_384, np.float32)
one, library = np.ones(many.size, np.float32), the_library()
calls = adder(few, one[:few.size], few).calls + adder(many, one, many).calls
run = NativeRun(library, calls * 5_000)
with threads(4):
    for _ in range(4):
        run()
raise SystemExit(7 if (few == 20_000).all() and (many == 20_000).all() else 1)
"""
    the_library()
    assert subprocess.run([sys.executable, "-c", code], timeout=500).returncode == 7
