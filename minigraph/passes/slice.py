"""slice: what is too large runs in slices of the batch, depth-first through chains of nodes that can.

A node that is cut becomes one node a slice; a tensor between two such nodes exists in slices only, each with bytes of
its own. Sums over the batch go from slice to slice as running totals. Nodes lie on *levels*: within a level each slice
runs through all nodes that are cut before the next one begins, and what reads a whole tensor, or a sum, that a level
makes comes on a later one. The new graph's own order is that of running.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base import ALIGNMENT, PLAIN, Entry, MXNetError, TensorType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph
from ..memory.policies.problem import Slicing
from ..ops.batch_rows import place_rows, row_ranges, shape_of_rows, take_rows
from ..ops.op import Op
from ..ops.registry import get_op
from ..plan.plan import SLICE
from .compilation import MEMORY_MODES, Compilation
from .slice_choice import Decision, Fastest, copy_ends, decide
from .slice_levels import levels
from .workspace import Choices


def slice_batch(state: Compilation) -> None:
    """Rewrite `graph` where the request asks for slices."""
    request = state.request
    if request.slices > 1 and request.program != "update":
        assert state.graph is not None
        together = request.program == "step" and request.memory in MEMORY_MODES
        fastest = fastest_of(Choices(state.graph, request.algorithms))
        found = sliced_graph(state.graph, Slicing(request.slices, request.slice_bytes, together), fastest)
        state.graph = found or state.graph


def fastest_of(choices: Choices) -> Fastest:
    """The fastest way to compute an op, of which the numeric class of every node of these types is."""
    return lambda op, params, ins, outs: choices.of_op(op, params, ins, outs)[0]


def sliced_graph(graph: Graph, slicing: Slicing, fastest: Fastest) -> Graph | None:
    """The graph in slices; None when nothing in it can be cut so."""
    found = decide(graph, slicing, fastest)
    return None if found is None else _Writer(*found, slicing.together).write()


class _Writer:
    """Writes the sliced graph, level by level."""

    def __init__(self, graph: Graph, decision: Decision, together: bool) -> None:
        self.source, self.cut = graph, decision.cut
        self.batch = decision.batch
        self.ranges = row_ranges(decision.batch, decision.length)
        self.level = levels(graph, decision.cut, together)
        self.b = GraphBuilder(Graph())
        self.whole: dict[Entry, Entry] = {}
        """The whole of each entry, as far as it is written."""
        self.parts: dict[Entry, list[Entry]] = {}
        self.taken: dict[tuple[Entry, int, int], Entry] = {}
        """Rows of a whole entry by (entry, slice, level)."""
        self.joined = self._joined()

    def write(self) -> Graph:
        """The graph."""
        source = self.source
        by_level: dict[int, tuple[list[int], list[int]]] = {}
        for i, op in enumerate(source.op):
            if op is None:
                self._copy(i)
            else:
                by_level.setdefault(self.level[i], ([], []))[self.cut[i] is not None].append(i)
        for level in sorted(by_level):
            for i in by_level[level][0]:
                self._copy(i)
            for j in range(len(self.ranges)):
                for i in by_level[level][1]:
                    self._slice(i, j)
        copy_ends(source, self.b.graph, self.whole.__getitem__)
        return self.b.graph

    def _joined(self) -> set[Entry]:
        """The entries in slices that somebody needs whole."""
        graph = self.source
        wanted = {e for i, inputs in enumerate(graph.inputs) for k, e in enumerate(inputs)
                  if not self._reads_part(i, k)}
        return {e for e in (*wanted, *graph.outputs, *graph.heads) if self._is_cut(e)}

    def _reads_part(self, i: int, k: int) -> bool:
        form = self.cut[i]
        return form is not None and form.ins[k]

    def _is_cut(self, entry: Entry) -> bool:
        node = self.source.node_of[entry]
        form = self.cut[node]
        return form is not None and form.outs[entry - self.source.first[node]]

    def _copy(self, i: int) -> None:
        source, graph = self.source, self.b.graph
        entries = source.entries(i)
        made = graph.append(source.op[i], source.params[i], source.name[i],
                            tuple(self.whole[e] for e in source.inputs[i]), [source.described(e) for e in entries],
                            source.phase[i], source.mark[i])
        if i in source.variable_class:
            graph.variable_class[len(graph) - 1] = source.variable_class[i]
        self.whole.update(zip(entries, made, strict=True))

    def _slice(self, i: int, j: int) -> None:
        """Write the node of slice `j`."""
        source, form, op = self.source, self.cut[i], self.source.op[i]
        assert form is not None and op is not None
        first, rows = self.ranges[j]
        inputs = [self._part(e, j, self.level[i]) if is_cut else self.whole[e]
                  for e, is_cut in zip(source.inputs[i], form.ins, strict=True)]
        entries = source.entries(i)
        types = [replace(t, shape=shape_of_rows(t.shape, rows)) if is_cut else t
                 for t, is_cut in zip(map(source.type_of, entries), form.outs, strict=True)]
        params = op.slice_params(source.params[i], first, self.batch, types)
        if j and form.resume:
            op = get_op(form.resume)
            inputs += [self.whole[e] for e, is_cut in zip(entries, form.outs, strict=True) if not is_cut]
        made = self._append(i, op, params, f"{source.name[i]}{SLICE}{j}", tuple(inputs), types)
        for old, new, is_cut in zip(entries, made, form.outs, strict=True):
            if is_cut:
                self.parts.setdefault(old, []).append(new)
                if old in self.joined:
                    self._place(old, new, first)
            else:
                self.whole[old] = new

    def _append(self, i: int, op: Op, params: Any, name: str, inputs: tuple[Entry, ...],
                types: Sequence[TensorType]) -> tuple[Entry, ...]:
        """Add the node of a slice; inference, which knows of no layouts, must find the same where there are none."""
        graph = self.b.graph
        self.b.phase, self.b.mark = self.source.phase[i], self.source.mark[i]
        if any(t.layout != PLAIN for t in (*types, *map(graph.type_of, inputs))):
            return graph.append(op, params, name, inputs, [(t.shape, t.dtype, t.layout) for t in types], self.b.phase,
                                self.b.mark)
        made = self.b.add(op, params, name, inputs)
        found = [graph.type_of(e) for e in made]
        if found != list(types):
            raise MXNetError(f"a slice of {self.source.name[i]} makes {found}, where {types} were expected; the op's "
                             f"`sliced` or `slice_params` does not fit its inference")
        return made

    def _part(self, entry: Entry, j: int, level: int) -> Entry:
        """Slice `j` of an entry. On later levels than its own, one that was put together is read there."""
        parts = self.parts.get(entry)
        if parts is not None and (entry not in self.joined or self.level[self.source.node_of[entry]] == level):
            return parts[j]
        first, rows = self.ranges[j]
        kind = self.source.type_of(entry)
        shares = first * (kind.nbytes // self.batch) % ALIGNMENT == 0
        if parts is not None and not shares:
            return parts[j]
        key = entry, j, -1 if shares else level
        if key not in self.taken:
            self.b.scope = f"{self.source.entry_name(entry)}{SLICE}{j}"
            self.taken[key] = take_rows(self.b, self.whole[entry], first, rows, shares)
            self.b.graph.layout[self.taken[key]] = kind.layout
        return self.taken[key]

    def _place(self, entry: Entry, part: Entry, first: int) -> None:
        """Put a slice into the whole."""
        self.b.scope = f"{self.source.entry_name(entry)}{SLICE}"
        self.whole[entry] = place_rows(self.b, self.whole.get(entry), part, first, self.batch)
        self.b.graph.layout[self.whole[entry]] = self.source.layout[entry]
