"""Looking inside a run: a plan run one instruction at a time over memory of its own, where NaN and infinity come from,
and graphs that show what lies between their ends.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .base import Entry, stored_shape
from .binding import Group, persistent_places
from .graph import FORWARD, Graph
from .memory.layout import HOME
from .ops.layout import logical, stored
from .ops.registry import get_op
from .passes.compilation import CONTROL
from .plan.plan import Kind, Plan


def stepwise(plan: Plan) -> Plan:
    """The plan with one range for each instruction, named by its number."""
    return replace(plan, ranges={str(i): (i, i + 1) for i in range(len(plan))})


class Rehearsal:
    """A plan over a copy of a group's persistent state: whatever runs here, the group sees none of it.

    Its ranges are single instructions, named by their numbers; those of the plan itself with `whole`.
    """

    def __init__(self, group: Group, plan: Plan, poison: bool = False, whole: bool = False) -> None:
        self.plan = plan
        self._memory = group.device.memory()
        size = {arena.name: arena.bytes for arena in plan.arenas}
        for arena in plan.arenas:
            if arena.name == HOME:
                self._memory.reserve_space(HOME, arena.space, arena.bytes)
        self._memory.reserve(size["persistent"], size["transient"], plan.page_bytes)
        for name, place in persistent_places(plan).items():
            value = group.read(name) if name in group.layout.places else np.zeros(place.shape, place.dtype)
            self._memory.write(place.arena, place.offset, value)
        self.program = group.device.load(plan if whole else stepwise(plan), self._memory, poison=poison)

    def feed(self, given: Mapping[str, np.ndarray]) -> None:
        """Give all inputs of the plan their values: zero where none is given, and NaN for head gradients, which come
        later."""
        columns = self.plan.buffers
        for name, buffer in self.plan.inputs.items():
            value = given.get(name)
            if value is None:
                missing = np.nan if name in self.plan.late_inputs and columns.dtype[buffer].kind == "f" else 0
                value = np.full(columns.shape[buffer], missing, columns.dtype[buffer])
            self.program.feed(name, value)

    def value(self, buffer: int) -> np.ndarray:
        """What a buffer holds, perhaps as a live view, in logical shape and order."""
        columns = self.plan.buffers
        shape, layout = columns.shape[buffer], columns.layout[buffer]
        held = self._memory.read(self.plan.arenas[columns.arena[buffer]].name, columns.offset[buffer],
                                 stored_shape(shape, layout), columns.dtype[buffer])
        return logical(held, shape, layout)

    def set(self, buffer: int, value: np.ndarray) -> None:
        """Replace what a buffer holds."""
        columns = self.plan.buffers
        self._memory.write(self.plan.arenas[columns.arena[buffer]].name, columns.offset[buffer],
                           stored(np.ascontiguousarray(value, columns.dtype[buffer]), columns.layout[buffer]))

    def close(self) -> None:
        """Give the copy's memory back."""
        self._memory.close()


# -- where NaN and infinity come from ------------------------------------------------------------------------
@dataclass(frozen=True)
class NonFinite:
    """The first value that is NaN or infinite: `value` at `position` of `output`, made by instruction number
    `instruction`, which runs `op` for `node`. `inputs` are arguments and states that it read and that held such
    values before the run: what it made of them is then not its own doing. What only moves values makes none. A node
    `a+b` does what nodes a and b do; the option `fuse=False` keeps them apart.
    """

    instruction: int
    op: str
    node: str
    output: str
    position: tuple[int, ...]
    value: float
    inputs: tuple[str, ...]

    def __str__(self) -> str:
        begin = f"instruction {self.instruction} ({self.op} {self.node}) made {self.value}"
        source = f"; it read {', '.join(self.inputs)}, not finite before the run" if self.inputs else ""
        return f"{begin} at {self.position} of {self.output}{source}"


def find_nonfinite(group: Group, plan: Plan, given: Mapping[str, np.ndarray], count: int) -> NonFinite | None:
    """Run the first `count` instructions on a copy of the state; the first that makes NaN or infinity, or None."""
    rehearsal = Rehearsal(group, plan)
    try:
        rehearsal.feed(given)
        on_device = {b for b, arena in enumerate(plan.buffers.arena) if plan.arenas[arena].on_device}
        at_start = on_device.intersection(_at_start(plan))
        before = {b: plan.buffers.name[b] for b in at_start if _first_nonfinite(rehearsal.value(b)) is not None}
        for i in range(count):
            rehearsal.program.run(str(i))
            moved = _moved(plan, i, before)
            for buffer in filter(on_device.__contains__, plan.instructions.writes[i]):
                position = _first_nonfinite(rehearsal.value(buffer))
                if position is not None and moved is not None:
                    before[buffer] = moved
                elif position is not None:
                    return _describe(plan, i, buffer, position, float(rehearsal.value(buffer)[position]), before)
        return None
    finally:
        rehearsal.close()


