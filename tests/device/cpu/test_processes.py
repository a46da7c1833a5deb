"""Processes that are interrupted, end, fork or die while they swap: no hang, no wrong bit, no file left behind."""
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRELUDE = """
import os, resource, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have had it ignored
from minigraph.base import OutOfMemoryError
from minigraph.device.cpu import CpuDevice, Delay
from tests.device.cpu.plans import COMPUTE, chain, expected, feeds, in_file, load, mixed, run, same_bits, set_values
from tests.plan import build
for op, compute in COMPUTE.items():
    op.compute = compute
build.registered().__enter__()
plan = in_file(chain(8, 1))
given = feeds(plan)
wanted = expected(plan, given)
program = load(plan, CpuDevice(disk=sys.argv[1], delay=Delay(0, 2e-3, 2e-3)))

def right():
    return all(same_bits(run(program, given), wanted) for _ in range(3))

def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
"""
INTERRUPTED = """
set_values(program, given)
try:
    program.run("step")
    print("not interrupted")
except KeyboardInterrupt:
    os.pwrite = real
    print("interrupted", len(seen), right())
"""


def child(script: str, folder: Path, expect: int = 0) -> list[str]:
    """What a script prints after the prelude; the folder for swap files must be empty when it has ended."""
    result = subprocess.run([sys.executable, "-c", PRELUDE + script, str(folder)], cwd=ROOT, capture_output=True,
                            text=True, timeout=500)
    assert result.returncode == expect, result.stderr
    assert list(folder.iterdir()) == []
    return result.stdout.split()


def test_an_interrupt_while_computing_ends_the_step(tmp_path: Path) -> None:
    script = """
real, seen = os.pwrite, []
def compute(self, *arguments):
    seen.append(1)
    if len(seen) == 5:
        interrupt()
    mixed(self, *arguments)
build.Dense.compute = compute
"""
    assert child(script + INTERRUPTED, tmp_path) == ["interrupted", "5", "True"]


@pytest.mark.parametrize("times", [1, 3])
def test_interrupts_while_waiting_for_a_copy_end_the_step_once_the_copy_has_ended(times: int, tmp_path: Path) -> None:
    script = f"""
real, seen = os.pwrite, []
def pwrite(*arguments):
    for _ in range({times}):
        time.sleep(0.1)
        interrupt()
    time.sleep(0.1)
    seen.append(1)
    return real(*arguments)
os.pwrite = pwrite
"""
    assert child(script + INTERRUPTED, tmp_path) == ["interrupted", "1", "True"]


def test_interrupts_at_any_moment_leave_a_program_that_can_be_run_again(tmp_path: Path) -> None:
    script = """
import random
chance = random.Random(7)
def stray(signum, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stray)
broken = 0
for _ in range(150):
    set_values(program, given)
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 3e-2))
        program.run("step")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        broken += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert broken % 10 or right()
print(broken > 20, right())
"""
    assert child(script, tmp_path) == ["True", "True"]


def test_a_process_that_ends_without_closing_anything_ends(tmp_path: Path) -> None:
    assert child("print(right())", tmp_path) == ["True"]
    assert child("print(right()); keep = [program, program.memory]; sys.exit(3)", tmp_path, expect=3) == ["True"]


def test_a_process_that_is_killed_leaves_no_file_behind(tmp_path: Path) -> None:
    script = "print(right(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    assert child(script, tmp_path, expect=-signal.SIGKILL) == ["True"]


def test_a_forked_child_starts_threads_of_its_own(tmp_path: Path) -> None:
    script = """
plan = chain(8, 1)
program = load(plan)
print(right(), flush=True)
if os.fork() == 0:
    os._exit(7 if right() else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]), right())
"""
    assert child(script, tmp_path) == ["True", "7", "True"]


def test_a_forked_child_is_kept_from_its_parents_swap_file(tmp_path: Path) -> None:
    script = """
from minigraph.base import MXNetError
print(right(), flush=True)
if os.fork() == 0:
    try:
        right()
    except MXNetError as error:
        os._exit(7 if "belongs to the process" in str(error) and "bind again here" in str(error) else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]), right())
"""
    assert child(script, tmp_path) == ["True", "7", "True"]


def test_a_limit_on_file_sizes_is_told_when_loading(tmp_path: Path) -> None:
    script = """
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    load(in_file(chain(8, 1, 100_000)), CpuDevice(disk=sys.argv[1]))
except OutOfMemoryError as error:
    print("refused", error.asked_bytes, right())
"""
    assert child(script, tmp_path) == ["refused", str(8 * 400_000), "True"]
