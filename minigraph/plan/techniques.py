"""What each memory technique of a plan does: what it saves against the plain plan, and what it costs in time."""
from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from ..base import format_bytes
from ..memory.machine import Machine
from .live import device_storages, member_at, peak_instant
from .plan import AGAIN, COMPUTE_STREAM, Kind, Plan
from .simulate import instruction_costs, instruction_seconds, simulate


@dataclass(frozen=True)
class Recomputed:
    """Instructions that run again: how many, their floating-point operations, and their modelled seconds.

    `saved_bytes` are those live in the plain plan at its peak, and not in this plan at the same instruction, of values
    that are computed again; None when no plain plan was given.
    """

    instructions: int
    flops: float
    seconds: float
    saved_bytes: int | None


@dataclass(frozen=True)
class Swapped:
    """Tensors that are copied out, bytes copied each way, and the seconds that the compute stream waits for copies.

    `saved_bytes` is as in Recomputed, of values that are copied out.
    """

    tensors: int
    out_bytes: int
    in_bytes: int
    stall_seconds: float
    saved_bytes: int | None


@dataclass(frozen=True)
class Techniques:
    """Everything that makes a plan smaller than the plain one, modelled on `machine`.

    At the peak of the plain plan, `saved_bytes` fewer are live in this one: the sum of those of the techniques and of
    `other_saved_bytes`, which come from sharing in place and from workspaces, and may be negative. All three are None
    when no plain plan was given.
    """

    machine: str
    recomputed: Recomputed
    swapped: Swapped
    other_saved_bytes: int | None
    saved_bytes: int | None

    def json(self) -> dict[str, Any]:
        """The figures under their names, of types that the json module writes."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Labels and figures for people, of the techniques that are used."""
        rows, again, swap = [], self.recomputed, self.swapped
        if again.instructions:
            rows.append(("recomputed", f"{again.instructions} instructions, {again.flops / 1e9:.2f} GFLOP, "
                                       f"{again.seconds:.4f} s{_saves(again.saved_bytes)}"))
        if swap.tensors:
            rows.append(("swapped", f"{swap.tensors} tensors, {format_bytes(swap.out_bytes)} out, "
                                    f"{format_bytes(swap.in_bytes)} in, waits {swap.stall_seconds:.4f} s"
                                    f"{_saves(swap.saved_bytes)}"))
        return rows


def _saves(saved_bytes: int | None) -> str:
    return "" if saved_bytes is None else f", saves {format_bytes(saved_bytes)} at the plain plan's peak"


def techniques(plan: Plan, machine: Machine, plain: Plan | None = None) -> Techniques:
    """What the techniques of a plan cost on a machine, and what they save against `plain`, the plain plan of the same
    program."""
    columns = plan.instructions
    seconds, costs = instruction_seconds(plan, machine), instruction_costs(plan)
    again = recomputed(plan)
    out = [columns.reads[i][0] for i in range(len(plan)) if columns.kind[i] == Kind.COPY_OUT]
    into = [columns.reads[i][0] for i in range(len(plan)) if columns.kind[i] == Kind.COPY_IN]
    by_swap, by_recompute, other = (None, None, None) if plain is None else _saved(plan, plain, again, out)
    stall = simulate(plan, machine).stall_seconds[COMPUTE_STREAM] if out or into else 0.0
    size = plan.buffers.bytes
    return Techniques(
        machine.name,
        Recomputed(len(again), sum(costs(i).flops for i in again), sum(seconds(i) for i in again), by_recompute),
        Swapped(len(out), sum(size[b] for b in out), sum(size[b] for b in into), stall, by_swap),
        other, None if other is None else (by_swap or 0) + (by_recompute or 0) + other)


def recomputed(plan: Plan) -> list[int]:
    """The computations that repeat an earlier one."""
    columns = plan.instructions
    return [i for i, name in enumerate(columns.name) if columns.kind[i] == Kind.COMPUTE and AGAIN in name]


def swapped_bytes(plan: Plan) -> int:
    """Bytes of all copies between device and host, both ways."""
    columns = plan.instructions
    return sum(plan.buffers.bytes[columns.reads[i][0]] for i in range(len(plan))
               if columns.kind[i] in (Kind.COPY_OUT, Kind.COPY_IN))


def _saved(plan: Plan, plain: Plan, again: list[int], out: list[int]) -> tuple[int, int, int]:
    """Bytes live at the plain plan's peak and not here at the same instruction: by swapping, recomputation, others."""
    before, now = _live_at_peak(plain, plain), _live_at_peak(plan, plain)
    names = _value_names(plan)
    swapped = {names[b] for b in out}
    repeated = {names[b] for i in again for b in plan.instructions.writes[i]}
    by_swap = by_recompute = 0
    for name, nbytes in before.items():
        if name not in now and name in swapped:
            by_swap += nbytes
        elif name not in now and name in repeated:
            by_recompute += nbytes
    return by_swap, by_recompute, sum(before.values()) - sum(now.values()) - by_swap - by_recompute


def _live_at_peak(plan: Plan, plain: Plan) -> dict[str, int]:
    """Aligned bytes by value, live in `plan` at the instruction at which `plain` has its peak."""
    storages = device_storages(plan)
    names = _value_names(plan)
    instant = _same_instant(plan, plain)
    live: dict[str, int] = {}
    for s in storages.live_at(instant):
        name = names[member_at(plan, storages, s, instant)]
        live[name] = live.get(name, 0) + int(storages.bytes[s])
    return live


def _same_instant(plan: Plan, plain: Plan) -> int:
    """The first instruction of `plan` with the name of the plain plan's at its peak, or of the nearest one before."""
    peak = peak_instant(device_storages(plain), len(plain))
    place: dict[str, int] = {}
    for i, name in enumerate(plan.instructions.name):
        place.setdefault(name, i)
    return next((place[name] for name in reversed(plain.instructions.name[:peak + 1]) if name in place), -1)


def _value_names(plan: Plan) -> list[str]:
    """For each buffer the name of the value that it holds, whether made again or copied."""
    names = [_REPETITION.sub("", name) for name in plan.buffers.name]
    columns = plan.instructions
    for i in range(len(plan)):
        if columns.kind[i] in (Kind.COPY_OUT, Kind.COPY_IN):
            names[columns.writes[i][0]] = names[columns.reads[i][0]]
    return names


_REPETITION = re.compile(rf"{AGAIN}\d+")
