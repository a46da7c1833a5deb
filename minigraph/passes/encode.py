"""encode: what backward reads of a value of forward only to decide something of each element is kept as that decision.

A gradient of relu needs a sign, one of a maximum the place where it was. Which ops do with how little the operators say
(`Op.encoding`); here is decided where that saves bytes: where all of backward does without a value, so that it need not
be kept. Where somebody reads it whole it serves everybody, and nothing is made of it.

An encoding is made right behind its values, or by their maker itself where that has such a form (`Op.encoded`): in one
pass over memory for two. Under a policy both stay apart, for of values that are made together none can be swapped, or
made again, without the others.

It runs when layouts are chosen, for bits lie in the order of the elements that they belong to, and before slices and
policies, to which what it makes are values like others.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Entry, Layouts, Shape, TensorType
from ..graph.graph import FORWARD, Graph
from ..ops.op import Encoding, Op
from ..ops.registry import get_op
from .compilation import MEMORY_MODES, Compilation, Request


def encode(state: Compilation) -> None:
    """Rewrite `graph` where backward keeps less so."""
    graph = state.graph
    assert graph is not None
    if state.request.encode and state.request.program in ("train", "step"):
        choice = _Choice(graph, state.request)
        taken = choice.taken()
        if taken:
            state.graph = _Writer(graph, taken, choice.joined).write()


@dataclass(frozen=True)
class _Candidate:
    """A node of backward that does with an encoding, and the values that it encodes."""

    form: Encoding
    values: tuple[Entry, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for nodes that read the same encoding."""
        return self.form.encoder, self.form.encoder_params, self.values


Joined = Callable[[int, _Candidate], "tuple[Op, Any] | None"]
"""Gives the op, and its params, in the place of a node that also makes an encoding, if there is one."""


