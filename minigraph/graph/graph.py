"""The graph as columns: node i is row i of the node columns, and its outputs are consecutive entries.

Nodes are in topological order: an input entry always belongs to an earlier node. Nothing refers to a node by
object, so a chain of any depth is built, copied and deleted without recursion.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import PLAIN, Entry, PartialShape, TensorType, align
from ..ops.op import Op

FORWARD, BACKWARD, UPDATE = 0, 1, 2
"""Phases: which part of a training step a node belongs to."""
PHASES = ("forward", "backward", "update")


@dataclass(frozen=True)
class Node:
    """A view of one node, for reading and printing. `op` is None for a variable."""

    id: int
    op: Op | None
    params: Any
    name: str
    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    phase: int


class Graph:
    """Nodes, entries, and the graph's outputs.

    `variable_class` gives for each variable node what it holds (one of plan.CLASSES); `outputs` are the entries
    that the outside reads, by `output_names`, and `heads` the values they were taken from: where gradients start.
    `mark` says of each node whether its author wants its values dropped in forward and made again in backward, wants
    them kept, or (None) said nothing.
    """

    def __init__(self) -> None:
        self.op: list[Op | None] = []
        self.params: list[Any] = []
        self.name: list[str] = []
        self.inputs: list[tuple[Entry, ...]] = []
        self.first: list[Entry] = []
        self.phase: list[int] = []
        self.mark: list[bool | None] = []
        self.node_of: list[int] = []
        self.shape: list[PartialShape] = []
        self.dtype: list[np.dtype | None] = []
        self.layout: list[str] = []
        self.variable_class: dict[int, str] = {}
        self.outputs: list[Entry] = []
        self.heads: list[Entry] = []
        self.output_names: list[str] = []

    def __len__(self) -> int:
        return len(self.op)

    @property
    def num_entries(self) -> int:
        """Number of tensor values."""
        return len(self.node_of)

    def append(self, op: Op | None, params: Any, name: str, inputs: tuple[Entry, ...],
               types: Sequence[tuple[PartialShape, np.dtype | None] | tuple[PartialShape, np.dtype | None, str]],
               phase: int, mark: bool | None = None) -> tuple[Entry, ...]:
        """Add a node with outputs of the given (shape, dtype) or (shape, dtype, layout); return its entries."""
        index, first = len(self.op), len(self.node_of)
        self.op.append(op)
        self.params.append(params)
        self.name.append(name)
        self.inputs.append(inputs)
        self.first.append(first)
        self.phase.append(phase)
        self.mark.append(mark)
        for shape, dtype, *layout in types:
            self.node_of.append(index)
            self.shape.append(shape)
            self.dtype.append(dtype)
            self.layout.append(layout[0] if layout else PLAIN)
        return tuple(range(first, first + len(types)))

    def entries(self, node: int) -> range:
        """The output entries of a node."""
        last = self.first[node + 1] if node + 1 < len(self.first) else len(self.node_of)
        return range(self.first[node], last)

    def node(self, index: int) -> Node:
        """Node number `index` as one object."""
        return Node(index, self.op[index], self.params[index], self.name[index], self.inputs[index],
                    tuple(self.entries(index)), self.phase[index])

    def __iter__(self) -> Iterator[Node]:
        return (self.node(i) for i in range(len(self)))

    def type_of(self, entry: Entry) -> TensorType:
        """Shape, dtype and layout of an entry whose inference is complete."""
        return TensorType(self.shape[entry], self.dtype[entry], self.layout[entry])  # type: ignore[arg-type]

    def described(self, entry: Entry) -> tuple[PartialShape, np.dtype | None, str]:
        """What `append` takes of an output like this entry."""
        return self.shape[entry], self.dtype[entry], self.layout[entry]

    def aligned_bytes(self) -> list[int]:
        """The bytes of each entry, rounded up to the alignment; inference must be complete. Equal types are counted
        once, for a deep graph has hundreds of thousands of entries and few types."""
        types = list(zip(self.shape, self.dtype, self.layout, strict=True))
        known = {key: align(TensorType(*key).nbytes) for key in set(types)}  # type: ignore[arg-type]
        return [known[key] for key in types]

    def kinds(self) -> list[int]:
        """A number for each node, the same for those of one op with equal params and types of inputs and outputs, of
        which a deep graph has few: what depends on no more is worked out once for all of them."""
        numbers: dict[tuple, int] = {}
        types = [numbers.setdefault(key, len(numbers)) for key in zip(self.shape, self.dtype, self.layout, strict=True)]
        known: dict[tuple, int] = {}
        return [known.setdefault((op, params, *map(types.__getitem__, inputs), -1, *types[first:last]), len(known))
                for op, params, inputs, first, last in zip(self.op, self.params, self.inputs, self.first,
                                                           [*self.first, len(types)][1:], strict=True)]

    def entry_name(self, entry: Entry) -> str:
        """MXNet's name of a value: the variable's own name, else `<node>_<output>`."""
        node = self.node_of[entry]
        op = self.op[node]
        if op is None:
            return self.name[node]
        return f"{self.name[node]}_{op.outputs(self.params[node])[entry - self.first[node]]}"

    def variables(self) -> Iterator[int]:
        """Nodes that are variables, in order."""
        return (i for i, op in enumerate(self.op) if op is None)

    def variable(self, name: str) -> int:
        """The variable node of a name; KeyError when there is none."""
        for i in self.variables():
            if self.name[i] == name:
                return i
        raise KeyError(name)

    def readers(self) -> list[list[int]]:
        """For each entry the nodes that take it as an input (shape-only readers too), ascending, each once."""
        readers: list[list[int]] = [[] for _ in self.node_of]
        for i, inputs in enumerate(self.inputs):
            for entry in inputs:
                if not readers[entry] or readers[entry][-1] != i:
                    readers[entry].append(i)
        return readers
