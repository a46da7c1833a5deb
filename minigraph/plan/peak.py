"""Why a plan takes what it takes: the tensors that are live at its peak, whose they are, and what would mend it."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base import format_bytes
from .live import Storages, device_storages, member_at, peak_instant
from .plan import PERSISTENT_CLASSES, Kind, Plan

COUNT = 10
"""Tensors that a report lists."""


@dataclass(frozen=True)
class PeakTensor:
    """A tensor that is live at the peak, with the aligned bytes that it holds.

    `layer` is the node of the network that makes it or, for a parameter, reads it; of a gradient, the node that it
    belongs to. `made_by` and `last_read_by` are instructions, as number and name: -1 is the start of the program, the
    number of instructions its end. Of bytes that several values use one after the other in place, the name is that of
    the value at the peak, and the instructions are the first and the last of all of them.
    """

    name: str
    layer: str
    buffer_class: str
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    made_by: tuple[int, str]
    last_read_by: tuple[int, str]

    def json(self) -> dict[str, Any]:
        """The fields under their names, of types that the json module writes."""
        return {**asdict(self), "shape": list(self.shape), "made_by": list(self.made_by),
                "last_read_by": list(self.last_read_by)}

    def text(self) -> str:
        """One line for people."""
        shape = "x".join(map(str, self.shape)) or "scalar"
        (made, maker), (read, reader) = self.made_by, self.last_read_by
        return (f"{format_bytes(self.bytes)} {self.name} ({self.buffer_class} of {self.layer}, {self.dtype} {shape}), "
                f"made at {made} {maker}, last needed at {read} {reader}")


def peak_tensors(plan: Plan, storages: Storages | None = None, instant: int | None = None,
                 count: int = COUNT) -> list[PeakTensor]:
    """The largest tensors live at an instant, by default the peak of live bytes; equal ones in the order of birth."""
    storages = device_storages(plan) if storages is None else storages
    at = peak_instant(storages, len(plan)) if instant is None else instant
    layers = value_layers(plan)
    live = sorted(storages.live_at(at), key=lambda s: (-int(storages.bytes[s]), int(storages.born[s]), s))
    return [_tensor(plan, storages, s, at, layers) for s in live[:count]]


def _tensor(plan: Plan, storages: Storages, s: int, instant: int, layers: Sequence[str]) -> PeakTensor:
    b, born = member_at(plan, storages, s, instant), int(storages.born[s])
    last = len(plan) if storages.kept[s] else int(storages.dies[s]) - 1
    return PeakTensor(plan.buffers.name[b], layers[b], storages.classes[s], int(storages.bytes[s]),
                      plan.buffers.shape[b], plan.buffers.dtype[b].name, (born, instruction_name(plan, born)),
                      (last, instruction_name(plan, last)))


def instruction_name(plan: Plan, index: int) -> str:
    """The name of an instruction, and of the program's two ends."""
    if index < 0:
        return "start of the program"
    return plan.instructions.name[index] if index < len(plan) else "end of the program"


def value_layers(plan: Plan) -> list[str]:
    """For each buffer the node of the network that it belongs to.

    The instructions that one node came to are named after it, with a slash before what they do: `conv0`,
    `bn0/batchnorm_train`, `conv0/convolution_backward_data`; one that does what several nodes did, joined by `+`,
    belongs to the first. Those that sum gradients of a value or update a parameter are named after that value, and
    belong to its layer.
    """
    columns, buffers = plan.instructions, plan.buffers
    layers = [""] * len(buffers)
    by_value: dict[str, str] = {}
    for i in range(len(plan)):
        if columns.kind[i] not in (Kind.COMPUTE, Kind.FILL):
            for source, target in zip(columns.reads[i], columns.writes[i], strict=False):
                layers[target] = layers[source]  # a copy belongs where its source does
            continue
        scope = columns.name[i].partition("/")[0].partition("+")[0]
        layer = by_value.get(scope, scope)
        for b in (*columns.writes[i], *([columns.workspace[i]] if columns.workspace[i] >= 0 else [])):
            layers[b] = layer
            by_value.setdefault(buffers.name[b], layer)
        for b in columns.reads[i]:
            layers[b] = layers[b] or layer
            by_value.setdefault(buffers.name[b], layer)
    for b, shares in enumerate(buffers.shares):
        if not layers[b]:
            layers[b] = layers[shares] if shares >= 0 and layers[shares] else buffers.name[b]
    return layers


def advice(by_class: dict[str, int], memory: str) -> str:
    """What takes most of the peak, and what to change about it, in one sentence; "" when nothing is live."""
    total = sum(by_class.values())
    if not total:
        return ""
    shares = {group: sum(by_class.get(kind, 0) for kind in kinds) for group, kinds in _GROUPS.items()}
    group = max(shares, key=shares.__getitem__)
    remedy = _REMEDIES[group]
    if group == "activations" and memory not in ("plain", "inplace", "naive", "mirror"):
        remedy = "take a smaller batch, or allow swapping by host_budget or disk"
    return f"{group} take {100 * shares[group] / total:.0f} % of the peak: {remedy}"


_GROUPS = {"parameters, states and gradients": PERSISTENT_CLASSES, "activations": ("activation",),
           "gradients of activations": ("backward",), "workspaces": ("workspace",),
           "inputs and outputs": ("input", "output")}
_REMEDIES = {
    "parameters, states and gradients": "no batch size changes them; take an optimizer with fewer states, the "
                                        "program `step`, which keeps no gradients, or give a budget and a "
                                        "host_budget (or disk), so that memory='auto' keeps them outside the device",
    "activations": "give a budget, so that memory='auto' recomputes or swaps them, or take a smaller batch",
    "gradients of activations": "take a smaller batch; no policy drops them",
    "workspaces": "take a smaller batch, which needs less scratch at a time",
    "inputs and outputs": "take a smaller batch"}
