"""gradient: appends the backward part, and in the program `step` the optimizer's update of each parameter at the
point where its gradient is whole. prune: drops what neither an output nor a state needs."""
from __future__ import annotations

import numpy as np

from ..base import Entry, MXNetError
from ..graph import BACKWARD, UPDATE, Graph, GraphBuilder
from ..graph.gradient import add_gradient
from ..graph.rewrite import reachable, rewrite
from .compilation import CONTROL, UNSCALE, Compilation, Request, gradient_name, head_gradient_name, state_name


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
        control = graph.first[graph.variable(CONTROL)] if request.scales_loss else None
        add_gradient(b, _heads(b), list(wanted), sink.on_gradient, control)
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
    for k, entry in enumerate(graph.heads):
        node = graph.node_of[entry]
        op = graph.op[node]
        head = None
        if op is None or not op.is_loss(graph.params[node]):
            head = b.variable(head_gradient_name(k), graph.shape[entry], graph.dtype[entry], "input")
        heads.append((entry, head))
    return heads


class _Store:
    """Puts each gradient into its persistent buffer, less the loss scale: over what is there, or added to it."""

    def __init__(self, b: GraphBuilder, state: Compilation, wanted: dict[Entry, str]) -> None:
        self.b = b
        self.control = b.graph.first[b.graph.variable(CONTROL)]
        self.scaled = state.request.scales_loss
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
        elif self.scaled:
            gradient, = b.node("_scale_gradient", (gradient, self.control), inverse=True)
        buffer = b.variable(gradient_name(name), b.shape(variable), b.dtype(variable), "gradient")
        b.node("_grad_add" if adds else "_assign", (buffer, gradient))

    def finish(self) -> None:
        """Nothing waits for the end."""


class _Updates:
    """Collects the update part: at once for each parameter, or at the end when all gradients must be known before, for
    their norm or, with a loss scale, to be sure that they are finite."""

    def __init__(self, b: GraphBuilder, request: Request, wanted: dict[Entry, str]) -> None:
        self.b = b
        assert request.updater is not None
        self.updater = request.updater
        self.wanted = wanted
        self.missing: list[str] = []
        self.index = {variable: k for k, variable in enumerate(wanted)}
        self.control = b.graph.first[b.graph.variable(CONTROL)]
        self.scaled = request.scales_loss and request.program == "step"
        """Whether gradients are times the loss scale still."""
        self.pending: list[tuple[Entry, Entry]] = []
        self.norms: list[Entry] = []
        self.found: Entry | None = None
        added = [name for name in wanted.values() if request.requests[name] == "add"]
        if added and request.program == "step":
            raise MXNetError(f"the program `step` keeps no gradients, so {added[0]} cannot have the request 'add'; "
                             f"use forward, backward and update instead")

    def on_gradient(self, variable: Entry, gradient: Entry | None) -> None:
        if gradient is None:
            self.missing.append(self.wanted[variable])
            return
        self.b.phase, self.b.scope = UPDATE, self.wanted[variable]
        updater = self.updater
        if updater.scales_loss:
            found = () if self.found is None else (self.found,)
            self.found, = self.b.node("_find_nonfinite", (gradient, *found), goes_on=bool(found))
        if updater.clips_global_norm:
            control = (self.control,) if self.scaled else ()
            self.norms += self.b.node("_sum_squares", (gradient, *control), scaled=self.scaled)
        if updater.scales_loss or updater.clips_global_norm:
            self.pending.append((variable, gradient))
        else:
            self._update(variable, gradient)

    def finish(self) -> None:
        """Add the updates that waited for all gradients."""
        if not self.pending:
            return
        scale = unscale = None
        self.b.phase = UPDATE
        if self.norms:
            self.b.scope = "global_norm"
            scale, = self.b.node("_global_norm_scale", (*self.norms, self.control), num_args=len(self.norms))
        if self.found is not None:
            self.b.scope = "loss_scale"
            state = self.b.variable(UNSCALE, (1,), np.float32, "state")
            unscale, = self.b.node("_check_finite", (state, self.found, self.control), scaled=self.scaled)
        for variable, gradient in self.pending:
            self._update(variable, gradient, scale, unscale)

    def _update(self, variable: Entry, gradient: Entry, scale: Entry | None = None,
                unscale: Entry | None = None) -> None:
        b, name = self.b, self.wanted[variable]
        states = [b.variable(state_name(name, suffix), b.shape(variable), b.dtype(variable), "state")
                  for suffix in self.updater.state_names()]
        b.scope = name
        try:
            self.updater.add_update(b, self.index[variable], name, variable, gradient, states, self.control, scale,
                                    unscale)
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
