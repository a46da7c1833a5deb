"""The cell of a long short-term memory: all that one step does behind its two products, and its gradient.

Hochreiter, Schmidhuber. Long short-term memory. Neural Computation 9, 1997; with forget gates as in Gers, Schmidhuber,
Cummins, Neural Computation 12, 2000. Gates lie beside each other in MXNet's order: input, forget, new, output.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

GATES = 4


def _complete(gates: Sequence[PartialShape], states: Sequence[PartialShape]) -> tuple[PartialShape, PartialShape]:
    """Shapes of gates (N, 4 H) and of states (N, H), completed from each other."""
    gate, state = merge_shapes(*gates), merge_shapes(*states)
    for shape in (gate, state):
        if shape is not None and len(shape) != 2:
            raise ShapeError(f"lstm_cell: shape {format_shape(shape)} must have two dimensions, (batch, features)")
    if gate is not None and gate[1] is not None:
        if gate[1] % GATES:
            raise ShapeError(f"lstm_cell: gates of shape {format_shape(gate)} cannot be cut into {GATES}")
        state = merge_shapes(state, (gate[0], gate[1] // GATES))
    elif gate is not None:
        state = merge_shapes(state, (gate[0], None))
    if state is not None:
        gate = merge_shapes(gate, (state[0], None if state[1] is None else GATES * state[1]))
    return gate, state


def _gates(tensor: np.ndarray) -> list[np.ndarray]:
    """The four gates as views (N, H)."""
    size = tensor.shape[1] // GATES
    return [tensor[:, k * size:(k + 1) * size] for k in range(GATES)]


@register
class LstmCell(Op):
    """output = o tanh(cell) and cell = f * old cell + i g, where i, f, g, o = the sum of both inputs' gates (N, 4 H),
    g by tanh and the others by the logistic function.

    Inputs are the shares of data and of state in the gates and the old cell (N, H). Hidden: the gates behind their
    functions, from which backward computes.
    """

    name = "lstm_cell"
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data_gates", "state_gates", "cell")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "cell", "gates")

    def visible_outputs(self, p: Any) -> int:
        return 2

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        gate, state = _complete((*ins[:2], outs[2]), (ins[2], *outs[:2]))
        return [gate, gate, state], [state, state, gate]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 2), (1, 2), (2, 1))

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry], grads: Found,
                 wanted: Sequence[bool]) -> Found:
        if (grads[0] is None and grads[1] is None) or not any(wanted):
            return [None] * 3
        given = grads[0] if grads[0] is not None else only(b.node("zeros_like", [outs[0]]))
        more = [] if grads[1] is None else [grads[1]]
        gates, cell = b.node("_lstm_cell_backward", [given, *more, ins[2], outs[1], outs[2]], with_cell=bool(more))
        return [gates, gates, cell]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out, cell, gates = outs
        i, f, g, o = _gates(np.add(ins[0], ins[1], out=gates))
        np.tanh(g, out=g)
        for gate in (i, f, o):
            np.negative(gate, out=gate)
            np.exp(gate, out=gate)
            np.add(gate, 1, out=gate)
            np.reciprocal(gate, out=gate)
        np.multiply(f, ins[2], out=cell)
        np.multiply(i, g, out=out)
        np.add(cell, out, out=cell)
        np.tanh(cell, out=out)
        np.multiply(out, o, out=out)

    def cost(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Cost:
        return Cost(13.0 * outs[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3, 8), (3, 8), (3, 2))), Sample({}, ((2, 20), (2, 20), (2, 5)), low=-3, high=3))


@dataclass(frozen=True)
class BackwardParams:
    """Parameters of the gradient of lstm_cell."""

    with_cell: bool = param(True, "bool", "whether a gradient of the new cell arrives")


@register
class LstmCellBackward(Op):
    """Gradients of the gates and of the old cell, from (out_grad[, cell_grad], old cell, cell, gates)."""

    name = "_lstm_cell_backward"
    Params = BackwardParams
    recompute = "cheap"

    def inputs(self, p: BackwardParams) -> tuple[str, ...]:
        return ("out_grad", *(("cell_grad",) if p.with_cell else ()), "old_cell", "cell", "gates")

    def outputs(self, p: BackwardParams) -> tuple[str, ...]:
        return ("gates_grad", "old_cell_grad")

    def infer_shape(self, p: BackwardParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        gate, state = _complete((ins[-1], outs[0]), (*ins[:-1], outs[1]))
        return [*[state] * (len(ins) - 1), gate], [gate, state]

    def inplace(self, p: BackwardParams) -> tuple[tuple[int, int], ...]:
        last = len(self.inputs(p)) - 1
        return ((last, 0), *((k, 1) for k in range(last)))

    def algorithms(self, p: BackwardParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*[(outs[1].shape, outs[1].dtype)] * 3)),)

    def compute(self, p: BackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, old, cell, gates = ins[0], *ins[-3:]
        first, through, second = (work.array(cell.shape, cell.dtype) for _ in range(3))
        i, f, g, o = _gates(gates)
        to_i, to_f, to_g, to_o = _gates(outs[0])
        np.tanh(cell, out=first)
        np.square(first, out=through)               # the gradient of the new cell: through tanh, and what arrives
        np.subtract(1, through, out=through)
        np.multiply(through, o, out=through)
        np.multiply(through, grad, out=through)
        if p.with_cell:
            np.add(through, ins[1], out=through)
        _logistic(o, first, grad, second, to_o)
        _logistic(i, g, through, second, second)    # g is read once more before i's place is written
        np.square(g, out=first)
        np.subtract(1, first, out=first)
        np.multiply(first, i, out=first)
        np.multiply(first, through, out=to_g)
        np.copyto(to_i, second)
        np.multiply(f, through, out=first)
        _logistic(f, old, through, second, to_f)
        np.copyto(outs[1], first)                   # last: it may lie on any other input

    def cost(self, p: BackwardParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Cost:
        return Cost(23.0 * outs[1].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def samples(self) -> Sequence[Sample]:
        state, gates = (3, 2), (3, 8)
        return (Sample({}, (state, state, state, state, gates), differentiable=False),
                Sample({"with_cell": False}, (state, state, state, gates), differentiable=False))


def _logistic(gate: np.ndarray, factor: np.ndarray, grad: np.ndarray, term: np.ndarray, out: np.ndarray) -> None:
    """out = gate (1 - gate) factor grad, where only `out` may lie on the gate."""
    np.subtract(1, gate, out=term)
    np.multiply(term, gate, out=term)
    np.multiply(term, factor, out=term)
    np.multiply(term, grad, out=out)
