"""Measuring this machine: a machine file for the roofline, and profiles of the operators of a plan.

    python -m minigraph machine --save this.json            then machine="this.json"
    measure.profile_ops(plan).save("times.json")            then profile="times.json"

All figures are medians over several rounds in turns, since a machine that others use as well is never twice the same.
"""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import MXNetError
from .binding import device_of
from .cache_times import CacheTimes
from .context import Context, current_context
from .device.device import Before, Clock, nothing
from .memory.machine import Machine, save_machine
from .memory.profile import Measured, Profile, spelled, spelled_types
from .ops.op import Workspace
from .ops.registry import get_op
from .plan.caches import coldness
from .plan.plan import Kind, Plan
from .plan.simulate import operand_types

ROUNDS = 7
_GEMM = 1024
_BLOCK_BYTES = 64 * 2**20
_TENSORS, _TENSOR_BYTES = 32, 2 * 2**20
_DISK_BYTES = 64 * 2**20
_CALLS = 2000
_EVENTS = 200


# -- the machine -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MachineReport:
    """A measured machine; `figures` has the median of each figure, and `spread` (most - least) / median over the
    rounds. Rates are per second: operations of `gemm` (as many threads as this process has) and `gemm_1_thread`,
    bytes read and written of `memory`, bytes of `copy` (of tensors just written, as swapping does), `disk_write` and
    `disk_read`; `launch` and `event` are in seconds, `event` always of the thread's own."""

    machine: Machine
    figures: dict[str, float]
    spread: dict[str, float]

    def text(self) -> str:
        """A table for people."""
        shown = {"gemm": (1e9, "GFLOP/s"), "gemm_1_thread": (1e9, "GFLOP/s"), "memory": (1e9, "GB/s"),
                 "copy": (1e9, "GB/s"), "disk_write": (1e6, "MB/s"), "disk_read": (1e6, "MB/s"),
                 "launch": (1e-6, "us"), "event": (1e-6, "us")}
        lines = [f"machine {self.machine.name}: {self.machine.memory_bytes / 2**30:.1f} GiB of memory"]
        lines += [f"{name:<14} {value / shown[name][0]:>10.2f} {shown[name][1]:<8} spread {self.spread[name]:.0%}"
                  for name, value in self.figures.items()]
        return "\n".join(lines)


