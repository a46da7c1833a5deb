"""What a plan costs in bytes: naive, lower bound and planned, and which classes of tensors are live at the peak."""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import align, format_bytes
from .plan import AGAIN, CLASSES, Plan


@dataclass(frozen=True)
class Report:
    """A plan's figures. All byte counts but `host_bytes` are of device memory.

    `naive_bytes` gives every tensor bytes of its own, `lower_bound_bytes` is the planner's peak of live bytes, and
    `planned_bytes`, the sum of `persistent_bytes` and `transient_bytes`, is what the arenas take. `host_bytes` are
    arenas in host memory and swap files. `by_class` has the aligned bytes live at the peak, at `peak_instruction`
    (number and name; -1 is the start of the program); its sum is the peak of live bytes. Persistent tensors are live
    throughout. `step_seconds` is the modelled time of a run, `plain_step_seconds` that of the same program without
    recomputation; `recomputed` counts the instructions that run again and `recompute_flops` their operations.
    `verify_seconds` is None when the plan was not verified; `ratio` is planned over lower bound.
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

    @property
    def peak_live_bytes(self) -> int:
        """Aligned bytes live at the peak."""
        return sum(self.by_class.values())

    def json(self) -> dict[str, Any]:
        """The figures under their names, of types that the json module writes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "by_class": dict(self.by_class), "peak_instruction": list(self.peak_instruction),
                "pass_seconds": dict(self.pass_seconds)}

    def text(self) -> str:
        """The figures as a table for people."""
        index, name = self.peak_instruction
        verified = "not verified" if self.verify_seconds is None else f"{self.verify_seconds:.3f} s"
        rows = [("nodes", str(self.nodes)), ("naive", format_bytes(self.naive_bytes)),
                ("lower bound", format_bytes(self.lower_bound_bytes)),
                ("planned", f"{format_bytes(self.planned_bytes)} ({self.ratio:.3f} of the lower bound)"),
                ("  persistent", format_bytes(self.persistent_bytes)),
                ("  transient", format_bytes(self.transient_bytes)), ("host", format_bytes(self.host_bytes)),
                ("peak", f"{format_bytes(self.peak_live_bytes)} live at {index} {name}")]
        rows += [(f"  {kind}", format_bytes(nbytes)) for kind, nbytes in self.by_class.items()]
        if self.recomputed:
            rows += [("recomputed", f"{self.recomputed} instructions, {self.recompute_flops / 1e9:.2f} GFLOP"),
                     ("modelled step", f"{self.step_seconds:.4f} s, plain {self.plain_step_seconds:.4f} s")]
        rows += [("compile", f"{self.compile_seconds:.3f} s"), ("verify", verified)]
        rows += [(f"  {stage}", f"{seconds:.3f} s") for stage, seconds in self.pass_seconds.items()]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def report(plan: Plan, verify_seconds: float | None = None) -> Report:
    """The report of a plan; `verify_seconds` defaults to what the plan's own figures say of the verify pass."""
    figures = plan.figures
    if verify_seconds is None:
        verify_seconds = figures.pass_seconds.get("verify")
    peak, by_class = _peak(plan)
    persistent = sum(plan.arenas[arena].bytes for arena in _persistent_arenas(plan))
    planned = plan.planned_bytes
    recomputed = sum(1 for text in plan.instructions.name if AGAIN in text)
    ratio = planned / figures.lower_bound_bytes if figures.lower_bound_bytes else 1.0
    name = plan.instructions.name[peak] if peak >= 0 else "start of the program"
    return Report(figures.nodes, figures.naive_bytes, figures.lower_bound_bytes, planned, persistent,
                  planned - persistent, plan.arena_bytes("host") + plan.arena_bytes("file"), by_class, (peak, name),
                  figures.compile_seconds, verify_seconds, dict(figures.pass_seconds), ratio,
                  figures.step_seconds, figures.plain_step_seconds, figures.recompute_flops, recomputed)


def _persistent_arenas(plan: Plan) -> set[int]:
    """Device arenas in which persistent tensors live."""
    arenas = {plan.buffers.arena[tensor.first] for tensor in plan.persistent}
    return {arena for arena in arenas if plan.arenas[arena].space == "device"}


def _peak(plan: Plan) -> tuple[int, dict[str, int]]:
    """The first instruction at which most device bytes are live, and those bytes by class."""
    root, born, dies = storage_lifetimes(plan)
    device = np.array([arena.space == "device" for arena in plan.arenas], bool)
    mine = root == np.arange(len(root))
    if len(root):
        mine &= device[np.array(plan.buffers.arena, np.int64)]
    size = np.array([align(n) for n in plan.buffers.bytes], np.int64)
    change = np.zeros(len(plan) + 2, np.int64)  # at index t + 1: instants are -1 to the last instruction
    np.add.at(change, born[mine] + 1, size[mine])
    np.subtract.at(change, np.minimum(dies[mine], len(plan)) + 1, size[mine])
    peak = int(np.argmax(np.cumsum(change)[:len(plan) + 1])) - 1
    live = mine & (born <= peak) & (dies > peak)
    by_class = dict.fromkeys(CLASSES, 0)
    for b in np.flatnonzero(live).tolist():
        by_class[plan.buffers.buffer_class[b]] += int(size[b])
    return peak, {kind: nbytes for kind, nbytes in by_class.items() if nbytes}


def storage_lifetimes(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each buffer the first buffer of its storage; and for such a first buffer when the storage is born and dies.

    A storage is a set of buffers that share bytes, as views or in place; the two ends of a persistent tensor
    belong together and live throughout: born at -1, dying at the end. Values of other buffers mean nothing.
    """
    root = _roots(plan)
    born, dies = np.array(plan.buffers.born, np.int64), np.array(plan.buffers.dies, np.int64)
    first, last = born.copy(), dies.copy()
    np.minimum.at(first, root, born)
    np.maximum.at(last, root, dies)
    held = root[[tensor.first for tensor in plan.persistent]]
    first[held], last[held] = -1, len(plan)
    return root, first, last


def _roots(plan: Plan) -> NDArray[np.int64]:
    """The first buffer of each buffer's storage, by union of everything that shares."""
    parent = list(range(len(plan.buffers)))

    def find(b: int) -> int:
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        return b

    for b, shares in enumerate(plan.buffers.shares):
        if shares >= 0:
            parent[find(b)] = find(shares)
    for tensor in plan.persistent:
        parent[find(tensor.last)] = find(tensor.first)
    return np.array([find(b) for b in range(len(parent))], np.int64)
