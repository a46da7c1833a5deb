"""What a plan costs in bytes: naive, lower bound and planned, and which classes of tensors are live at the peak."""
from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..base import format_bytes
from ..memory.machine import Machine, get_machine
from .live import Storages, device_storages, peak_instant
from .peak import PeakTensor, advice, instruction_name, peak_tensors
from .plan import CLASSES, Plan
from .techniques import Techniques, recomputed, sliced, swapped_bytes, techniques


@dataclass(frozen=True)
class Mapped:
    """What lies in mapped arenas: buffers, the bytes of their addresses, and the pages and extents of the transient
    arena that those show. They take no memory beside it."""

    buffers: int
    bytes: int
    page_bytes: int
    extents: int

    def text(self) -> str:
        """One line for people."""
        return (f"{self.buffers} buffers at {format_bytes(self.bytes)} of further addresses, which show {self.extents} "
                f"extents of it in pages of {format_bytes(self.page_bytes)}")


@dataclass(frozen=True)
class Report:
    """A plan's figures. All byte counts but `host_bytes` are of device memory.

    `naive_bytes` gives every tensor bytes of its own, `lower_bound_bytes` is the planner's peak of live bytes, and
    `planned_bytes`, the sum of `persistent_bytes` and `transient_bytes`, is what the arenas take. `host_bytes` are
    arenas in host memory and swap files. `by_class` has the aligned bytes live at the peak, at `peak_instruction`
    (number and name; -1 is the start of the program); its sum is the peak of live bytes. Persistent tensors are live
    throughout. `step_seconds` is the modelled time of a run, `plain_step_seconds` that of the same program without
    recomputation; `recomputed` counts the instructions that run again and `recompute_flops` their operations;
    `swapped_bytes` are those of all copies, both ways. `verify_seconds` is None when the plan was not verified; `ratio`
    is planned over lower bound. `peak_tensors` are the ten largest live at the peak, `advice` says what takes most of
    it and what to change. `techniques` has each technique's savings and costs, None for a plan that uses none.
    `budget_bytes` is the budget asked for, if any, and `least_budget_bytes` the least one that would do, when known.
    `unplanned_bytes` are what the device may take beside the arenas, which no budget covers; None when not known.
    `mapped` tells of the mapped arenas, None for a plan that has none.
    """

    nodes: int
    naive_bytes: int
    lower_bound_bytes: int
    planned_bytes: int
    persistent_bytes: int
    transient_bytes: int
    host_bytes: int
    by_class: dict[str, int]
    peak_instruction: tuple[int, str]
    compile_seconds: float
    verify_seconds: float | None
    pass_seconds: dict[str, float]
    ratio: float
    step_seconds: float
    plain_step_seconds: float
    recompute_flops: float
    recomputed: int
    swapped_bytes: int
    peak_tensors: tuple[PeakTensor, ...]
    advice: str
    techniques: Techniques | None
    feasible: bool = True
    budget_bytes: int | None = None
    least_budget_bytes: int | None = None
    unplanned_bytes: int | None = None
    mapped: Mapped | None = None

    @property
    def peak_live_bytes(self) -> int:
        """Aligned bytes live at the peak."""
        return sum(self.by_class.values())

    def json(self) -> dict[str, Any]:
        """The figures under their names, of types that the json module writes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "by_class": dict(self.by_class), "peak_instruction": list(self.peak_instruction),
                "pass_seconds": dict(self.pass_seconds), "peak_tensors": [t.json() for t in self.peak_tensors],
                "techniques": None if self.techniques is None else self.techniques.json(),
                "mapped": None if self.mapped is None else asdict(self.mapped)}

    def text(self) -> str:
        """The figures as a table for people, and below it what is live at the peak."""
        rows = [*self._size_rows(), *self._time_rows()]
        width = max(len(label) for label, _ in rows)
        lines = [f"{label:<{width}}  {value}" for label, value in rows]
        if self.peak_tensors:
            lines += ["", f"largest at the peak, {self.peak_instruction[0]} {self.peak_instruction[1]}:"]
            lines += [f"  {tensor.text()}" for tensor in self.peak_tensors]
        return "\n".join([*lines, *([self.advice] if self.advice else [])])

    def _size_rows(self) -> list[tuple[str, str]]:
        index, name = self.peak_instruction
        rows = [("nodes", str(self.nodes)), ("naive", format_bytes(self.naive_bytes)),
                ("lower bound", format_bytes(self.lower_bound_bytes)),
                ("planned", f"{format_bytes(self.planned_bytes)} ({self.ratio:.3f} of the lower bound)"),
                ("  persistent", format_bytes(self.persistent_bytes)),
                ("  transient", format_bytes(self.transient_bytes))]
        if self.mapped is not None:
            rows.append(("    mapped", self.mapped.text()))
        rows.append(("host", format_bytes(self.host_bytes)))
        if self.unplanned_bytes is not None:
            rows.append(("not planned", f"{format_bytes(self.unplanned_bytes)} at most, for threads of kernels"))
        if self.budget_bytes is not None:
            least = "" if self.least_budget_bytes is None else f", {format_bytes(self.least_budget_bytes)} would do"
            rows.append(("budget", format_bytes(self.budget_bytes) + least))
        rows.append(("peak", f"{format_bytes(self.peak_live_bytes)} live at {index} {name}"))
        return rows + [(f"  {kind}", format_bytes(nbytes)) for kind, nbytes in self.by_class.items()]

    def _time_rows(self) -> list[tuple[str, str]]:
        verified = "not verified" if self.verify_seconds is None else f"{self.verify_seconds:.3f} s"
        rows = []
        if self.techniques is not None:
            rows += [*self.techniques.rows(),
                     ("modelled step", f"{self.step_seconds:.4f} s, plain {self.plain_step_seconds:.4f} s")]
        rows += [("compile", f"{self.compile_seconds:.3f} s"), ("verify", verified)]
        return rows + [(f"  {stage}", f"{seconds:.3f} s") for stage, seconds in self.pass_seconds.items()]


def report(plan: Plan, verify_seconds: float | None = None, *, plain: Plan | None = None,
           machine: str | Machine = "cpu", budget_bytes: int | None = None,
           least_budget_bytes: int | None = None, unplanned_bytes: int | None = None) -> Report:
    """The report of a plan; `verify_seconds` defaults to what the plan's own figures say of the verify pass.

    `plain` is the plain plan of the same program, against which savings are counted, and `machine` the one whose times
    the techniques are given in. The budget, the least one and what is not planned are written down as they are given.
    """
    figures = plan.figures
    if verify_seconds is None:
        verify_seconds = figures.pass_seconds.get("verify")
    storages = device_storages(plan)
    peak = peak_instant(storages, len(plan))
    by_class = _by_class(storages, peak)
    persistent = sum(plan.arenas[arena].bytes for arena in _persistent_arenas(plan))
    planned = plan.planned_bytes
    again, swapped = len(recomputed(plan)), swapped_bytes(plan)
    used = techniques(plan, _machine(machine), plain) if again or swapped or sliced(plan) else None
    ratio = planned / figures.lower_bound_bytes if figures.lower_bound_bytes else 1.0
    return Report(figures.nodes, figures.naive_bytes, figures.lower_bound_bytes, planned, persistent,
                  planned - persistent, plan.arena_bytes("host") + plan.arena_bytes("file"), by_class,
                  (peak, instruction_name(plan, peak)), figures.compile_seconds, verify_seconds,
                  dict(figures.pass_seconds), ratio, figures.step_seconds, figures.plain_step_seconds,
                  figures.recompute_flops, again, swapped, tuple(peak_tensors(plan, storages, peak)),
                  advice(by_class, plan.memory), used, budget_bytes=budget_bytes,
                  least_budget_bytes=least_budget_bytes, unplanned_bytes=unplanned_bytes, mapped=_mapped(plan))


def _machine(machine: str | Machine) -> Machine:
    return get_machine(machine) if isinstance(machine, str) else machine


def _mapped(plan: Plan) -> Mapped | None:
    arenas = {k: arena for k, arena in enumerate(plan.arenas) if arena.space == "mapped"}
    if not arenas:
        return None
    return Mapped(sum(arena in arenas for arena in plan.buffers.arena), plan.arena_bytes("mapped"), plan.page_bytes,
                  sum(len(arena.extents) for arena in arenas.values()))


def _persistent_arenas(plan: Plan) -> set[int]:
    """Device arenas in which persistent tensors live."""
    arenas = {plan.buffers.arena[tensor.first] for tensor in plan.persistent}
    return {arena for arena in arenas if plan.arenas[arena].space == "device"}


def _by_class(storages: Storages, instant: int) -> dict[str, int]:
    """Live bytes at an instant by class, in the order of CLASSES; classes without any are left out."""
    by_class = dict.fromkeys(CLASSES, 0)
    for s in storages.live_at(instant):
        by_class[storages.classes[s]] += int(storages.bytes[s])
    return {kind: nbytes for kind, nbytes in by_class.items() if nbytes}