def measure_machine(name: str = "this", folder: str | None = None, rounds: int = ROUNDS,
                    clock: Clock = time.perf_counter) -> MachineReport:
    """Measure the CPU, its memory, and the disk that holds `folder` (default: that for temporary files).

    `clock` gives seconds for all but the disk: where others keep the cores busy and BLAS has one thread,
    `time.thread_time` leaves them out. ValueError for fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"measuring a machine takes one round or more, got rounds={rounds}")
    gemm, memory, copy = _gemm_rate(_GEMM, clock), _memory_rate(clock), _copy_rate(clock)
    trials: dict[str, Callable[[], Iterable[tuple[str, float]]]] = {
        "gemm": lambda: [("gemm", gemm())], "memory": lambda: [("memory", memory())],
        "copy": lambda: [("copy", copy())], "launch": lambda: [("launch", _launch_seconds(clock))],
        "event": lambda: [("event", _event_seconds())],
        "disk": lambda: _disk_rates(folder)}
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for trial in trials.values():
            for figure, value in trial():
                taken.setdefault(figure, []).append(value)
    taken["gemm_1_thread"] = _one_thread_rates(rounds)
    figures = {figure: statistics.median(values) for figure, values in taken.items()}
    spread = {figure: (max(values) - min(values)) / figures[figure] for figure, values in taken.items()}
    machine = Machine(name, _memory_bytes(), figures["gemm"], figures["memory"], figures["copy"], figures["copy"],
                      figures["launch"],
                      f"measured in {rounds} rounds, medians: float32 GEMM of {_GEMM}, copies of "
                      f"{_BLOCK_BYTES >> 20} MiB, of {_TENSOR_BYTES >> 20} MiB just written for the link, the slower "
                      f"way of a file of {_DISK_BYTES >> 20} MiB", min(figures["disk_write"], figures["disk_read"]),
                      event_seconds=figures["event"])
    return MachineReport(machine, figures, spread)


def _gemm_rate(size: int, clock: Clock = time.perf_counter) -> Callable[[], float]:
    a, b, out = (np.full((size, size), 0.5, np.float32) for _ in range(3))

    def rate() -> float:
        start = clock()
        np.matmul(a, b, out=out)
        return 2.0 * size**3 / (clock() - start)
    rate()
    return rate


def _one_thread_rates(rounds: int) -> list[float]:
    """The GEMM rate of processes whose BLAS has one thread: it is told so when it is loaded."""
    script = f"from minigraph.measure import _gemm_rate as g; r = g({_GEMM}); print(*(r() for _ in range({rounds})))"
    limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
                           "1")
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False,
                          env={**os.environ, **limits, "PYTHONPATH": path})
    if done.returncode:
        raise MXNetError(f"the process that measures one thread failed: {done.stderr.strip()[-500:]}")
    return [float(value) for value in done.stdout.split()]


def _memory_rate(clock: Clock) -> Callable[[], float]:
    """Bytes read and written per second by a copy between blocks that no cache holds."""
    source, target = (np.ones(_BLOCK_BYTES, np.uint8) for _ in range(2))

    def rate() -> float:
        start = clock()
        np.copyto(target, source)
        return 2.0 * _BLOCK_BYTES / (clock() - start)
    return rate


def _copy_rate(clock: Clock) -> Callable[[], float]:
    """Bytes copied per second of tensors that were written just before, to places that no cache holds."""
    source, target = (np.ones((_TENSORS, _TENSOR_BYTES), np.uint8) for _ in range(2))

    def rate() -> float:
        seconds = 0.0
        for made, place in zip(source, target, strict=True):
            made.fill(1)
            start = clock()
            np.copyto(place, made)
            seconds += clock() - start
        return _TENSORS * _TENSOR_BYTES / seconds
    return rate


def _launch_seconds(clock: Clock) -> float:
    """What an operator of next to no work takes."""
    op = get_op("negative")
    params = op.Params()
    value, out = [np.ones(1, np.float32)], [np.ones(1, np.float32)]
    nothing = Workspace(np.empty(0, np.uint8))
    start = clock()
    for _ in range(_CALLS):
        op.compute(params, value, out, nothing)
    return (clock() - start) / _CALLS


def _event_seconds() -> float:
    """What a thread spends on an event that it records for another one, or waits for: two threads wake each other, and
    only the time counts that one of them runs, for sleeping is what the simulator has as stalls."""
    mine, other = threading.Lock(), threading.Lock()
    with mine, other:
        answering = threading.Thread(target=_answer, args=(mine, other))
        answering.start()
        start = time.thread_time()
        for _ in range(_EVENTS):
            mine.release()
            other.acquire()
        taken = time.thread_time() - start
        answering.join()
        return taken / (2 * _EVENTS)


def _answer(wait: threading.Lock, record: threading.Lock) -> None:
    for _ in range(_EVENTS):
        wait.acquire()
        record.release()


def _disk_rates(folder: str | None) -> list[tuple[str, float]]:
    """(disk_write, disk_read) through a file that is flushed, and then dropped from the system's cache if it can be."""
    data = os.urandom(2**20) * (_DISK_BYTES >> 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        written = time.perf_counter() - start
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        file.seek(0)
        while file.read(2**20):
            pass
        return [("disk_write", len(data) / written), ("disk_read", len(data) / (time.perf_counter() - start))]


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError) as error:
        raise MXNetError(f"this system does not tell how much memory it has: {error}; write the machine file by "
                         f"hand") from error


