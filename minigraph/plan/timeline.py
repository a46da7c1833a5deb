"""A memory timeline as one HTML page: live device bytes over instructions or simulated time, by class, with the streams
below. The page holds everything that it shows and asks nothing of the network."""
from __future__ import annotations

import html as escaping
import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from ..base import parse_bytes
from ..memory.machine import Machine, get_machine
from .live import Storages, device_storages, live_bytes, peak_instant
from .peak import value_layers
from .plan import AGAIN, CLASSES, PERSISTENT_CLASSES, Kind, Plan
from .simulate import simulate

_RUNS_AGAIN = 6
"""The page's kind of a computation that repeats an earlier one; the others are those of Kind."""


def html(plan: Plan, machine: str | Machine = "cpu", budget: int | str | None = None, title: str | None = None) -> str:
    """The page for a plan, as text: simulated on `machine`, with a line at `budget` (bytes, or "4GiB").

    MXNetError for an unknown machine, ValueError for a budget that is no byte count.
    """
    model = get_machine(machine) if isinstance(machine, str) else machine
    name = title or f"Memory of `{plan.program}`, {plan.memory}"
    data = _data(plan, model, None if budget is None else parse_bytes(budget))
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    parts = {"title": escaping.escape(name), "data": text}
    page = resources.files(__package__).joinpath("timeline.html").read_text(encoding="utf-8")
    return re.sub(r"\$(title|data)\b", lambda match: parts[match[1]], page)


def _data(plan: Plan, machine: Machine, budget: int | None) -> dict[str, Any]:
    storages = device_storages(plan)
    live = live_bytes(storages, len(plan))
    peak = peak_instant(storages, len(plan))
    simulation = simulate(plan, machine)
    shapes, layers, ops, code = _Interned(), _Interned(), _Interned(), plan.instructions
    return {
        "machine": machine.name, "seconds": simulation.seconds, "classes": CLASSES,
        "persistent": PERSISTENT_CLASSES, "streams": plan.streams,
        "planned": plan.planned_bytes, "budget": budget, "host": plan.arena_bytes("host") + plan.arena_bytes("file"),
        "mapped": plan.arena_bytes("mapped"),
        "peak": peak, "peak_bytes": int(live[peak + 1]),
        "instructions": {"name": code.name, "op": ops.all(map(_does, code.kind, code.op)), "kind": _kinds(plan),
                         "stream": list(code.stream),
                         "start": _microseconds(simulation.start), "end": _microseconds(simulation.end)},
        "storages": _storages(storages),
        "buffers": {"name": plan.buffers.name, "born": list(plan.buffers.born),
                    "shape": shapes.all(map(_shape, plan.buffers.dtype, plan.buffers.shape)),
                    "layer": layers.all(value_layers(plan))},
        "shapes": shapes.texts, "layers": layers.texts, "ops": ops.texts}


class _Interned:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def all(self, texts: Iterable[str]) -> list[int]:
        """The numbers of texts."""
        return [self._number(text) for text in texts]

    def _number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


def _does(kind: int, op: str) -> str:
    """The op of a computation, and what any other instruction does."""
    return op if kind == Kind.COMPUTE else Kind(kind).name.lower().replace("_", "-")


def _kinds(plan: Plan) -> list[int]:
    return [_RUNS_AGAIN if kind == Kind.COMPUTE and AGAIN in name else kind
            for kind, name in zip(plan.instructions.kind, plan.instructions.name, strict=True)]


def _microseconds(seconds: Any) -> list[float]:
    return [round(value * 1e6, 3) for value in seconds.tolist()]


def _storages(storages: Storages) -> dict[str, list]:
    return {"bytes": storages.bytes.tolist(), "born": storages.born.tolist(), "dies": storages.dies.tolist(),
            "class": [CLASSES.index(kind) for kind in storages.classes], "members": storages.members,
            "kept": [int(kept) for kept in storages.kept]}


def _shape(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{dtype.name} {'x'.join(map(str, shape)) or 'scalar'}"
