"""RNN, MXNet's fused recurrent layers, unrolled into the graph: the planner sees every step of every layer.

All parameters lie in one vector: the weights (input, then state) of each layer and direction, and after all
of them the biases in the same order; gates are stacked along the rows, for lstm input, forget, new, output
and for gru reset, update, new.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Entry, MXNetError, PartialShape, Shape
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found, flat
from .random import DropoutParams
from .registry import get_op, register

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
"""Gates by mode."""


@dataclass(frozen=True)
class RnnParams:
    """Parameters of RNN."""

    state_size: int = param(REQUIRED, "int", "features of a state")
    num_layers: int = param(REQUIRED, "int", "layers, each above the other")
    bidirectional: bool = param(False, "bool", "whether a second cell reads each sequence backwards")
    mode: str = param(REQUIRED, "str", "kind of cell", tuple(GATES))
    p: float = param(0.0, "float", "probability of zeroing what a layer hands to the next, in training")
    state_outputs: bool = param(False, "bool", "whether the last states are outputs too")
    projection_size: int | None = param(None, "int", "refused, as by MXNet on a CPU")
    lstm_state_clip_min: float | None = param(None, "float", "refused, as by MXNet on a CPU")
    lstm_state_clip_max: float | None = param(None, "float", "refused, as by MXNet on a CPU")
    lstm_state_clip_nan: bool = param(False, "bool", "of no effect without the bounds of clipping")
    use_sequence_length: bool = param(False, "bool", "whether a last input tells the length of each sequence")

    @property
    def directions(self) -> int:
        """Cells a layer."""
        return 2 if self.bidirectional else 1

    @property
    def states(self) -> int:
        """State tensors: 2 for lstm."""
        return 2 if self.mode == "lstm" else 1


MOST_LAYERS = 1 << 12
"""Layers of one RNN: each step of each is a node or more, so that more would be planned for hours."""


def weight_shapes(p: RnnParams, features: int) -> list[Shape]:
    """Shapes of all parameters in the order of the vector, for data of so many features; ShapeError for
    more than MOST_LAYERS."""
    if p.num_layers > MOST_LAYERS:
        raise ShapeError(f"RNN: num_layers {p.num_layers} is more than {MOST_LAYERS}, the most that are supported")
    rows, width = GATES[p.mode] * p.state_size, p.state_size * p.directions
    weights: list[Shape] = []
    for layer in range(p.num_layers):
        weights += [(rows, width if layer else features), (rows, p.state_size)] * p.directions
    return weights + [(rows,)] * len(weights)


@register
class Rnn(Op):
    """Recurrent layers over data (time, batch, features), from states (layers x directions, batch, state_size).

    Outputs (time, batch, directions x state_size) and, with state_outputs, the states after the last step. With
    use_sequence_length an input (batch,) tells how many steps of each sequence count: outputs past its end are 0, the
    last states are those at its end, and the second direction begins there.
    """

    name = "RNN"
    Params = RnnParams

    def inputs(self, p: RnnParams) -> tuple[str, ...]:
        return ("data", "parameters", *("state", "state_cell")[:p.states],
                *(("sequence_length",) if p.use_sequence_length else ()))

    def outputs(self, p: RnnParams) -> tuple[str, ...]:
        if not p.state_outputs:
            return ("output",)
        return ("output", *("state", "state_cell")[:p.states])

    def infer_dtype(self, p: RnnParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        tensors, rest = ins[:2 + p.states], ins[2 + p.states:]
        tensors, outs = super().infer_dtype(p, tensors, outs)
        return [*tensors, *(t or tensors[0] for t in rest)], outs

    def infer_shape(self, p: RnnParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if min(p.state_size, p.num_layers) < 1 or not 0 <= p.p <= 1:
            raise ShapeError(f"RNN: state_size {p.state_size} and num_layers {p.num_layers} must be at least 1, and "
                             f"p={p.p} in [0, 1]")
        for name in ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max"):
            if getattr(p, name) is not None:
                raise MXNetError(f"RNN: {name}={getattr(p, name)} is not supported, as by MXNet on a CPU; leave it out")
        data = merge_shapes(ins[0], None if ins[2] is None or len(ins[2]) != 3 else (None, ins[2][1], None))
        if data is None:
            return ins, outs
        if len(data) != 3:
            raise ShapeError(f"RNN: data {format_shape(data)} must be (time, batch, features)")
        if data[0] == 0:
            raise ShapeError(f"RNN: data {format_shape(data)} has no step along axis 0, time; give at least one")
        size = None if data[2] is None else sum(map(prod, weight_shapes(p, data[2])))
        states, lengths = ins[2:2 + p.states], ins[2 + p.states:]
        state = merge_shapes((p.num_layers * p.directions, data[1], p.state_size), *states, *outs[1:])
        out = merge_shapes((*data[:2], p.directions * p.state_size), outs[0])
        return ([data, merge_shapes(ins[1], (size,)), *[state] * p.states,
                 *(merge_shapes(each, (data[1],)) for each in lengths)], [out, *[state] * (len(outs) - 1)])

    def expand(self, b: Builder, p: RnnParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data, parameters, *states = ins[:2 + p.states]
        lengths = ins[2 + p.states:]
        features = b.shape(data)[2]
        pieces = b.node("_rnn_parameters", [parameters], state_size=p.state_size, num_layers=p.num_layers,
                        mode=p.mode, bidirectional=p.bidirectional, features=features)
        firsts = [_parts(b, state) for state in states]
        count = len(pieces) // 2
        lasts: list[list[Entry]] = []
        for layer in range(p.num_layers):
            if layer and p.p and train:
                data = get_op("Dropout").expand(b, DropoutParams(p=p.p), [data], train)[0]
            outputs = []
            for direction in range(p.directions):
                cell = layer * p.directions + direction
                weights = [pieces[2 * cell], pieces[2 * cell + 1], *pieces[count + 2 * cell:count + 2 * cell + 2]]
                first = [each[cell] for each in firsts]
                out, last = _direction(b, p, data, weights, first, direction == 1, lengths)
                outputs.append(out)
                lasts.append(last)
            data = outputs[0] if len(outputs) == 1 else only(b.node("Concat", outputs, num_args=2, dim=2))
        if not p.state_outputs:
            return [data]
        return [data, *(only(b.node("stack", each, num_args=len(each), axis=0)) for each in zip(*lasts, strict=True))]

    def samples(self) -> Sequence[Sample]:
        def sample(mode: str, data: Shape, size: int, layers: int = 1, **params: Any) -> Sample:
            params = {"mode": mode, "state_size": size, "num_layers": layers, **params}
            p = RnnParams(**params)
            total = sum(map(prod, weight_shapes(p, data[2])))
            state = (layers * p.directions, data[1], size)
            return Sample(params, (data, (total,), *[state] * (2 if mode == "lstm" else 1)), rtol=1e-3)
        return [sample("rnn_tanh", (3, 2, 4), 3), sample("rnn_relu", (2, 2, 3), 2),
                sample("lstm", (3, 2, 2), 3, state_outputs=True), sample("gru", (3, 1, 2), 2, state_outputs=True),
                sample("lstm", (2, 3, 2), 2, layers=2, bidirectional=True, state_outputs=True),
                sample("gru", (1, 2, 3), 2, layers=2, bidirectional=True)]


def _parts(b: Builder, entry: Entry) -> tuple[Entry, ...]:
    """The slices of an entry along axis 0."""
    return b.node("SliceChannel", [entry], num_outputs=b.shape(entry)[0], axis=0, squeeze_axis=True)


def _direction(b: Builder, p: RnnParams, data: Entry, weights: Sequence[Entry], states: list[Entry], backwards: bool,
               lengths: Sequence[Entry]) -> tuple[Entry, list[Entry]]:
    """(outputs of a cell in the order of time, its last states).

    Sequences of several lengths are reversed each about its own end before the steps, and back after them.
    """
    turn = backwards and bool(lengths)
    if turn:
        data = _of_sequences(b, "SequenceReverse", data, lengths)
    steps = _unroll(b, p, data, weights, states, backwards and not turn)
    outputs = [step[0] for step in steps]
    if backwards and not turn:
        outputs.reverse()
    out = _stacked(b, outputs)
    if not lengths:
        return out, steps[-1]
    last = [_of_sequences(b, "SequenceLast", out if k == 0 else _stacked(b, [step[k] for step in steps]), lengths)
            for k in range(p.states)] if p.state_outputs else []
    out = _of_sequences(b, "SequenceMask", out, lengths)
    return _of_sequences(b, "SequenceReverse", out, lengths) if turn else out, last


def _of_sequences(b: Builder, op: str, data: Entry, lengths: Sequence[Entry]) -> Entry:
    return only(b.node(op, [data, *lengths], use_sequence_length=True, axis=0,
                       **({"value": 0.0} if op == "SequenceMask" else {})))


def _stacked(b: Builder, steps: Sequence[Entry]) -> Entry:
    return only(b.node("stack", steps, num_args=len(steps), axis=0))


def _unroll(b: Builder, p: RnnParams, data: Entry, weights: Sequence[Entry], states: list[Entry],
            backwards: bool) -> list[list[Entry]]:
    """The states after each step, in the order of the steps; all steps' inputs are multiplied at once. Where gates only
    see the sum of both biases, it is added there."""
    input_weight, state_weight, *biases = weights
    rows, together = GATES[p.mode] * p.state_size, p.mode != "gru"
    if together:
        biases = [_pair(b, "elemwise_add", *biases)]
    gates = _parts(b, only(b.node("FullyConnected", [data, input_weight, biases[0]], num_hidden=rows, no_bias=False,
                                  flatten=False)))
    steps = []
    for gate in gates[::-1] if backwards else gates:
        moved = only(b.node("FullyConnected", [states[0], state_weight, *biases[1:]], num_hidden=rows,
                            no_bias=together, flatten=True))
        states = _STEPS[p.mode](b, gate, moved, states)
        steps.append(states)
    return steps


def _act(b: Builder, kind: str, entry: Entry) -> Entry:
    return only(b.node("Activation", [entry], act_type=kind))


def _pair(b: Builder, op: str, lhs: Entry, rhs: Entry) -> Entry:
    return only(b.node(op, [lhs, rhs]))


def _plain_step(kind: str) -> Any:
    def step(b: Builder, gate: Entry, moved: Entry, states: list[Entry]) -> list[Entry]:
        return [_act(b, kind, _pair(b, "elemwise_add", gate, moved))]
    return step


def _lstm_step(b: Builder, gate: Entry, moved: Entry, states: list[Entry]) -> list[Entry]:
    """c <- f c + i g and h = o tanh(c)."""
    return list(b.node("lstm_cell", [gate, moved, states[1]])[:2])


def _gru_step(b: Builder, gate: Entry, moved: Entry, states: list[Entry]) -> list[Entry]:
    """h <- n + z (h - n), where n = tanh(x_n + r h_n) resets the product with the state."""
    of_input = b.node("SliceChannel", [gate], num_outputs=3, axis=1)
    of_state = b.node("SliceChannel", [moved], num_outputs=3, axis=1)
    r, z = (_act(b, "sigmoid", _pair(b, "elemwise_add", of_input[k], of_state[k])) for k in (0, 1))
    new = _act(b, "tanh", _pair(b, "elemwise_add", of_input[2], _pair(b, "elemwise_mul", r, of_state[2])))
    kept = _pair(b, "elemwise_mul", z, _pair(b, "elemwise_sub", states[0], new))
    return [_pair(b, "elemwise_add", new, kept)]


_STEPS = {"rnn_relu": _plain_step("relu"), "rnn_tanh": _plain_step("tanh"), "lstm": _lstm_step, "gru": _gru_step}


@dataclass(frozen=True)
class RnnParametersParams:
    """Parameters of the parting of an RNN's parameters, and of its gradient."""

    state_size: int = param(1, "int", "features of a state")
    num_layers: int = param(1, "int", "layers")
    mode: str = param("rnn_tanh", "str", "kind of cell", tuple(GATES))
    bidirectional: bool = param(False, "bool", "whether there are two cells a layer")
    features: int = param(1, "int", "features of the data")

    @property
    def directions(self) -> int:
        """Cells a layer."""
        return 2 if self.bidirectional else 1


