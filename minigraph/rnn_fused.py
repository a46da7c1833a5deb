"""FusedRNNCell: layers of recurrent cells as one operator, under MXNet's name; part of `mx.rnn`."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import initializer, ndarray, symbol
from .base import MXNetError
from .initializer import fused_pieces, fused_size
from .ndarray import NDArray
from .rnn_cell import (
    BaseRNNCell,
    BidirectionalCell,
    DropoutCell,
    GRUCell,
    LSTMCell,
    RNNCell,
    RNNParams,
    SequentialRNNCell,
    States,
    join_steps,
    split_steps,
)
from .symbol.symbol import Symbol


class FusedRNNCell(BaseRNNCell):
    """Several layers as one operator RNN, whose parameters are one vector; mode rnn_relu, rnn_tanh, lstm or gru."""

    def __init__(self, num_hidden: int, num_layers: int = 1, mode: str = "lstm", bidirectional: bool = False,
                 dropout: float = 0.0, get_next_state: bool = False, forget_bias: float = 1.0,
                 prefix: str | None = None, params: RNNParams | None = None) -> None:
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        if mode not in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
            raise MXNetError(f"FusedRNNCell has the modes rnn_relu, rnn_tanh, lstm and gru, got {mode!r}")
        self._num_hidden, self._num_layers, self._mode = num_hidden, num_layers, mode
        self._bidirectional, self._dropout = bidirectional, dropout
        self._get_next_state, self._forget_bias = get_next_state, forget_bias
        self._directions = ("l", "r") if bidirectional else ("l",)
        self._parameters = self._params.get("parameters", init=initializer.FusedRNN(
            None, num_hidden, num_layers, mode, bidirectional, forget_bias))

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The last outputs of all layers and directions, and for lstm their cells."""
        shape = (self._num_layers * len(self._directions), 0, self._num_hidden)
        return [{"shape": shape, "__layout__": "LNC"}] * (2 if self._mode == "lstm" else 1)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """Refused: the operator runs whole sequences."""
        raise MXNetError("FusedRNNCell cannot be stepped. Please use unroll")

    def unroll(self, length: int, inputs: Any, begin_state: Sequence[Symbol] | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """As BaseRNNCell.unroll; states are returned only with `get_next_state`, and outputs are merged by default."""
        self.reset()
        if not isinstance(inputs, Symbol):
            inputs = join_steps(split_steps(inputs, length, layout), layout)
        in_time = symbol.SwapAxis(inputs, dim1=0, dim2=1) if layout == "NTC" else inputs
        states = self.begin_state() if begin_state is None else list(begin_state)
        named = dict(zip(("state", "state_cell"), states, strict=False))
        rnn = symbol.RNN(data=in_time, parameters=self._parameters, state_size=self._num_hidden,
                         num_layers=self._num_layers, bidirectional=self._bidirectional, p=self._dropout,
                         state_outputs=self._get_next_state, mode=self._mode, name=f"{self._prefix}rnn", **named)
        outputs = symbol.SwapAxis(rnn[0], dim1=0, dim2=1) if layout == "NTC" else rnn[0]
        after = [rnn[k] for k in range(1, len(rnn))]
        return outputs if merge_outputs in (None, True) else split_steps(outputs, length, layout), after

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The arguments with the vector as an array for each gate, as cells of `unfuse` have them unpacked."""
        found = dict(args)
        vector = found.pop(f"{self._prefix}parameters").asnumpy()
        pieces = fused_pieces(vector, self._num_hidden, self._num_layers, self._mode, self._bidirectional)
        for name, piece in pieces.items():
            for gate, part in zip(self._gate_names, np.split(piece, len(self._gate_names)), strict=True):
                cell, kind = name.rsplit("_", 1)
                found[f"{self._prefix}{cell}{gate}_{kind}"] = ndarray.array(part, dtype=vector.dtype)
        return found

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The reverse of `unpack_weights`."""
        found = dict(args)
        first = found[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"]
        size = fused_size(first.shape[1], self._num_hidden, self._num_layers, self._mode, self._bidirectional)
        vector: np.ndarray = np.empty(size, first.dtype)
        pieces = fused_pieces(vector, self._num_hidden, self._num_layers, self._mode, self._bidirectional)
        for name, piece in pieces.items():
            cell, kind = name.rsplit("_", 1)
            gates = [found.pop(f"{self._prefix}{cell}{gate}_{kind}").asnumpy() for gate in self._gate_names]
            piece[:] = np.concatenate(gates)
        found[f"{self._prefix}parameters"] = ndarray.array(vector, dtype=vector.dtype)
        return found

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return {"lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}.get(self._mode, ("",))

    def unfuse(self) -> SequentialRNNCell:
        """The same layers as single cells, for weights of `unpack_weights`."""
        stack = SequentialRNNCell()
        for layer in range(self._num_layers):
            cells = [self._single(f"{self._prefix}{side}{layer}_") for side in self._directions]
            stack.add(cells[0] if len(cells) == 1 else BidirectionalCell(
                cells[0], cells[1], output_prefix=f"{self._prefix}bi_l{layer}_"))
            if self._dropout > 0 and layer != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{layer}_"))
        return stack

    def _single(self, prefix: str) -> BaseRNNCell:
        if self._mode == "lstm":
            return LSTMCell(self._num_hidden, prefix, forget_bias=self._forget_bias)
        if self._mode == "gru":
            return GRUCell(self._num_hidden, prefix)
        return RNNCell(self._num_hidden, self._mode.removeprefix("rnn_"), prefix)