class _Choice:
    """Which nodes read encodings."""

    def __init__(self, graph: Graph, request: Request) -> None:
        self.graph, self.request = graph, request
        self.has_policy = request.memory not in MEMORY_MODES
        self.origin = _origins(graph)
        self.candidates = {i: found for i in range(len(graph)) if (found := self._candidate(i)) is not None}

    def taken(self) -> dict[int, _Candidate]:
        """The candidates for which bytes are saved. Without one a value stays, and others may save nothing any more."""
        taken = self.candidates
        while True:
            freed, sharing = self._freed(taken), Counter(found.key for found in taken.values())
            worthy = {i: found for i, found in taken.items() if self._saves(found, freed, sharing[found.key])}
            if len(worthy) == len(taken):
                return taken
            taken = worthy

    def _candidate(self, i: int) -> _Candidate | None:
        graph, op, params = self.graph, self.graph.op[i], self.graph.params[i]
        if op is None or graph.phase[i] == FORWARD:
            return None
        form = op.encoding(params, [graph.type_of(e) for e in graph.inputs[i]])
        if form is None:
            return None
        values = tuple(graph.inputs[i][k] for k in form.of)
        found = _Candidate(form, values)
        return found if all(map(self._is_made, values)) and self._is_taken(i, op, found) else None

    def _is_made(self, entry: Entry) -> bool:
        """Whether forward computes a value."""
        node = self.graph.node_of[entry]
        return self.graph.op[node] is not None and self.graph.phase[node] == FORWARD

    def _is_taken(self, i: int, op: Op, found: _Candidate) -> bool:
        """Whether the device runs both ops in the layouts that the values have, on slices where this one does."""
        graph, form = self.graph, found.form
        encoder, reader = get_op(form.encoder), get_op(form.reader)
        read = [graph.type_of(e) for e in _others(graph, i, form)]
        ends = [graph.type_of(e) for e in found.values], [graph.type_of(e) for e in graph.entries(i)]
        nodes = ((encoder, form.encoder_params, ends[0], [form.kind]),
                 (reader, form.reader_params, [*read, form.kind], ends[1]))
        if not all(self._runs(op.name, *node) for node in nodes):
            return False
        sliced = op.sliced(graph.params[i], [graph.type_of(e) for e in graph.inputs[i]], ends[1])
        may_slice = self.request.slices > 1 or self.has_policy
        return not may_slice or sliced is None or all(new.sliced(p, ins, outs) is not None
                                                      for new, p, ins, outs in nodes)

    def _runs(self, before: str, op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> bool:
        request = self.request
        if request.fuses is not None and not request.fuses(before, op.name, params):
            return False
        wanted = tuple(t.layout for t in ins), tuple(t.layout for t in outs)
        offers = [Layouts.plain(len(ins), len(outs))] if request.layouts is None else \
            request.layouts(op, params, ins, outs)
        return any((offer.ins, offer.outs) == wanted for offer in offers)

    def joined(self, i: int, found: _Candidate) -> tuple[Op, Any] | None:
        """The op, and its params, in the place of node i that also makes an encoding; None where there is none, or the
        device or the user wants both apart."""
        graph, op, params, form = self.graph, self.graph.op[i], self.graph.params[i], found.form
        values = (*graph.inputs[i], *graph.entries(i))
        if op is None or self.has_policy or not self.request.fuse or not {*found.values} <= {*values}:
            return None
        both = op.encoded(params, form.encoder, form.encoder_params, [values.index(e) for e in found.values])
        if both is None:
            return None
        ins, outs = ([graph.type_of(e) for e in entries] for entries in (graph.inputs[i], graph.entries(i)))
        made = get_op(both[0]), both[1]
        return made if self._runs(op.name, *made, ins, [*outs, form.kind]) else None

    # -- what is saved -------------------------------------------------------------------------------------------
    def _freed(self, taken: dict[int, _Candidate]) -> dict[Entry, int]:
        """The values that backward does not read when some nodes read encodings, each with how many those are."""
        graph = self.graph
        kept = {self.origin[e] for e in (*graph.outputs, *graph.heads)}
        readers: dict[Entry, int] = {}
        for i in range(len(graph)):
            if graph.phase[i] != FORWARD:
                of = taken[i].form.of if i in taken else ()
                kept.update(self.origin[e] for k, e in _read(graph, i) if k not in of)
                for origin in {self.origin[graph.inputs[i][k]] for k in of}:
                    readers[origin] = readers.get(origin, 0) + 1
        return {origin: count for origin, count in readers.items() if origin not in kept}

    def _saves(self, found: _Candidate, freed: dict[Entry, int], sharing: int) -> bool:
        """Whether a node's share of the bytes that need not be kept is more than its share of the encoding."""
        origins = {self.origin[e] for e in found.values} & freed.keys()
        saved = sum(self.graph.type_of(origin).nbytes / freed[origin] for origin in origins)
        return saved > found.form.kind.nbytes / sharing


def _origins(graph: Graph) -> list[Entry]:
    """For each value the one whose bytes it shows, itself unless it is a view."""
    origin = list(range(graph.num_entries))
    for i, op in enumerate(graph.op):
        if op is not None and op.view(graph.params[i]):
            origin[graph.first[i]] = origin[graph.inputs[i][0]]
    return origin


def _read(graph: Graph, i: int) -> Iterator[tuple[int, Entry]]:
    """The inputs of which a node reads more than the shape, with their numbers."""
    op = graph.op[i]
    unread = op.unread(graph.params[i]) if op is not None else ()
    return ((k, e) for k, e in enumerate(graph.inputs[i]) if k not in unread)


def _others(graph: Graph, i: int, form: Encoding) -> list[Entry]:
    return [e for k, e in enumerate(graph.inputs[i]) if k not in form.of]


class _Writer:
    """Writes the graph again, with each encoding right behind the last of the values that it is made of, or by the node
    that makes that one; `joined` tells by which op."""

    def __init__(self, graph: Graph, taken: dict[int, _Candidate], joined: Joined) -> None:
        self.source, self.taken = graph, taken
        self.result = Graph()
        self.made: dict[Entry, Entry] = {}
        self.encoded: dict[tuple[Any, ...], Entry] = {}
        self.due: dict[int, list[_Candidate]] = {}
        for found in {found.key: found for found in taken.values()}.values():
            self.due.setdefault(max(graph.node_of[e] for e in found.values), []).append(found)
        self.together: dict[int, tuple[_Candidate, Op, Any]] = {}
        """The nodes that make an encoding as well, with that and the op that does it."""
        for i, due in self.due.items():
            for found in due:
                both = joined(i, found)
                if both is not None:
                    self.together[i] = (found, *both)
                    break

    def write(self) -> Graph:
        """The new graph."""
        source, result = self.source, self.result
        for i in range(len(source)):
            self._node(i)
            for found in self.due.get(i, ()):
                if found.key not in self.encoded:
                    self._encode(i, found)
        result.outputs = [self.made[e] for e in source.outputs]
        result.heads = [self.made[e] for e in source.heads]
        result.output_names = list(source.output_names)
        return result

    def _node(self, i: int) -> None:
        source = self.source
        op, params, inputs = source.op[i], source.params[i], [self.made[e] for e in source.inputs[i]]
        if i in self.taken:
            found = self.taken[i]
            op, params = get_op(found.form.reader), found.form.reader_params
            inputs = [*(self.made[e] for e in _others(source, i, found.form)), self.encoded[found.key]]
        entries = source.entries(i)
        types = [source.described(e) for e in entries]
        if i in self.together:
            beside, op, params = self.together[i]
            types.append(_described(beside.form.kind))
        made = self.result.append(op, params, source.name[i], tuple(inputs), types, source.phase[i],
                                  source.mark[i])
        if i in self.together:
            self.encoded[beside.key] = made[-1]
        self.made.update(zip(entries, made[:len(entries)], strict=True))
        if i in source.variable_class:
            self.result.variable_class[len(self.result) - 1] = source.variable_class[i]

    def _encode(self, i: int, found: _Candidate) -> None:
        form = found.form
        name = f"{self.source.name[i]}/{form.encoder.lstrip('_')}"
        self.encoded[found.key], = self.result.append(
            get_op(form.encoder), form.encoder_params, name, tuple(self.made[e] for e in found.values),
            [_described(form.kind)], FORWARD, self.source.mark[i])


def _described(kind: TensorType) -> tuple[Shape, np.dtype, str]:
    """A type as a graph takes it."""
    return kind.shape, kind.dtype, kind.layout