def _pieces(vector: np.ndarray, shapes: Sequence[Shape]) -> Iterator[np.ndarray]:
    """The parts of a flat vector, as views of these shapes."""
    start = 0
    for shape in shapes:
        yield vector[start:start + prod(shape)].reshape(shape)
        start += prod(shape)


@register
class _RnnParameters(Op):
    """The vector of an RNN's parameters in its parts."""

    name = "_rnn_parameters"
    Params = RnnParametersParams
    recompute = "cheap"

    def inputs(self, p: RnnParametersParams) -> tuple[str, ...]:
        return ("parameters",)

    def outputs(self, p: RnnParametersParams) -> tuple[str, ...]:
        return tuple(f"part{i}" for i in range(len(self._shapes(p))))

    @staticmethod
    def _shapes(p: RnnParametersParams) -> list[Shape]:
        return weight_shapes(p, p.features)  # type: ignore[arg-type]

    def infer_shape(self, p: RnnParametersParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shapes = self._shapes(p)
        return [merge_shapes(ins[0], (sum(map(prod, shapes)),))], [
            merge_shapes(out, shape) for out, shape in zip(outs, shapes, strict=True)]

    def compute(self, p: RnnParametersParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for out, piece in zip(outs, _pieces(flat(ins[0]), self._shapes(p)), strict=True):
            np.copyto(out, piece)

    def gradient(self, b: Builder, p: RnnParametersParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if not wanted[0] or all(g is None for g in grads):
            return [None]
        parts = [only(b.node("zeros_like", [out])) if g is None else g
                 for g, out in zip(grads, outs, strict=True)]
        return [only(b.node("_rnn_parameters_backward", parts, **vars(p)))]


@register
class _RnnParametersBackward(Op):
    """The gradients of all parts in one vector."""

    name = "_rnn_parameters_backward"
    Params = RnnParametersParams
    recompute = "cheap"

    def inputs(self, p: RnnParametersParams) -> tuple[str, ...]:
        return tuple(f"part{i}" for i in range(len(_RnnParameters._shapes(p))))

    def outputs(self, p: RnnParametersParams) -> tuple[str, ...]:
        return ("parameters_grad",)

    def infer_shape(self, p: RnnParametersParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shapes = _RnnParameters._shapes(p)
        return [merge_shapes(given, shape) for given, shape in zip(ins, shapes, strict=True)], [
            merge_shapes(outs[0], (sum(map(prod, shapes)),))]

    def compute(self, p: RnnParametersParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for part, piece in zip(ins, _pieces(flat(outs[0]), _RnnParameters._shapes(p)), strict=True):
            np.copyto(piece, part)
