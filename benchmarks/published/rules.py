"""The dependency rules of published systems, in place of minigraph's own operators.

A network is a list of layers; a rule says of each kind of layer what its backward part reads, where its gradient lies,
and whether its output is a checkpoint. `training_graph` makes of both an ordinary minigraph Graph with one node a layer
and direction. Liveness, sharing, recomputation and swaps are then minigraph's own.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.base import Cost, Entry, Shape
from minigraph.graph import BACKWARD, FORWARD, Graph
from minigraph.memory.layout import PersistentLayout
from minigraph.memory.machine import Machine
from minigraph.memory.policies import Evaluation, Problem
from minigraph.memory.policies.quick import QuickCount
from minigraph.memory.schedule import Schedule
from minigraph.ops.op import Op
from minigraph.ops.params import NoParams
from minigraph.passes.apply_schedule import apply_schedule
from minigraph.passes.compilation import UNBOUNDED, Compilation, Request
from minigraph.passes.share import share

INPUT, OUTPUT, GRADIENT = "input", "output", "gradient"


@dataclass(frozen=True)
class Rule:
    """What a system keeps for a kind of layer.

    `reads` are what its backward part reads besides the gradient that arrives: INPUT, OUTPUT, in this order. `over` is
    what the gradient of its (first) input is written over: GRADIENT, the one that arrives; OUTPUT, if that is read; or
    None for bytes of its own. `costly` layers are checkpoints. A `loss` has no gradient arriving. With `inplace` the
    output is written over the (first) input, if nobody else reads that.
    """

    reads: tuple[str, ...] = ()
    over: str | None = None
    costly: bool = False
    loss: bool = False
    inplace: bool = False


SUPERNEURONS: Mapping[str, Rule] = {
    "conv": Rule((INPUT,), costly=True), "fc": Rule((INPUT,), costly=True), "bn": Rule((INPUT,)),
    "act": Rule((INPUT, OUTPUT), GRADIENT), "lrn": Rule((INPUT, OUTPUT), GRADIENT), "pool": Rule((INPUT, OUTPUT)),
    "drop": Rule(), "softmax": Rule((INPUT, OUTPUT), OUTPUT, costly=True, loss=True),
    "fork": Rule((), GRADIENT, costly=True), "join": Rule((), GRADIENT, costly=True)}
"""The released code of SuperNeurons (linnanwang/superneurons-release): activations, normalisations across channels and
the softmax write their gradient over one that is there; a fork copies its input for each reader and adds the
gradients into the first; a join passes its gradient on, with a copy for the second input."""

TENSORFLOW: Mapping[str, Rule] = {
    "conv": Rule((INPUT,), costly=True), "fc": Rule((INPUT,), costly=True), "bn": Rule((INPUT,)),
    "act": Rule((OUTPUT,), GRADIENT, inplace=True), "lrn": Rule((INPUT, OUTPUT)), "pool": Rule((INPUT, OUTPUT)),
    "mean": Rule(), "drop": Rule(), "softmax": Rule((OUTPUT,), OUTPUT, costly=True, loss=True, inplace=True),
    "concat": Rule(), "join": Rule((), GRADIENT, inplace=True)}
"""What TensorFlow's gradients read: an activation lies over what it is made of and reads its own output, a
normalisation reads the convolution before it, and sums and concatenations read nothing."""


@dataclass(frozen=True)
class Layer:
    """A layer: its kind, the (layer, output) pairs that it reads, where (-1, 0) is the data, and its outputs' shapes,
    all equal."""

    name: str
    kind: str
    inputs: tuple[tuple[int, int], ...]
    shape: Shape
    outputs: int = 1


class RuledOp(Op):
    """One direction of one layer; asked by policies and passes like any operator."""

    name = "ruled"

    def __init__(self, recompute: str, outputs: int, pairs: tuple[tuple[int, int], ...] = ()) -> None:
        self._recompute = recompute
        self._outputs = tuple(f"output{k}" for k in range(outputs))
        self._pairs = pairs

    @property
    def recompute(self) -> str:  # type: ignore[override]
        """"costly" for checkpoints."""
        return self._recompute

    def outputs(self, p: Any) -> tuple[str, ...]:
        """Numbered."""
        return self._outputs

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        """Which gradient lies over what."""
        return self._pairs

    def cost(self, p: Any, ins: Any, outs: Any) -> Cost:
        """Elements made; the rules say nothing of time."""
        return Cost(float(sum(t.size for t in outs)), 0, 0)


def training_graph(layers: Sequence[Layer], rules: Mapping[str, Rule], data: Shape) -> Graph:
    """Forward and backward of all layers; node k + 1 is layer k forward, and backward runs in reverse. Where a value
    has several readers its gradients are added in place."""
    graph = Graph()
    kind = np.dtype(np.float32)
    source = graph.append(None, None, "data", (), [(data, kind)], FORWARD)
    graph.variable_class[0] = "parameter"  # is not counted
    made: list[tuple[Entry, ...]] = []
    for layer in layers:
        rule = rules[layer.kind]
        inputs = tuple(source[0] if k < 0 else made[k][out] for k, out in layer.inputs)
        op = RuledOp("costly" if rule.costly else "cheap", layer.outputs, ((0, 0),) if rule.inplace else ())
        made.append(graph.append(op, NoParams(), layer.name, inputs, [(layer.shape, kind)] * layer.outputs, FORWARD))
    arrived: dict[Entry, Entry] = {}
    for k in reversed(range(len(layers))):
        _append_backward(graph, layers[k], rules[layers[k].kind], k, made[k], arrived)
    return graph


def _append_backward(graph: Graph, layer: Layer, rule: Rule, k: int, outputs: tuple[Entry, ...],
                     arrived: dict[Entry, Entry]) -> None:
    """Add the backward node of layer `k` and note the gradients that it makes."""
    forward = graph.inputs[k + 1]
    gradients = () if rule.loss else tuple(arrived[e] for e in outputs)
    kept = {INPUT: forward[0], OUTPUT: outputs[0]}
    inputs = (*gradients, *(kept[what] for what in rule.reads))
    over = {GRADIENT: ((0, 0),), OUTPUT: ((len(inputs) - 1, 0),), None: ()}[rule.over]
    types = [(graph.shape[e], graph.dtype[e]) for e in forward]
    made = graph.append(RuledOp("costly", len(forward), over), NoParams(), f"{layer.name} backward", inputs, types,
                        BACKWARD)
    for entry, gradient in zip(forward, made, strict=True):
        if entry in arrived:
            gradient, = graph.append(RuledOp("costly", 1, ((0, 0), (1, 0))), NoParams(), f"{layer.name} sum",
                                     (arrived[entry], gradient), [(graph.shape[entry], graph.dtype[entry])], BACKWARD)
        arrived[entry] = gradient


def problem_of(graph: Graph, machine: Machine, with_data: bool = False) -> Problem:
    """What policies are given of a ruled graph, with host memory without end.

    The rules say nothing of time: every node takes a second, so that copies are hidden and only bytes count, those of
    the data only `with_data`.
    """
    order = [i for i, op in enumerate(graph.op) if op is not None]
    backward_start = sum(1 for i in order if graph.phase[i] == FORWARD)
    size = [graph.type_of(e).nbytes for e in range(graph.num_entries)]
    size[0] *= with_data
    times = [1.0] * len(graph)
    counter = QuickCount(graph, order, size, size, [0] * len(graph), times, machine)

    def quick(schedule: Schedule) -> Evaluation:
        return counter.evaluate(schedule)
    return Problem(graph, order, backward_start, times, size, quick, counter.live_bytes, machine, UNBOUNDED)


@dataclass(frozen=True)
class Moment:
    """What lives while one node runs."""

    name: str
    live_bytes: int
    tensors: int


def curve(problem: Problem, schedule: Schedule) -> list[Moment]:
    """What lives while each node of the schedule runs, by the passes that apply schedules and share bytes."""
    state = _shared(problem, schedule)
    assert state.graph is not None and state.schedule is not None and state.sharing is not None
    sharing, found = state.sharing, []
    held = [(sharing.born[s], sharing.dies[s], sharing.bytes[s]) for s, name in enumerate(sharing.persistent)
            if name is None and not sharing.on_host[s]]
    for t, node in enumerate(state.schedule.order):
        live = [nbytes for born, dies, nbytes in held if born <= t < dies]
        if state.graph.op[node].transfer is None:  # type: ignore[union-attr]
            found.append(Moment(state.graph.name[node], sum(live), len(live)))
    return found


def own_bytes(problem: Problem, schedule: Schedule) -> tuple[int, int]:
    """(tensors, bytes) if nothing that shares no bytes by the rules were reused: the sum of all."""
    sharing = _shared(problem, schedule).sharing
    assert sharing is not None
    sizes = [nbytes for nbytes, name in zip(sharing.bytes, sharing.persistent, strict=True) if name is None]
    return len(sizes), sum(sizes)


def _shared(problem: Problem, schedule: Schedule) -> Compilation:
    state = Compilation(Request("train", {}), problem.graph, PersistentLayout(), graph=problem.graph,
                        schedule=schedule, backward_start=problem.backward_start)
    apply_schedule(state)
    share(state)
    return state
