"""Adding nodes: every node is inferred as it is added, so types are known at once and bad ones never enter."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Entry, MXNetError, PartialShape, Shape
from ..ops.op import Op, OperatorError, ShapeError, format_shape, is_complete
from ..ops.registry import get_op
from .graph import FORWARD, Graph

_inferred: dict[tuple, list[tuple[PartialShape, np.dtype | None]]] = {}
"""Output types by (op, params, input types): a deep network repeats few distinct nodes."""
_INFERRED_LIMIT = 10_000


class GraphBuilder:
    """The Builder protocol over a Graph; `scope` names the nodes that follow, `phase` says whose part they are, and
    `mark` whether they are to run again (`Graph.mark`)."""

    def __init__(self, graph: Graph, phase: int = FORWARD) -> None:
        self.graph = graph
        self.phase = phase
        self.scope = ""
        self.mark: bool | None = None
        self.repeated: set[Entry] = set()
        """Entries to which an idempotent operator was to be applied again."""
        self._control: Entry | None = None
        self._random_ops = self._python_ops = 0

    def variable(self, name: str, shape: PartialShape, dtype: Any, variable_class: str) -> Entry:
        """Add a variable that holds a value from outside the program."""
        entry, = self.graph.append(None, None, name, (), [(shape, np.dtype(dtype))], self.phase)
        self.graph.variable_class[len(self.graph) - 1] = variable_class
        return entry

    def node(self, op: str, inputs: Sequence[Entry], /, **params: object) -> tuple[Entry, ...]:
        """Add a node of the operator named `op`, under a name made from the scope."""
        operator = get_op(op)
        short = operator.name.lstrip("_")
        name = f"{self.scope}/{short}" if self.scope else short
        return self.add(operator, operator.Params(**params), name, tuple(inputs))

    def add(self, op: Op, params: Any, name: str, inputs: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Add a node of an operator with ready params; of an idempotent one over its own output none."""
        maker = self.graph.node_of[inputs[0]] if op.idempotent else -1
        if maker >= 0 and (self.graph.op[maker], self.graph.params[maker]) == (op, params):
            self.repeated.update(inputs)
            return tuple(self.graph.entries(maker))
        types = self._infer(op, params, name, inputs)
        return self.graph.append(op, params, name, inputs, types, self.phase, self.mark)

    def shape(self, entry: Entry) -> Shape:
        return self.graph.shape[entry]  # type: ignore[return-value]

    def dtype(self, entry: Entry) -> np.dtype:
        return self.graph.dtype[entry]  # type: ignore[return-value]

    def set_control(self, entry: Entry) -> None:
        """Say which variable is the control buffer."""
        self._control = entry

    def random_key(self) -> Entry:
        if self._control is None:
            raise MXNetError("this graph draws random numbers but has no control buffer; build it with one")
        return self._control

    def next_random_ordinal(self) -> int:
        self._random_ops += 1
        return self._random_ops - 1

    def next_python_ordinal(self) -> int:
        self._python_ops += 1
        return self._python_ops - 1

    def _infer(self, op: Op, params: Any, name: str, inputs: tuple[Entry, ...],
               ) -> list[tuple[PartialShape, np.dtype | None]]:
        graph = self.graph
        types = tuple((graph.shape[e], graph.dtype[e]) for e in inputs)
        key = (op.name, params, types)
        found = _inferred.get(key)
        if found is None:
            found = infer_node(op, params, name, types, [graph.entry_name(e) for e in inputs])
            if len(_inferred) >= _INFERRED_LIMIT:
                _inferred.clear()
            _inferred[key] = found
        return found


def infer_node(op: Op, params: Any, name: str, types: Sequence[tuple[PartialShape, np.dtype | None]],
               input_names: Sequence[str]) -> list[tuple[PartialShape, np.dtype | None]]:
    """Output types of one node from complete input types; the error names op, node, inputs and both values."""
    try:
        return _inferred_types(op, params, name, types, input_names)
    except OperatorError as error:
        raise error.at(name) from error.__cause__


def _inferred_types(op: Op, params: Any, name: str, types: Sequence[tuple[PartialShape, np.dtype | None]],
                    input_names: Sequence[str]) -> list[tuple[PartialShape, np.dtype | None]]:
    count = len(op.outputs(params))
    try:
        ins, outs = op.infer_shape(params, [shape for shape, _ in types], [None] * count)
        for given, completed in zip(types, ins, strict=True):
            if completed is not None and completed != given[0]:
                raise ShapeError(f"an input of shape {format_shape(given[0])} should be {format_shape(completed)}")
    except ShapeError as error:
        raise ShapeError(describe(op, name, types, input_names) + f": {error}") from error
    _, dtypes = op.infer_dtype(params, [dtype for _, dtype in types], [None] * count)
    if not all(is_complete(shape) for shape in outs):
        raise ShapeError(describe(op, name, types, input_names) + ": the output's shape stays unknown; "
                         "give the shapes of all inputs")
    return list(zip(outs, dtypes, strict=True))


def describe(op: Op, name: str, types: Sequence[tuple[PartialShape, np.dtype | None]],
             input_names: Sequence[str]) -> str:
    """`Convolution conv0(data (1, 3), conv0_weight unknown)`: where an inference error happened."""
    inputs = ", ".join(f"{n} {format_shape(t[0])}" for n, t in zip(input_names, types, strict=True))
    return f"{op.name} {name}({inputs})"
