"""Comparing memory modes: training programs of one state planned twice, run over copies, and compared bit by bit."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import random
from .base import MXNetError, OutOfMemoryError
from .binding import Group, unread_inputs
from .bound import distinct
from .graph import Graph
from .inspection import Rehearsal
from .memory.layout import PersistentLayout
from .ops.control import LOSS_SCALE, set_key
from .passes.compilation import CONTROL, UNBOUNDED, Request, head_gradient_name
from .passes.pipeline import compile_program
from .plan.plan import Plan

_HEAD_SEED = 0
"""Seed of the head gradients that nobody has given."""


@dataclass(frozen=True)
class Comparison:
    """Two memory modes that agree in every bit: the programs that ran under both, what was compared by name, and the
    bytes of it."""

    memory: str
    other: str
    programs: tuple[str, ...]
    names: tuple[str, ...]
    bytes: int

    def __str__(self) -> str:
        return (f"memory={self.memory!r} and {self.other!r} agree in every bit: {len(self.names)} tensors, "
                f"{self.bytes} bytes, of {' and '.join(self.programs)}")


@dataclass(frozen=True)
class Trial:
    """What is to be run twice: requests by program, plans that are loaded already, and values of inputs and of kept
    tensors (by the names of their places) that replace the present ones. `required` inputs must be given."""

    group: Group
    graph: Graph
    requests: Mapping[str, Request]
    plans: Mapping[str, Plan]
    given: Mapping[str, np.ndarray]
    kept: Mapping[str, np.ndarray]
    required: frozenset[str]
    poison: bool


def check_modes(trial: Trial, other: str) -> Comparison:
    """Run each program under its own memory mode and under `other`, with all tensors at home on the device; MXNetError
    names the first difference.

    Programs that do not fit the budget are left out; OutOfMemoryError when none does.
    """
    memory = next(iter(trial.requests.values())).memory
    programs: list[str] = []
    names: list[str] = []
    nbytes = 0
    refused: OutOfMemoryError | None = None
    for name, request in trial.requests.items():
        try:
            ours = trial.plans.get(name) or compile_program(trial.graph, request, copy.deepcopy(trial.group.layout))
        except OutOfMemoryError as error:
            refused = error
            continue
        if name == "step" and _needs_head_gradients(trial.graph, ours):
            continue
        theirs = compile_program(trial.graph, replace(request, memory=other, slices=1, budget_bytes=None,
                                                      host_budget_bytes=UNBOUNDED), PersistentLayout())
        inputs = _inputs(trial, ours, request)
        left, right = (dict(_results(trial, plan, inputs)) for plan in (ours, theirs))
        for key, value in left.items():
            what = f"{key[0]} of `{name}`"
            _compare(what, memory, value, other, right[key])
            names.append(what)
            nbytes += value.nbytes
        programs.append(name)
    if refused is not None and not programs:
        raise refused
    return Comparison(memory, other, tuple(programs), tuple(names), nbytes)


def _needs_head_gradients(graph: Graph, plan: Plan) -> bool:
    return any(head_gradient_name(k) in plan.inputs for k in range(len(graph.outputs)))


def _inputs(trial: Trial, plan: Plan, request: Request) -> dict[str, np.ndarray]:
    """The value of each input of a plan: as given; random for head gradients that were not."""
    columns, unread = plan.buffers, unread_inputs(plan)
    draw = np.random.default_rng(_HEAD_SEED)
    heads = {head_gradient_name(k) for k in range(len(trial.graph.outputs))}
    values = {}
    for name, buffer in plan.inputs.items():
        shape, dtype = columns.shape[buffer], columns.dtype[buffer]
        if name == CONTROL:
            values[name] = _control(trial.group, plan, request, shape)
        elif name in trial.given and trial.given[name].shape == shape:
            values[name] = np.asarray(trial.given[name])
        elif name in heads:
            values[name] = draw.uniform(-1, 1, shape).astype(dtype)
        elif name in trial.required and name not in unread:
            raise MXNetError(f"input {name} was not given, and no run before has it; pass {name}= to check_modes")
    return values


def _control(group: Group, plan: Plan, request: Request, shape: tuple[int, ...]) -> np.ndarray:
    """The scalars of the next step; the optimizer counts it on a copy of itself."""
    words = np.zeros(shape, np.float32)
    updater: Any = request.updater
    if plan.program == "step":
        rates = copy.deepcopy(updater).control(plan.parameters)
        words[:rates.size] = rates
    elif request.scales_loss:
        words[LOSS_SCALE] = updater.loss_scale
    set_key(words, random.current_seed(), group.random_step)
    return words


Key = tuple[str, int]
"""What a result is, for people, and its number among the outputs, -1 for others."""


def _results(trial: Trial, plan: Plan, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[Key, np.ndarray]]:
    """Run all of a plan over a copy of the state as users do: head gradients are given when forward has ended, and what
    is read then is read. Outputs and persistent tensors."""
    rehearsal = Rehearsal(trial.group, plan, poison=trial.poison, whole=True)
    try:
        at = {tensor.name: tensor.last for tensor in plan.persistent}
        for name, value in trial.kept.items():
            if name in at:
                rehearsal.set(at[name], value)
        held: dict[Key, int] = {(f"{plan.buffers.buffer_class[b]} {name}", -1): b for name, b in at.items()}
        shown = {(f"output {name}", k): plan.outputs[k].buffer
                 for k, name in enumerate(distinct(trial.graph.output_names))}
        shown.update({key: b for key, b in held.items() if key[0].startswith("auxiliary")})
        rehearsal.feed({name: value for name, value in inputs.items() if name not in plan.late_inputs})
        for part in sorted(plan.ranges, key=plan.ranges.__getitem__):
            for name in plan.late_inputs if part == "backward" else ():
                rehearsal.program.feed(name, inputs[name])
            rehearsal.program.run(part)
            behind = " after backward" if part == "backward" else ""
            yield from (((f"{what}{behind}", k), np.array(rehearsal.value(b))) for (what, k), b in shown.items())
        yield from ((key, np.array(rehearsal.value(b))) for key, b in held.items() if key not in shown)
    finally:
        rehearsal.close()


def _compare(what: str, memory: str, ours: np.ndarray, other: str, theirs: np.ndarray) -> None:
    """MXNetError with the first element whose bits differ."""
    bits = [value.reshape(-1).view(np.dtype(f"u{value.dtype.itemsize}")) for value in (ours, theirs)]
    different = np.flatnonzero(bits[0] != bits[1])
    if not different.size:
        return
    position = tuple(int(k) for k in np.unravel_index(int(different[0]), ours.shape))
    raise MXNetError(f"{what} differs at {position}: {ours[position]} with memory={memory!r}, {theirs[position]} "
                     f"with memory={other!r}, and {different.size} of its {ours.size} elements differ in all; an "
                     f"operator before it computes or declares something wrong, or the plan is wrong")
