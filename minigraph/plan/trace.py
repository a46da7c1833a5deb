"""A plan's simulated run as a Chrome trace (Trace Event Format, for chrome://tracing and Perfetto), alone or beside a
measured one. Times are in microseconds from the start of the run."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..memory.machine import Machine, get_machine
from .live import Storages, device_storages
from .plan import AGAIN, CLASSES, Kind, Plan
from .simulate import Simulation, simulate

SIMULATED, MEASURED = 1, 2
"""Process numbers in a trace; programs of a measured one follow from MEASURED on."""


def trace(plan: Plan, machine: str | Machine | Simulation = "cpu",
          measured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Chrome trace of a plan on a machine, or of a simulation of the whole plan that there is already.

    One thread a stream has an "X" event for each instruction that takes time (waits for events too), and the counter
    "live bytes" has the device bytes live by class. `measured` is a Chrome trace of runs, as `executor.profile(n)`
    gives by `chrome()`: its processes stand below the simulated one.
    """
    done = machine if isinstance(machine, Simulation) else simulate(
        plan, get_machine(machine) if isinstance(machine, str) else machine)
    events = _named(SIMULATED, f"simulated {plan.program} on {done.machine}", dict(enumerate(plan.streams)))
    events += _instructions(plan, done) + _counters(device_storages(plan), done)
    if measured is not None:
        events += _renumbered(measured)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(process: int, name: str, threads: Mapping[int, str]) -> list[dict[str, Any]]:
    """The metadata that names a process and its threads, and keeps them in order."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": process, "tid": 0, "args": {"sort_index": process}}]
    for thread, label in threads.items():
        events += [{"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": label}},
                   {"name": "thread_sort_index", "ph": "M", "pid": process, "tid": thread,
                    "args": {"sort_index": thread}}]
    return events


def _instructions(plan: Plan, done: Simulation) -> list[dict[str, Any]]:
    columns, shapes = plan.instructions, plan.buffers.shape
    start, took = done.start * 1e6, (done.end - done.start) * 1e6
    events = []
    for i in np.flatnonzero(took > 0).tolist():
        op = columns.op[i] if columns.kind[i] == Kind.COMPUTE else Kind(columns.kind[i]).name
        args: dict[str, Any] = {"instruction": i, "op": op, "outputs": [list(shapes[b]) for b in columns.writes[i]]}
        if AGAIN in columns.name[i]:
            args["recomputed"] = True
        events.append({"name": columns.name[i], "cat": op, "ph": "X", "pid": SIMULATED, "tid": columns.stream[i],
                       "ts": float(start[i]), "dur": float(took[i]), "args": args})
    return events


def _counters(storages: Storages, done: Simulation) -> list[dict[str, Any]]:
    """One event whenever a storage is born or dies, with the bytes then live in each class that the plan has."""
    born, dies, length = storages.born, storages.dies, len(done.start)
    ends = np.append(done.end, done.seconds)  # of none when the plan has no instruction
    from_seconds = np.where(born < 0, 0.0, np.append(done.start, 0.0)[np.maximum(born, 0)])
    until_seconds = np.where(dies >= length, done.seconds, np.where(dies <= 0, 0.0, ends[np.maximum(dies - 1, 0)]))
    kinds = [kind for kind in CLASSES if kind in storages.classes]
    number = np.array([kinds.index(kind) for kind in storages.classes], np.int64)
    times, at = np.unique(np.concatenate([from_seconds, until_seconds]), return_inverse=True)
    change = np.zeros((len(times), len(kinds)), np.int64)
    np.add.at(change, (at[:len(born)], number), storages.bytes)
    ending = ~np.array(storages.kept, bool)  # what outlives the program stays on the chart
    np.subtract.at(change, (at[len(born):][ending], number[ending]), storages.bytes[ending])
    live = np.cumsum(change, axis=0)
    return [{"name": "live bytes", "ph": "C", "pid": SIMULATED, "tid": 0, "ts": time * 1e6,
             "args": dict(zip(kinds, row, strict=True))}
            for time, row in zip(times.tolist(), live.tolist(), strict=True)]


def _renumbered(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of another trace, whose processes and threads may be named by texts, with numbers after SIMULATED."""
    processes: dict[Any, int] = {}
    threads: dict[int, dict[Any, int]] = {}
    events = []
    for event in measured["traceEvents"]:
        process = processes.setdefault(event["pid"], MEASURED + len(processes))
        known = threads.setdefault(process, {})
        events.append({**event, "pid": process, "tid": known.setdefault(event["tid"], len(known))})
    names = [_named(number, f"measured {process}", {k: str(thread) for thread, k in threads[number].items()})
             for process, number in processes.items()]
    return [entry for group in names for entry in group] + events
