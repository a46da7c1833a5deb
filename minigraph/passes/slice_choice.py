"""Which nodes of a graph run in slices of the batch, and of how many rows.

A node may, where its op says how, its tensors have the batch's rows, slices begin at multiples of its chunks, and every
slice has the numeric class of the whole on the device: so bits stay. It should, where one of its tensors is large and a
neighbour is cut too.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base import Algorithm, Entry, TensorType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph
from ..memory.policies.problem import Slicing
from ..ops.batch_rows import shape_of_rows
from ..ops.op import Op, Sliced
from ..ops.registry import get_op

T = TypeVar("T")
Types = Sequence[TensorType]
Fastest = Callable[[Op, Any, Types, Types], Algorithm]
"""The fastest way to compute an op, from op, params, and the types of inputs and outputs."""


@dataclass
class Decision:
    """The batch, the rows of a slice, and how each node is cut, if it is."""

    batch: int
    length: int
    cut: list[Sliced | None]


def decide(graph: Graph, slicing: Slicing, fastest: Fastest) -> tuple[Graph, Decision] | None:
    """The graph, with stages in the place of ops that have some, and how it is cut; None where nothing can be."""
    choice = _Choice(graph, slicing, fastest)
    batch = choice.batch()
    length = choice.length(batch)
    if not 0 < length < batch:
        return None
    staged = choice.staged(length)
    if staged is not graph:
        choice = _Choice(staged, slicing, fastest)
    cut = choice.cut(batch, length)
    return (staged, Decision(batch, length, cut)) if any(cut) else None


class _Choice:
    """What is asked of one graph."""

    def __init__(self, graph: Graph, slicing: Slicing, fastest: Fastest) -> None:
        self.graph, self.slicing, self.fastest = graph, slicing, fastest
        self.kinds = graph.kinds()
        """What is asked of a node depends on its kind alone, and is worked out once for each."""
        self.forms = self._of_each(self._form)

    def _of_each(self, of_node: Callable[[int], T]) -> list[T]:
        """What holds for each node, by the first one of its kind."""
        known: dict[int, T] = {}
        for i, kind in enumerate(self.kinds):
            if kind not in known:
                known[kind] = of_node(i)
        return [known[kind] for kind in self.kinds]

    def _types(self, i: int) -> tuple[list[TensorType], list[TensorType]]:
        graph = self.graph
        return [graph.type_of(e) for e in graph.inputs[i]], [graph.type_of(e) for e in graph.entries(i)]

    def _form(self, i: int) -> Sliced | None:
        """How a node may be cut, where one of its tensors is so large that it should."""
        op, params = self.graph.op[i], self.graph.params[i]
        if op is None or op.transfer is not None or op.mutates(params):
            return None
        ins, outs = self._types(i)
        form = op.sliced(params, ins, outs)
        if form is None or not any(form.ins):
            return None
        largest = max(t.nbytes for t, is_cut in _pairs(ins, outs, form) if is_cut)
        return form if largest >= self.slicing.least_bytes else None

    def _rows(self, i: int) -> int:
        """The rows that all tensors of a node that are cut have; 0 where they differ."""
        form = self.forms[i]
        if form is None:
            return 0
        rows = {t.shape[0] if t.shape else 0 for t, is_cut in _pairs(*self._types(i), form) if is_cut}
        return rows.pop() if len(rows) == 1 else 0

    def _algorithm(self, i: int) -> Algorithm:
        op = self.graph.op[i]
        assert op is not None
        return Algorithm() if op.view(self.graph.params[i]) else self.fastest(op, self.graph.params[i], *self._types(i))

    def batch(self) -> int:
        """The number of rows that most bytes of tensors that may be cut have."""
        graph, weights = self.graph, Counter[int]()
        for i, (form, rows) in enumerate(zip(self.forms, self._of_each(self._rows), strict=True)):
            if form is not None:
                weights[rows] += sum(graph.type_of(e).nbytes for e, is_cut
                                              in zip(graph.entries(i), form.outs, strict=True) if is_cut)
        weights.pop(0, None)
        return max(weights, key=lambda rows: (weights[rows], rows), default=0)

    def length(self, batch: int) -> int:
        """Rows of a slice: so many that there are as many slices as asked, and whole chunks of all nodes whose chunks
        are no longer."""
        length = -(-batch // self.slicing.slices)
        chunks = set(self._of_each(lambda i: self._algorithm(i).chunk_rows
                                   if self._may_stage(i) or self._rows(i) == batch > 0 else 0))
        step = max((n for n in chunks if 0 < n <= length), default=1)
        return -(-length // step) * step

    # -- which nodes ---------------------------------------------------------------------------------------------
    def cut(self, batch: int, length: int) -> list[Sliced | None]:
        """How each node is cut."""
        return self._without_lone(self._of_each(
            lambda i: self.forms[i] if self._rows(i) == batch and self._keeps_bits(i, self.forms[i], batch, length)
            else None))

    def _keeps_bits(self, i: int, form: Sliced | None, batch: int, length: int) -> bool:
        """Whether slices of so many rows have the bits of the whole."""
        op, params = self.graph.op[i], self.graph.params[i]
        if form is None or op is None or op.view(params):
            return form is not None
        algorithm = self._algorithm(i)
        if length % algorithm.chunk_rows:
            return False
        ins, outs = (_of_rows(types, cut, length) for types, cut in zip(self._types(i), (form.ins, form.outs),
                                                                       strict=True))
        own = op.slice_params(params, 0, batch, outs)
        found = [self.fastest(op, own, ins, outs)]
        if form.resume:
            sums = [t for t, is_cut in zip(outs, form.outs, strict=True) if not is_cut]
            found.append(self.fastest(get_op(form.resume), own, [*ins, *sums], outs))
        return all(a.numeric_class == algorithm.numeric_class for a in found)

    def _without_lone(self, cut: list[Sliced | None]) -> list[Sliced | None]:
        """Without the nodes that would only cut a whole tensor and put it together again."""
        graph, linked = self.graph, bytearray(len(self.graph))
        for i, form in enumerate(cut):
            for k, entry in enumerate(graph.inputs[i] if form is not None else ()):
                source = graph.node_of[entry]
                other = cut[source]
                if form is not None and form.ins[k] and other is not None and other.outs[entry - graph.first[source]]:
                    linked[i] = linked[source] = 1
            if form is not None and not all(form.outs):
                linked[i] = 1
        return [form if linked[i] else None for i, form in enumerate(cut)]

    # -- ops in stages -------------------------------------------------------------------------------------------
    def _may_stage(self, i: int) -> bool:
        """Whether a node has stages, and a tensor so large that they should take its place."""
        op, graph = self.graph.op[i], self.graph
        return op is not None and op.has_stages and max(
            graph.type_of(e).nbytes for e in (*graph.inputs[i], *graph.entries(i))) >= self.slicing.least_bytes

    def staged(self, length: int) -> Graph:
        """The graph with the large nodes that have stages replaced by those; itself when there are none."""
        graph = self.graph
        chosen = self._of_each(lambda i: self._may_stage(i) and length % self._algorithm(i).chunk_rows == 0
                               and self._stages_keep_bits(i))
        if not any(chosen):
            return graph
        b = GraphBuilder(Graph())
        new: dict[Entry, Entry] = {}
        for i in range(len(graph)):
            op, params, name, entries = graph.op[i], graph.params[i], graph.name[i], graph.entries(i)
            b.scope, b.phase, b.mark = name, graph.phase[i], graph.mark[i]
            inputs = tuple(new[e] for e in graph.inputs[i])
            if op is not None and chosen[i]:
                made = op.stages(b, params, inputs)
                for entry, new_entry in zip(entries, made, strict=True):
                    b.graph.layout[new_entry] = graph.layout[entry]
            else:
                made = b.graph.append(op, params, name, inputs, [graph.described(e) for e in entries], graph.phase[i],
                                      graph.mark[i])
            if i in graph.variable_class:
                b.graph.variable_class[len(b.graph) - 1] = graph.variable_class[i]
            new.update(zip(entries, made, strict=True))
        copy_ends(graph, b.graph, new.__getitem__)
        return b.graph

    def _stages_keep_bits(self, i: int) -> bool:
        """Whether all stages of a node have its numeric class, in its layouts."""
        op, b = self.graph.op[i], GraphBuilder(Graph())
        assert op is not None
        ins, outs = self._types(i)
        entries = [b.variable(f"in{k}", t.shape, t.dtype, "input") for k, t in enumerate(ins)]
        made = op.stages(b, self.graph.params[i], entries)
        for entry, t in (*zip(entries, ins, strict=True), *zip(made, outs, strict=True)):
            b.graph.layout[entry] = t.layout
        probe, wanted = _Choice(b.graph, Slicing(self.slicing.slices), self.fastest), self._algorithm(i).numeric_class
        return all(probe._algorithm(k).numeric_class == wanted for k, op in enumerate(b.graph.op) if op is not None)


def _pairs(ins: Types, outs: Types, form: Sliced) -> tuple[tuple[TensorType, bool], ...]:
    """The types of inputs and outputs, each with whether it is cut."""
    return (*zip(ins, form.ins, strict=True), *zip(outs, form.outs, strict=True))


def _of_rows(types: Types, cut: Sequence[bool], rows: int) -> list[TensorType]:
    """The types with `rows` rows where they are cut."""
    return [replace(t, shape=shape_of_rows(t.shape, rows)) if is_cut else t
            for t, is_cut in zip(types, cut, strict=True)]


def copy_ends(source: Graph, result: Graph, find: Callable[[Entry], Entry]) -> None:
    """Give a rewritten graph the outputs and heads of its source; `find` gives what an entry has become."""
    result.outputs = [find(e) for e in source.outputs]
    result.heads = [find(e) for e in source.heads]
    result.output_names = list(source.output_names)
