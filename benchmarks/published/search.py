"""The least bytes that a policy makes of a network, by the quick count, and the largest network within a capacity."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minigraph.base import OutOfMemoryError, Shape
from minigraph.memory.policies import POLICIES, Problem
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import PASSES, run_pass
from minigraph.passes.schedule import make_problem, plain
from minigraph.planning import plan, prepare

Build = Callable[[int], "tuple[Any, Mapping[str, Shape]]"]
"""From a batch or a depth to a symbol and the shapes of its inputs."""
Cost = tuple[int, float]
"""Peak bytes and modelled seconds of a step."""
MOMENTUM = {"momentum": 0.9}
NEVER = 1 << 62
"""Bytes that no capacity reaches."""


@dataclass(frozen=True)
class Setting:
    """What a policy is given beside the network: a machine's name and bytes of host memory."""

    machine: str
    host_bytes: int


def problem_at(build: Build, n: int, setting: Setting) -> Problem:
    """What policies are given of a training step with momentum."""
    symbol, shapes = build(n)
    program = prepare(symbol, shapes, "sgd", optimizer_params=MOMENTUM, machine=setting.machine, verify=False,
                      host_budget=setting.host_bytes)
    state = Compilation(program.request, program.graph, program.layout)
    for stage in PASSES:
        run_pass(stage, state)
        if stage.name == "schedule":
            break
    assert state.schedule is not None
    return make_problem(state, list(state.schedule.order))


def costs(policy: str, problem: Problem) -> list[Cost]:
    """What each candidate of a policy takes; `plain` has the graph's own order alone."""
    found = plain(problem) if policy == "plain" else POLICIES[policy].candidates(problem)
    return [(c.peak_bytes, c.seconds) for c in found]


def least_bytes(found: Iterable[Cost], within_seconds: float = float("inf")) -> int:
    """The lowest peak among candidates that take so long at most."""
    return min((nbytes for nbytes, seconds in found if seconds <= within_seconds), default=NEVER)


def least_seconds(found: Iterable[Cost], within_bytes: int) -> float | None:
    """The shortest time among candidates that take so many bytes at most; None when there is none."""
    return min((seconds for nbytes, seconds in found if nbytes <= within_bytes), default=None)


def largest(needed: Callable[[int], int], capacity_bytes: int, start: int, resolution: float) -> int:
    """The largest n whose needed bytes are within the capacity, to a share of n; 0 when there is none.

    Bytes grow about linearly, so the next n to try is interpolated between two, or a little beyond them.
    """
    known = {0: 0}
    fits, above, n = 0, 1 << 40, start
    while above - fits > max(1, int(resolution * fits)):
        known[n] = needed(n)
        fits, above = (n, above) if known[n] <= capacity_bytes else (fits, n)
        low = max((k for k in known if k < n), key=lambda k: abs(k - n)) if n == fits else fits
        slope = max((known[n] - known[low]) / max(n - low, 1), 1e-9)
        n = round(n + (capacity_bytes - known[n]) / slope)
        n = min(max(n, fits + 1), above - 1, max(2 * fits, start))
    return fits


def has_plan(build: Build, n: int, policy: str, capacity_bytes: int, setting: Setting) -> int | None:
    """Bytes of a verified, packed plan within a capacity, or None when there is none."""
    symbol, shapes = build(n)
    try:
        found = plan(symbol, shapes, "sgd", "step", policy, optimizer_params=MOMENTUM, machine=setting.machine,
                     budget=None if policy == "plain" else capacity_bytes, host_budget=setting.host_bytes)
    except OutOfMemoryError:
        return None
    return found.planned_bytes if found.planned_bytes <= capacity_bytes else None
