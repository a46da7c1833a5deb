"""Running one operator now, by its NumPy definition: no plan, no tape, no kernels.

An operator's `expand` asks a builder for nodes; the builder here computes each node as it is added.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from .. import random
from ..base import Entry, MXNetError, Shape, TensorType
from ..graph import FORWARD, Graph
from ..graph.builder import infer_node
from ..graph.infer import infer_dtypes, infer_shapes
from ..ops.control import LAST_STEP, control_size, set_key
from ..ops.op import Op, OperatorError, Workspace, format_shape, is_complete
from ..ops.registry import get_op

_python_ordinals = count()


class Immediate:
    """The Builder protocol over arrays: an entry is the number of an array, which is never written to again."""

    def __init__(self, name: str, arrays: Sequence[np.ndarray]) -> None:
        self.name = name
        self.arrays = [np.require(array, requirements="C") for array in arrays]
        self.changed: dict[Entry, Entry] = {}
        """For each given array whose value an operator replaced, the entry that holds the new value."""
        self._control: Entry | None = None
        self._ordinals = 0

    def node(self, op: str, inputs: Sequence[Entry], /, **params: object) -> tuple[Entry, ...]:
        """Compute an operator's outputs and number them."""
        operator = get_op(op)
        p = operator.Params(**params)
        ins = [self.arrays[e] for e in inputs]
        outs = compute_node(operator, p, self.name, ins)
        first = len(self.arrays)
        self.arrays += outs
        for k, out in operator.mutates(p):
            self.changed[self._root(inputs[k])] = first + out
        return tuple(range(first, first + len(outs)))

    def _root(self, entry: Entry) -> Entry:
        """The array that was replaced by this one, or the array itself."""
        return next((source for source, now in self.changed.items() if now == entry), entry)

    def shape(self, entry: Entry) -> Shape:
        """The shape of an array."""
        return self.arrays[entry].shape

    def dtype(self, entry: Entry) -> np.dtype:
        """The dtype of an array."""
        return self.arrays[entry].dtype

    def random_key(self) -> Entry:
        """A control buffer with a key of its own, which no other run since the seed was given has."""
        if self._control is None:
            control = np.zeros(control_size(0), np.float32)
            set_key(control, random.current_seed(), LAST_STEP - random.next_evaluation())
            self.arrays.append(control)
            self._control = len(self.arrays) - 1
        return self._control

    def next_random_ordinal(self) -> int:
        """0, 1, ..."""
        self._ordinals += 1
        return self._ordinals - 1

    def next_python_ordinal(self) -> int:
        """One for each: the object that computes is of this call alone."""
        return next(_python_ordinals)


def compute_node(op: Op, p: Any, name: str, ins: Sequence[np.ndarray]) -> list[np.ndarray]:
    """New arrays with the outputs of one node; a state that the node changes is copied, and the copy changed."""
    types = [(array.shape, array.dtype) for array in ins]
    found = infer_node(op, p, name, types, op.inputs(p))
    given = [TensorType(array.shape, array.dtype) for array in ins]
    wanted = [TensorType(shape, dtype) for shape, dtype in found]  # type: ignore[arg-type]
    ins = list(ins)
    outs = [np.empty(t.shape, t.dtype) for t in wanted]
    for k, out in op.mutates(p):
        ins[k] = outs[out] = ins[k].copy()
    if op.view(p):
        start, size = op.view_offset(p, given[0]) // given[0].dtype.itemsize, wanted[0].size
        outs[0] = ins[0].reshape(-1)[start:start + size].reshape(wanted[0].shape)
        return outs
    try:
        with np.errstate(all="ignore"):
            _compute(op, p, ins, outs)
    except OperatorError as error:
        raise error.at(name) from error.__cause__
    except MXNetError as error:
        raise MXNetError(f"{name}: {error}") from error
    return outs


def _compute(op: Op, p: Any, ins: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> None:
    """Write the outputs; of integers a function that NumPy has for floats alone is cut to whole numbers, as in MXNet.
    """
    types = [[TensorType(array.shape, array.dtype) for array in arrays] for arrays in (ins, outs)]
    work = Workspace(np.empty(op.algorithms(p, *types)[0].workspace_bytes, np.uint8))
    try:
        op.compute(p, ins, outs, work)
    except TypeError:
        if all(array.dtype.kind == "f" for array in (*ins, *outs)):
            raise
        floats = [np.empty(array.shape, np.float64) for array in outs]
        _compute(op, p, [array.astype(np.float64) for array in ins], floats)
        for out, value in zip(outs, floats, strict=True):
            np.copyto(out, value, casting="unsafe")


def execute(op: Op, p: Any, name: str, arrays: Sequence[np.ndarray], shapes: Sequence[Shape | None],
            ) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """(all outputs, new values of inputs that the operator changes) of an operator as it evaluates.

    `shapes` are those that the first outputs must have, where one is known. No output shares memory with an input.
    MXNetError names operator, node and what does not fit.
    """
    check_dtypes(op, p, name, arrays)
    b = Immediate(name, arrays)
    if shapes or type(op).completed is not Op.completed or type(op).expand is not Op.expand:
        p = op.completed(p, _output_shapes(op, p, name, b.arrays, shapes))
    entries = op.expand(b, p, range(len(arrays)), False)
    given = b.arrays[:len(arrays)]
    outs = [b.arrays[e] for e in entries]
    outs = [out.copy() if any(np.may_share_memory(out, array) for array in given) else out for out in outs]
    return outs, {source: b.arrays[now] for source, now in b.changed.items() if source < len(arrays)}


def check_dtypes(op: Op, p: Any, name: str, arrays: Sequence[np.ndarray]) -> None:
    """MXNetError where an operator whose tensors all have one dtype is given several."""
    if type(op).infer_dtype is Op.infer_dtype and len({array.dtype for array in arrays}) > 1:
        given = ", ".join(f"{k} {array.dtype}" for k, array in zip(op.inputs(p), arrays, strict=True))
        raise MXNetError(f"{op.name} {name}: inputs of one dtype are expected, got {given}; convert them by astype")


def _output_shapes(op: Op, p: Any, name: str, arrays: Sequence[np.ndarray],
                   shapes: Sequence[Shape | None]) -> list[Shape]:
    """The shapes of all outputs, of which those that inputs and parameters leave open are taken from `shapes`."""
    graph = Graph()
    ins = tuple(graph.append(None, None, label, (), [(array.shape, array.dtype)], FORWARD)[0]
                for label, array in zip(op.inputs(p), arrays, strict=True))
    types: list = [(None, None)] * len(op.outputs(p))
    types[:len(shapes)] = [(shape, None) for shape in shapes]
    entries = graph.append(op, p, name, ins, types, FORWARD)
    infer_shapes(graph)
    infer_dtypes(graph)
    unknown = [graph.shape[e] for e in entries if not is_complete(graph.shape[e])]
    if unknown:
        raise MXNetError(f"{op.name} {name}: the shape {format_shape(unknown[0])} of an output stays unknown; give its "
                         f"parameters all dimensions, or `out`")
    return [graph.shape[e] for e in entries]  # type: ignore[misc]
