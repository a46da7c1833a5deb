"""What each memory technique of a plan does: what it saves against the plain plan, and what it costs in time."""
from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from ..base import format_bytes
from ..memory.machine import Machine
from .live import device_storages, member_at, peak_instant
from .plan import AGAIN, COMPUTE_STREAM, SLICE, Kind, Plan
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
class Sliced:
    """Values that exist in slices of the batch, and the instructions that make them; `slices` are those of a batch.

    `seconds` is what the instructions take, in the model, above the whole ones of the plain plan, and `saved_bytes` is
    as in Recomputed, of values of which only some slices are live; None when no plain plan was given.
    """

    slices: int
    tensors: int
    instructions: int
    seconds: float | None
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
    sliced: Sliced
    other_saved_bytes: int | None
    saved_bytes: int | None

    def json(self) -> dict[str, Any]:
        """The figures under their names, of types that the json module writes."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Labels and figures for people, of the techniques that are used."""
        rows, again, swap, cut = [], self.recomputed, self.swapped, self.sliced
        if cut.slices:
            above = "" if cut.seconds is None else f", {cut.seconds:.4f} s more"
            rows.append(("sliced", f"{cut.tensors} tensors in {cut.slices} slices, {cut.instructions} instructions"
                                   f"{above}{_saves(cut.saved_bytes)}"))
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
    by_swap, by_recompute, by_slice, other = (None,) * 4 if plain is None else _saved(plan, plain, again, out)
    stall = simulate(plan, machine).stall_seconds[COMPUTE_STREAM] if out or into else 0.0
    size = plan.buffers.bytes
    return Techniques(
        machine.name,
        Recomputed(len(again), sum(costs(i).flops for i in again), sum(seconds(i) for i in again), by_recompute),
        Swapped(len(out), sum(size[b] for b in out), sum(size[b] for b in into), stall, by_swap),
        _sliced(plan, plain, machine, by_slice),
        other, None if other is None else (by_swap or 0) + (by_recompute or 0) + (by_slice or 0) + other)


def sliced(plan: Plan) -> list[int]:
    """The computations of one slice of the batch, their repetitions included."""
    columns = plan.instructions
    return [i for i, name in enumerate(columns.name) if columns.kind[i] == Kind.COMPUTE and _SLICE.search(name)]


def _sliced(plan: Plan, plain: Plan | None, machine: Machine, saved_bytes: int | None) -> Sliced:
    names, cut = plan.instructions.name, sliced(plan)
    numbers = {found[1] for i in cut if (found := _SLICE.search(names[i]))}
    tensors = {_SLICE.sub("", plan.buffers.name[b]) for i in cut for b in plan.instructions.writes[i]
               if _SLICE.search(plan.buffers.name[b])}
    above = None
    if plain is not None:
        own, whole = instruction_seconds(plan, machine), instruction_seconds(plain, machine)
        once = [i for i in cut if AGAIN not in names[i]]
        replaced = {_SLICE.sub("", names[i]) for i in once}
        above = sum(own(i) for i in once) - sum(whole(i) for i, name in enumerate(plain.instructions.name)
                                                if name in replaced or any(r.startswith(f"{name}/") for r in replaced))
    return Sliced(len(numbers), len(tensors), len(cut), above, saved_bytes)


def recomputed(plan: Plan) -> list[int]:
    """The computations that repeat an earlier one."""
    columns = plan.instructions
    return [i for i, name in enumerate(columns.name) if columns.kind[i] == Kind.COMPUTE and AGAIN in name]


def swapped_bytes(plan: Plan) -> int:
    """Bytes of all copies between device and host, both ways."""
    columns = plan.instructions
    return sum(plan.buffers.bytes[columns.reads[i][0]] for i in range(len(plan))
               if columns.kind[i] in (Kind.COPY_OUT, Kind.COPY_IN))


def _saved(plan: Plan, plain: Plan, again: list[int], out: list[int]) -> tuple[int, int, int, int]:
    """Bytes live at the plain plan's peak and not here at the same instruction: by swapping, recomputation, slices,
    others."""
    before, now = _live_at_peak(plain, plain), _live_at_peak(plan, plain)
    names = _value_names(plan)
    swapped = {names[b] for b in out}
    repeated = {names[b] for i in again for b in plan.instructions.writes[i]}
    cut = {names[b] for i in sliced(plan) for b in plan.instructions.writes[i]}
    by_swap = by_recompute = by_slice = 0
    for name, nbytes in before.items():
        if name not in now and name in swapped:
            by_swap += nbytes
        elif name not in now and name in repeated:
            by_recompute += nbytes
        elif name in cut:
            by_slice += nbytes - now.get(name, 0)
    told = by_swap + by_recompute + by_slice
    return by_swap, by_recompute, by_slice, sum(before.values()) - sum(now.values()) - told


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
        place.setdefault(_SLICE.sub("", name), i)
    return next((place[name] for name in reversed(plain.instructions.name[:peak + 1]) if name in place), -1)


def _value_names(plan: Plan) -> list[str]:
    """For each buffer the name of the value that it holds or has a slice of, whether made again or copied."""
    names = [_SLICE.sub("", _JOINED.sub("", _REPETITION.sub("", name))) for name in plan.buffers.name]
    columns = plan.instructions
    for i in range(len(plan)):
        if columns.kind[i] in (Kind.COPY_OUT, Kind.COPY_IN):
            names[columns.writes[i][0]] = names[columns.reads[i][0]]
    return names


_REPETITION = re.compile(rf"{AGAIN}\d+")
_SLICE = re.compile(rf"{SLICE}(\d+)")
_JOINED = re.compile(rf"{SLICE}/\w+$")
