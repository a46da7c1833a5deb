"""The least bytes that a policy makes of a network, by the quick count, and the largest network within a capacity."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minigraph.base import Algorithm, OutOfMemoryError, Shape, TensorType
from minigraph.device.cuda import import_families
from minigraph.device.cuda.launch import implemented, kernel_op
from minigraph.memory.policies import POLICIES, Problem
from minigraph.ops.op import Op
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import PASSES, compile_program, run_pass
from minigraph.passes.schedule import PLAIN, make_problem
from minigraph.planning import Program, prepare

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
    program = _program(build, n, setting)
    state = Compilation(program.request, program.graph, program.layout)
    for stage in PASSES:
        run_pass(stage, state)
        if stage.name == "schedule":
            break
    assert state.schedule is not None
    return make_problem(state, list(state.schedule.order))


def costs(policy: str, problem: Problem) -> list[Cost]:
    """What each candidate of a policy takes; `plain` has the graph's own order alone."""
    strategy = PLAIN if policy == "plain" else POLICIES[policy]
    return [(c.peak_bytes, c.seconds) for c in strategy.offer(problem, strategy.moves_homes)]


def least_bytes(found: Iterable[Cost], within_seconds: float = float("inf")) -> int:
    """The lowest peak among candidates that take so long at most."""
    return min((nbytes for nbytes, seconds in found if seconds <= within_seconds), default=NEVER)


def least_seconds(found: Iterable[Cost], within_bytes: int) -> float | None:
    """The shortest time among candidates that take so many bytes at most; None when there is none."""
    return min((seconds for nbytes, seconds in found if nbytes <= within_bytes), default=None)


def largest(needed: Callable[[int], int], capacity_bytes: int, start: int, resolution: float) -> int:
    """The largest n whose needed bytes are within the capacity, to a share of n; 0 when there is none.

    Bytes grow about linearly: the next n is where a line through the last two that were tried meets the capacity,
    and every third one halves what is left, should they not.
    """
    fits, above, tried = 0, 1 << 40, [(0, 0)]
    n = start
    while above - fits > max(1, int(resolution * fits)):
        tried.append((n, needed(n)))
        fits, above = (n, above) if tried[-1][1] <= capacity_bytes else (fits, n)
        (before, before_bytes), (_, nbytes) = tried[-2:]
        slope = max((nbytes - before_bytes) / (n - before), nbytes / n / 8)
        n = (fits + above) // 2 if len(tried) % 3 == 0 and above < 1 << 40 else \
            round(n + (capacity_bytes - nbytes) / slope)
        n = min(max(n, fits + 1), above - 1, 8 * max(fits, start))
    return fits


def has_plan(build: Build, n: int, policy: str, capacity_bytes: int, setting: Setting) -> int | None:
    """Bytes of a verified, packed plan within a capacity, or None when there is none."""
    program = _program(build, n, setting, memory=policy, budget=None if policy == "plain" else capacity_bytes)
    try:
        found = compile_program(program.graph, replace(program.request, verify=True), program.layout)
    except OutOfMemoryError:
        return None
    return found.planned_bytes if found.planned_bytes <= capacity_bytes else None


def _program(build: Build, n: int, setting: Setting, **options: Any) -> Program:
    """A training step with momentum, with the workspaces of minigraph's GPU kernels."""
    symbol, shapes = build(n)
    found = prepare(symbol, shapes, "sgd", "step", optimizer_params=MOMENTUM, machine=setting.machine, verify=False,
                    host_budget=setting.host_bytes, **options)
    return replace(found, request=replace(found.request, algorithms=gpu_algorithms))


def gpu_algorithms(op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[Algorithm]:
    """The GPU's way to compute an op; the op's own where it has no kernel."""
    if op.name in implemented():
        return (kernel_op(op.name).algorithm(params, ins, outs),)
    return op.algorithms(params, ins, outs)


import_families()