# -- operators ---------------------------------------------------------------------------------------------------
def profile_ops(plan: Plan, context: Context | None = None, rounds: int = ROUNDS) -> Profile:
    """The seconds of each different operator of a plan, as `Profiler` takes them in so many rounds.

    MXNetError when the device cannot run the plan, ValueError for fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"a profile takes one round or more, got rounds={rounds}")
    with Profiler(plan, context) as profiler:
        for _ in range(rounds):
            profiler.round()
        return profiler.profile()


class Profiler:
    """Times the operators of a plan as they run in the plan: same neighbours, same caches.

    The plan runs over arenas of its own that hold small random numbers, once at first and then once a round. On a
    device whose caches the host shares, it runs twice more in a round: with all that an operator touches brought into
    the caches before it, as far as they hold it, and with all of it driven out, once for each different operator.
    `clock` gives seconds: where others keep the cores busy and kernels have one thread, `time.thread_time` leaves them
    out.
    """

    def __init__(self, plan: Plan, context: Context | None = None,
                 clock: Clock = time.perf_counter) -> None:
        self.plan, self.clock = plan, clock
        self.device = device_of(context or current_context())
        self.memory = self.device.memory()
        computing = [i for i, kind in enumerate(plan.instructions.kind) if kind == Kind.COMPUTE]
        self._keys = {i: _key(plan, i) for i in computing}
        self._taken: dict[int, list[float]] = {i: [] for i in computing}
        self._caches = CacheTimes(plan, self.memory, self._keys, clock) if self.device.host_caches else None
        try:
            self.memory.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes, plan.page_bytes)
            self._program = self.device.load(plan, self.memory)
            self._values = _values(plan)
            for tensor in plan.persistent:
                home = plan.arenas[plan.buffers.arena[tensor.first]].name
                self.memory.write(home, plan.buffers.offset[tensor.first], self._values(tensor.first))
            self._seconds_of_all()
        except BaseException:
            self.memory.close()
            raise

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the arenas back."""
        self.memory.close()

    def round(self) -> None:
        """Run the plan once more, or once in each way, and note the time of each operator."""
        seconds = self._seconds_of_all()
        for i, taken in self._taken.items():
            taken.append(seconds[i])
        if self._caches is not None:
            self._caches.note(self._seconds_of_all(self._caches.warm), self._seconds_of_all(self._caches.cool))

    def profile(self) -> Profile:
        """The times so far: of each place where an operator occurs the median over the rounds, and of places with the
        same operator, whose operands may lie in a cache or not, the mean. ValueError before the first round."""
        caches = self._caches
        places: dict[tuple, list[tuple[int, float]]] = {}
        for i, taken in self._taken.items():
            if not taken:
                raise ValueError("there are no times yet; call round() before profile()")
            places.setdefault(self._keys[i], []).append((i, statistics.median(taken)))
        reuse = caches.reuse if caches else ()
        cold = coldness(self.plan, Profile(self.device.name, (), reuse).coldness) if caches else [0.0] * len(self.plan)
        measured = []
        for key, found in places.items():
            seconds, share = statistics.fmean(s for _, s in found), statistics.fmean(cold[i] for i, _ in found)
            measured.append(_measured(key, seconds, share, caches.cold_seconds(key, seconds, share) if caches else 0.0))
        return Profile(self.device.name, measured, reuse)

    def _seconds_of_all(self, before: Before = nothing) -> list[float]:
        for name, b in self.plan.inputs.items():
            self._program.feed(name, self._values(b))
        return self._program.times(self.clock, before)


def merged(profiles: Iterable[Profile]) -> Profile:
    """One profile of several on the same device; of equal operators the later one's time counts."""
    together: dict[tuple, Measured] = {}
    devices: list[str] = []
    reuse: Sequence[tuple[float, float]] = ()
    for each in profiles:
        devices.append(each.device)
        reuse = each.reuse
        together.update({(m.op, m.params, m.types, m.algorithm): m for m in each.measured})
    if len(set(devices)) != 1:
        raise ValueError(f"profiles of one device can be merged, got {sorted(set(devices))}")
    return Profile(devices[0], list(together.values()), reuse)


def _key(plan: Plan, i: int) -> tuple:
    code = plan.instructions
    return code.op[i], code.params[i], tuple(operand_types(plan, i)), code.algorithm[i], len(code.reads[i])


def _measured(key: tuple, seconds: float, cold: float, cold_seconds: float) -> Measured:
    name, params, types, algorithm, reads = key
    cost = get_op(name).cost(params, list(types[:reads]), list(types[reads:]))
    return Measured(name, spelled(params), spelled_types(types), algorithm, cost.flops,
                    cost.read_bytes + cost.written_bytes, seconds, cold, cold_seconds)


def _values(plan: Plan) -> Callable[[int], np.ndarray]:
    """From a buffer to small positive numbers for it: nothing is denormal, no square root fails, and as a label or an
    index each is 0."""
    chance = np.random.default_rng(0)
    columns = plan.buffers
    return lambda b: chance.uniform(0.01, 0.1, columns.shape[b]).astype(columns.dtype[b])


# -- the command -----------------------------------------------------------------------------------------------
def add_command(commands: Any) -> argparse.ArgumentParser:
    """Add `machine` to the command line's commands; its parser."""
    purpose = "measure this machine, for plans that weigh its times"
    parser: argparse.ArgumentParser = commands.add_parser(
        "machine", help=purpose, description=purpose,
        epilog="The file that --save writes goes wherever a machine's name does: --machine FILE.json")
    parser.add_argument("--save", metavar="FILE.json", help="write a machine file")
    parser.add_argument("--name", default="this", help="the machine's name in reports (default this)")
    parser.add_argument("--disk", metavar="FOLDER", help="measure the disk of this folder")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each measurement (default {ROUNDS})")
    return parser


def run_command(given: argparse.Namespace) -> str:
    """Measure, save if asked to, and return what to print."""
    if given.save and not given.save.endswith(".json"):
        raise MXNetError(f"a machine file's name ends in .json, got {given.save!r}")
    try:
        report = measure_machine(given.name, given.disk, given.rounds)
    except ValueError as error:
        raise MXNetError(str(error)) from error
    if given.save:
        save_machine(report.machine, given.save)
    return report.text()


__all__ = ["MachineReport", "Profiler", "add_command", "measure_machine", "merged", "profile_ops", "run_command"]
