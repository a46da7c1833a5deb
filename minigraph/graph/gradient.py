"""Reverse-mode differentiation: backward nodes are ordinary nodes of the same graph.

Contributions to one gradient are added as they arise, so a weight that is used a thousand times needs one sum and
one contribution at a time. A variable's gradient is handed over as soon as its last contribution is there, which is
what lets an update follow at once and the gradient's bytes be reused.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..base import Entry, MXNetError
from .builder import GraphBuilder
from .graph import BACKWARD, Graph

OnGradient = Callable[[Entry, "Entry | None"], None]


def add_gradient(b: GraphBuilder, heads: Sequence[tuple[Entry, Entry | None]], wanted: Iterable[Entry],
                 on_gradient: OnGradient, control: Entry | None = None) -> None:
    """Append the backward part of `b.graph`.

    `heads` are (output, its head gradient or None for a loss, whose op needs none). For each variable entry of
    `wanted`, `on_gradient(variable, gradient)` is called once, at the earliest point where the gradient is whole;
    the gradient is None when no path leads from a head to the variable. With `control`, the control buffer, gradients
    are times its loss scale from where they begin on: at head gradients, and at what a loss hands to its inputs.
    """
    graph = b.graph
    wanted = list(wanted)
    length = len(graph)
    needed = _depends_on(graph, wanted)
    due = _finished_at(graph, wanted, length)
    grads: dict[Entry, Entry] = {}
    losses = set()
    b.phase = BACKWARD
    for entry, head in heads:
        if head is None:
            losses.add(graph.node_of[entry])
        else:
            b.scope = graph.entry_name(entry)
            _add(b, grads, entry, _scaled(b, head, control))
    for i in reversed(range(length)):
        if needed[i] and graph.op[i] is not None:
            _differentiate(b, i, grads, i in losses, needed, control)
        for variable in due.pop(i, ()):
            on_gradient(variable, grads.pop(variable, None))
            b.phase = BACKWARD
    for variable in due.pop(-1, ()):
        on_gradient(variable, grads.pop(variable, None))


def _differentiate(b: GraphBuilder, i: int, grads: dict[Entry, Entry], is_head: bool, needed: bytearray,
                   control: Entry | None) -> None:
    graph = b.graph
    op, params, inputs, outs = graph.op[i], graph.params[i], graph.inputs[i], graph.entries(i)
    assert op is not None
    arriving = [grads.pop(entry, None) for entry in outs]
    if not is_head and all(g is None for g in arriving):
        return
    b.scope = graph.name[i]
    flags = [bool(needed[graph.node_of[entry]]) for entry in inputs]
    results = op.gradient(b, params, inputs, tuple(outs), arriving, flags)
    if len(results) != len(inputs):
        raise MXNetError(f"{op.name} {graph.name[i]}: its gradient gives {len(results)} values for "
                         f"{len(inputs)} inputs; it must give one (or None) for each")
    begins = control if op.is_loss(params) else None  # what a loss makes of its own comes from no scaled gradient
    for entry, flag, gradient in zip(inputs, flags, results, strict=True):
        if flag and gradient is not None:
            _add(b, grads, entry, _scaled(b, gradient, begins))


def _scaled(b: GraphBuilder, gradient: Entry, control: Entry | None) -> Entry:
    """The gradient times the loss scale; as it is without a control buffer."""
    return gradient if control is None else b.node("_scale_gradient", (gradient, control))[0]


def _add(b: GraphBuilder, grads: dict[Entry, Entry], entry: Entry, gradient: Entry) -> None:
    """Add one contribution to an entry's gradient, at once."""
    if b.shape(gradient) != b.shape(entry):
        raise MXNetError(f"the gradient of {b.graph.entry_name(entry)} has shape {b.shape(gradient)}, "
                         f"the value has {b.shape(entry)}; mend the gradient of the op that made it")
    before = grads.get(entry)
    if before is not None:
        b.scope = b.graph.entry_name(entry)
        gradient, = b.node("_accumulate", (before, gradient))
    grads[entry] = gradient


def _depends_on(graph: Graph, wanted: Iterable[Entry]) -> bytearray:
    """For each node whether it is, or computes from, one of the wanted variables."""
    depends = bytearray(len(graph))
    for entry in wanted:
        depends[graph.node_of[entry]] = 1
    for i, inputs in enumerate(graph.inputs):
        if not depends[i] and any(depends[graph.node_of[entry]] for entry in inputs):
            depends[i] = 1
    return depends


def _finished_at(graph: Graph, wanted: Iterable[Entry], length: int) -> dict[int, list[Entry]]:
    """The wanted variables by their first consumer: walking backwards, that one gives the last contribution."""
    first: dict[Entry, int] = dict.fromkeys(wanted, -1)
    for i in reversed(range(length)):
        for entry in graph.inputs[i]:
            if entry in first:
                first[entry] = i
    due: dict[int, list[Entry]] = {}
    for entry, consumer in first.items():
        due.setdefault(consumer, []).append(entry)
    return due