def _at_start(plan: Plan) -> Iterable[int]:
    """Buffers that hold a value before the program starts; the control buffer's words are no numbers."""
    control = plan.inputs.get(CONTROL, -1)
    return (b for b, born in enumerate(plan.buffers.born) if born < 0 and b != control)


def _first_nonfinite(value: np.ndarray) -> tuple[int, ...] | None:
    if value.dtype.kind != "f":
        return None
    finite = np.isfinite(value)
    return None if finite.all() else tuple(int(k) for k in np.unravel_index(int(np.argmin(finite)), value.shape))


def _moved(plan: Plan, i: int, before: Mapping[int, str]) -> str | None:
    """The name of the value that an instruction only moves, if it held NaN or infinity before the run."""
    code = plan.instructions
    if code.kind[i] != Kind.COMPUTE or not get_op(code.op[i]).moves:
        return None
    return before.get(code.reads[i][0])


def _describe(plan: Plan, i: int, buffer: int, position: tuple[int, ...], value: float,
              before: Mapping[int, str]) -> NonFinite:
    code, names = plan.instructions, plan.buffers.name
    read = [b for k, b in enumerate(code.reads[i]) if k not in code.unread[i]]
    op = code.op[i] if code.kind[i] == Kind.COMPUTE else Kind(code.kind[i]).name
    return NonFinite(i, op, code.name[i], names[buffer], position, value,
                     tuple(before[b] for b in read if b in before))


# -- values between the ends ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sight:
    """One value that an observer is told: under `name`, from output number `output` or, if that is None, from
    `variable`."""

    name: str
    output: int | None
    variable: str = ""


def with_internals(graph: Graph, inputs: bool) -> tuple[Graph, list[Sight]]:
    """A copy of a symbol's graph with every visible value of its operators as a further output; what these are.

    With `inputs`, each operator's inputs come before its outputs, under `<node>_<input>`. The further outputs lie
    behind BlockGrad, so they change no result and ask for no head gradient.
    """
    result = _copied(graph)
    sights: list[Sight] = []
    shown: dict[Entry, int] = {}

    def sight(name: str, entry: Entry) -> Sight:
        node = graph.node_of[entry]
        if graph.op[node] is None:
            return Sight(name, None, graph.name[node])
        if entry not in shown:
            shown[entry] = _show(result, entry, f"internal {len(shown)}")
        return Sight(name, shown[entry])

    for node, op in enumerate(graph.op):
        if op is None:
            continue
        params = graph.params[node]
        if inputs:
            names = op.inputs(params)
            sights += [sight(f"{graph.name[node]}_{name}", entry)
                       for name, entry in zip(names, graph.inputs[node], strict=True)]
        visible = graph.entries(node)[:op.visible_outputs(params)]
        sights += [sight(graph.entry_name(entry), entry) for entry in visible]
    return result, sights


def gradient_sights(graph: Graph) -> list[Sight]:
    """The gradients of the variables, in the order of backward.

    The name is MXNet's, `<node>_backward_<input>` after the one operator input that reads the variable; a gradient that
    sums those of several is called `<variable>_grad`.
    """
    names: dict[int, str] = {}
    for node in reversed(range(len(graph))):
        op = graph.op[node]
        if op is None:
            continue
        for name, entry in zip(op.inputs(graph.params[node]), graph.inputs[node], strict=True):
            source = graph.node_of[entry]
            if graph.op[source] is None:
                own = f"{graph.name[node]}_backward_{name}"
                names[source] = f"{graph.name[source]}_grad" if source in names else own
    return [Sight(name, None, graph.name[source]) for source, name in names.items()]


def tell(callback: Callable[[str, Any], None], sights: Sequence[Sight], variables: Mapping[str, Any],
         output: Callable[[int], Any] | None = None) -> None:
    """Call `callback` with copies of what is seen: outputs by `output`, variables where `variables` has them."""
    for sight in sights:
        if sight.output is not None:
            assert output is not None, "this sight needs a program with outputs"
            callback(sight.name, output(sight.output).copy())
        elif variables.get(sight.variable) is not None:
            callback(sight.name, variables[sight.variable].copy())


def _copied(graph: Graph) -> Graph:
    """A graph that can be extended while the first stays as it is."""
    result = copy.copy(graph)
    for name, column in vars(graph).items():
        setattr(result, name, copy.copy(column))
    return result


def _show(graph: Graph, entry: Entry, name: str) -> int:
    """Add an output of that name, and return its number."""
    op: Any = get_op("BlockGrad")
    shown, = graph.append(op, op.Params(), name, (entry,), [(graph.shape[entry], graph.dtype[entry])], FORWARD)
    graph.outputs.append(shown)
    graph.output_names.append(name)
    return len(graph.outputs) - 1
