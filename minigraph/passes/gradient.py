"""gradient: appends the backward part, and in the program `step` the optimizer's update of each parameter at the
point where its gradient is whole. prune: drops what neither an output nor a state needs."""
from __future__ import annotations

from ..base import Entry, MXNetError
from ..graph import BACKWARD, UPDATE, Graph, GraphBuilder
from ..graph.gradient import add_gradient
from ..graph.rewrite import reachable, rewrite
from .compilation import CONTROL, Compilation, Request, gradient_name, head_gradient_name, state_name


def gradient(state: Compilation) -> None:
    """Extend `graph` by backward (`train`), backward and updates (`step`), or updates alone (`update`)."""
    graph, request = state.graph, state.request
    assert graph is not None
    b = GraphBuilder(graph, BACKWARD)
    if request.program == "update":
        _update_from_gradients(state, b)
    elif request.program != "eval":
        wanted = _wanted(graph, request)
        state.parameters = tuple(wanted.values())
        sink = _Updates(b, request, wanted) if request.program == "step" else _Store(b, state, wanted)
        add_gradient(b, _heads(b), list(wanted), sink.on_gradient)
        sink.finish()
        state.without_gradient = tuple(sink.missing)


def prune(state: Compilation) -> None:
    """Rewrite `graph` without the nodes that nothing needs."""
    graph = state.graph
    assert graph is not None
    keep = reachable(graph)
    if not all(keep):
        state.graph = rewrite(graph, keep, {})


def _wanted(graph: Graph, request: Request) -> dict[Entry, str]:
    """Entries of the variables whose gradient is asked for, with their names."""
    return {graph.first[i]: graph.name[i] for i in graph.variables()
            if request.requests.get(graph.name[i], "null") != "null"}


def _heads(b: GraphBuilder) -> list[tuple[Entry, Entry | None]]:
    heads: list[tuple[Entry, Entry | None]] = []
    graph = b.graph
    for entry, name in zip(graph.heads, graph.output_names, strict=True):
        node = graph.node_of[entry]
        op = graph.op[node]
        head = None
        if op is None or not op.is_loss(graph.params[node]):
            head = b.variable(head_gradient_name(name), graph.shape[entry], graph.dtype[entry], "input")
        heads.append((entry, head))
    return heads


class _Store:
    """Puts each gradient into its persistent buffer: over what is there, or added to it."""

    def __init__(self, b: GraphBuilder, state: Compilation, wanted: dict[Entry, str]) -> None:
        self.b = b
        self.requests = state.request.requests
        self.layout = state.layout
        self.wanted = wanted
        self.missing: list[str] = []

    def on_gradient(self, variable: Entry, gradient: Entry | None) -> None:
        b, name = self.b, self.wanted[variable]
        adds = self.requests[name] == "add"
        b.scope = name
        if gradient is None:
            self.missing.append(name)
            if adds:
                self.layout.declare(gradient_name(name), b.shape(variable), b.dtype(variable), "gradient")
                return
            gradient, = b.node("zeros_like", (variable,))
        buffer = b.variable(gradient_name(name), b.shape(variable), b.dtype(variable), "gradient")
        b.node("_grad_add" if adds else "_assign", (buffer, gradient))

    def finish(self) -> None:
        """Nothing waits for the end."""


class _Updates:
    """Collects the update part: at once for each parameter, or at the end when the global norm is clipped."""

    def __init__(self, b: GraphBuilder, request: Request, wanted: dict[Entry, str]) -> None:
        self.b = b
        assert request.updater is not None
        self.updater = request.updater
        self.wanted = wanted
        self.missing: list[str] = []
        self.index = {variable: k for k, variable in enumerate(wanted)}
        self.control = b.graph.first[b.graph.variable(CONTROL)]
        self.pending: list[tuple[Entry, Entry, Entry]] = []
        added = [name for name in wanted.values() if request.requests[name] == "add"]
        if added and request.program == "step":
            raise MXNetError(f"the program `step` keeps no gradients, so {added[0]} cannot have the request 'add'; "
                             f"use forward, backward and update instead")

    def on_gradient(self, variable: Entry, gradient: Entry | None) -> None:
        if gradient is None:
            self.missing.append(self.wanted[variable])
            return
        self.b.phase = UPDATE
        if not self.updater.clips_global_norm:
            self._update(variable, gradient, None)
            return
        self.b.scope = self.wanted[variable]
        norm, = self.b.node("_sum_squares", (gradient,))
        self.pending.append((variable, gradient, norm))

    def finish(self) -> None:
        """Add the updates that waited for the global norm."""
        if not self.pending:
            return
        self.b.phase, self.b.scope = UPDATE, "global_norm"
        norms = [norm for *_, norm in self.pending]
        scale, = self.b.node("_global_norm_scale", (*norms, self.control), num_args=len(norms))
        for variable, gradient, _ in self.pending:
            self._update(variable, gradient, scale)

    def _update(self, variable: Entry, gradient: Entry, scale: Entry | None) -> None:
        b, name = self.b, self.wanted[variable]
        states = [b.variable(state_name(name, suffix), b.shape(variable), b.dtype(variable), "state")
                  for suffix in self.updater.state_names()]
        b.scope = name
        try:
            self.updater.add_update(b, self.index[variable], variable, gradient, states, self.control, scale)
        except MXNetError as error:
            raise MXNetError(f"the update of {name}: {error}") from error


def _update_from_gradients(state: Compilation, b: GraphBuilder) -> None:
    """The whole graph of the program `update`: each parameter from its persistent gradient.

    The layout must know the gradients, so `train` is compiled before.
    """
    wanted: dict[Entry, str] = {}
    source, places = state.symbol_graph, state.layout.places
    for i in source.variables():
        name, entry = source.name[i], source.first[i]
        if state.request.requests.get(name, "null") != "null":
            wanted[b.variable(name, source.shape[entry], source.dtype[entry], "parameter")] = name
    state.parameters = tuple(wanted.values())
    updates = _Updates(b, state.request, wanted)
    for variable, name in wanted.items():
        place = places.get(gradient_name(name))
        if name in state.request.skip or place is None:
            updates.on_gradient(variable, None)
        else:
            updates.on_gradient(variable, b.variable(gradient_name(name), place.shape, place.dtype, "gradient"))
    updates.finish()
    state.without_gradient = tuple(updates.missing)
