"""Recurrent cells as symbols, under MXNet's names; `mx.rnn`.

A cell makes the graph of one step; `unroll` repeats it. Parameters are variables with the cell's prefix:
`<prefix>i2h_weight`, `<prefix>h2h_weight` and the two biases, with the gates stacked along the rows.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import initializer, ndarray, symbol
from .base import MXNetError
from .ndarray import NDArray
from .symbol.symbol import Symbol

States = list[Symbol]


class RNNParams:
    """Variables by name, made when they are first asked for; cells that are given the same one share weights."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable of that name behind the prefix; `kwargs` are those of Variable."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.Variable(name, **kwargs)
        return self._params[name]


class BaseRNNCell:
    """What all cells have: `cell(inputs, states) -> (output, states)`, `begin_state`, and `unroll`."""

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self.modified = False
        """Whether another cell changes what this one does, and is to be asked in its place."""
        self._init_counter = self._counter = -1

    def reset(self) -> None:
        """Begin to count steps anew, for another sequence."""
        self._init_counter = self._counter = -1

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step, from inputs (batch, features) and states."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    @property
    def params(self) -> RNNParams:
        """The cell's variables, to be given to another cell that is to share them."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape (0, the batch, is unknown) and layout of each state."""
        raise NotImplementedError(f"{type(self).__name__} must define state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """Shapes of the states."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ()

    def begin_state(self, func: Callable[..., Symbol] = symbol.zeros, **kwargs: Any) -> States:
        """First states, zeros by default; `func` is called with name=, shape= and `kwargs` for each."""
        self._refuse_modified()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            given = {"shape": info["shape"], **kwargs}
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **given))
        return states

    def _refuse_modified(self) -> None:
        if self.modified:
            raise MXNetError(f"the {type(self).__name__} {self._prefix!r} lies in another cell that changes what it "
                             f"does, such as a ZoneoutCell; call that one instead")

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The arguments with this cell's stacked gates as an array each, `<prefix>i2h<gate>_weight`."""
        found = dict(args)
        if self._gate_names:
            for group in ("i2h", "h2h"):
                for kind in ("weight", "bias"):
                    stacked = found.pop(f"{self._prefix}{group}_{kind}")
                    rows = stacked.shape[0] // len(self._gate_names)
                    for k, gate in enumerate(self._gate_names):
                        found[f"{self._prefix}{group}{gate}_{kind}"] = stacked[k * rows:(k + 1) * rows].copy()
        return found

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """The reverse of `unpack_weights`."""
        found = dict(args)
        if self._gate_names:
            for group in ("i2h", "h2h"):
                for kind in ("weight", "bias"):
                    parts = [found.pop(f"{self._prefix}{group}{gate}_{kind}") for gate in self._gate_names]
                    found[f"{self._prefix}{group}_{kind}"] = ndarray.concatenate(parts)
        return found

    def unroll(self, length: int, inputs: Any, begin_state: Sequence[Symbol] | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """(outputs, last states) of `length` steps over a symbol in `layout`, or a list of a symbol for each step.

        Outputs are a list, or with `merge_outputs` one symbol in `layout`.
        """
        self.reset()
        steps = split_steps(inputs, length, layout)
        states: Sequence[Symbol] = self.begin_state() if begin_state is None else begin_state
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return join_steps(outputs, layout) if merge_outputs else outputs, list(states)

    def _step_name(self) -> str:
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"


def split_steps(inputs: Any, length: int, layout: str) -> list[Symbol]:
    """A symbol (batch, features) for each step."""
    if isinstance(inputs, Symbol) and len(inputs) == 1:
        axis = layout.find("T")
        if length == 1:
            return [symbol.Reshape(inputs, shape=(-3, -2))]
        return list(symbol.SliceChannel(inputs, num_outputs=length, axis=axis, squeeze_axis=True))
    steps = list(inputs)
    if len(steps) != length:
        raise MXNetError(f"unroll is to make {length} steps and was given inputs for {len(steps)}")
    return steps


def join_steps(outputs: Sequence[Symbol], layout: str) -> Symbol:
    """One symbol in `layout` from one for each step."""
    axis = layout.find("T")
    return symbol.Concat(*(symbol.expand_dims(each, axis=axis) for each in outputs), dim=axis)


class _GatedCell(BaseRNNCell):
    """A cell of two products, of the input and of the last output, with all gates in each."""

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, **i2h_bias: Any) -> None:
        super().__init__(prefix, params)
        self._num_hidden = num_hidden
        self._weights = {name: self._params.get(name, **(i2h_bias if name == "i2h_bias" else {}))
                         for name in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")}

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """One state, the last output."""
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"}]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        rows = self._num_hidden * len(self._gate_names)
        i2h, h2h = (symbol.FullyConnected(data, weight=self._weights[f"{group}_weight"],
                                          bias=self._weights[f"{group}_bias"], num_hidden=rows, name=f"{name}{group}")
                    for group, data in (("i2h", inputs), ("h2h", state)))
        return i2h, h2h


class RNNCell(_GatedCell):
    """output = activation(W x + b + U h + c)."""

    def __init__(self, num_hidden: int, activation: str = "tanh", prefix: str = "rnn_",
                 params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ("",)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        output = symbol.Activation(i2h + h2h, act_type=self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(_GatedCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates i, f, c, o; states are output and cell.

    The forget gate's bias begins at `forget_bias`.
    """

    def __init__(self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None,
                 forget_bias: float = 1.0) -> None:
        super().__init__(num_hidden, prefix, params, init=initializer.LSTMBias(forget_bias=forget_bias))

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Two states, the last output and the cell."""
        return super().state_info * 2

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return "_i", "_f", "_c", "_o"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        i, f, c, o = symbol.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        i, f, o = (symbol.Activation(gate, act_type="sigmoid", name=f"{name}{letter}")
                   for letter, gate in (("i", i), ("f", f), ("o", o)))
        c = symbol.Activation(c, act_type="tanh", name=f"{name}c")
        cell = symbol.elemwise_add(f * states[1], i * c, name=f"{name}state")
        output = symbol.elemwise_mul(o, symbol.Activation(cell, act_type="tanh"), name=f"{name}out")
        return output, [output, cell]


class GRUCell(_GatedCell):
    """Gated recurrent unit (Cho et al. 2014) in cuDNN's form, gates r, z, o."""

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return "_r", "_z", "_o"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        name, state = self._step_name(), states[0]
        i2h, h2h = (symbol.SliceChannel(product, num_outputs=3, name=f"{name}{group}_slice") for group, product in
                    zip(("i2h", "h2h"), self._products(inputs, state, name), strict=True))
        reset = symbol.Activation(i2h[0] + h2h[0], act_type="sigmoid", name=f"{name}r_act")
        update = symbol.Activation(i2h[1] + h2h[1], act_type="sigmoid", name=f"{name}z_act")
        new = symbol.Activation(i2h[2] + reset * h2h[2], act_type="tanh", name=f"{name}h_act")
        output = symbol.elemwise_add((1.0 - update) * new, update * state, name=f"{name}out")
        return output, [output]


class DropoutCell(BaseRNNCell):
    """Dropout of the inputs at each step; it has no state."""

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        self.dropout = dropout

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """None."""
        return []

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The inputs, some of them dropped in training."""
        return symbol.Dropout(inputs, p=self.dropout) if self.dropout > 0 else inputs, list(states)


class _Container(BaseRNNCell):
    """A cell made of others."""

    def __init__(self, prefix: str, params: RNNParams | None) -> None:
        super().__init__(prefix, params)
        self._cells: list[BaseRNNCell] = []

    def _adopt(self, cell: BaseRNNCell) -> None:
        self._cells.append(cell)
        if not self._own_params:
            if not cell._own_params:
                raise MXNetError("give params to the outer cell or to the inner ones, not to both")
            cell.params._params.update(self.params._params)
        self._params._params.update(cell.params._params)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of all cells in turn."""
        return [info for cell in self._cells for info in cell.state_info]

    def reset(self) -> None:
        """Begin to count steps anew in all cells."""
        super().reset()
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    def begin_state(self, func: Callable[..., Symbol] = symbol.zeros, **kwargs: Any) -> States:
        """First states of all cells in turn."""
        self._refuse_modified()
        return [state for cell in self._cells for state in cell.begin_state(func, **kwargs)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """As of each cell in turn."""
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return dict(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """As of each cell in turn."""
        for cell in self._cells:
            args = cell.pack_weights(args)
        return dict(args)

    def _parts(self, states: Sequence[Symbol]) -> list[Sequence[Symbol]]:
        """The states of each cell."""
        parts, at = [], 0
        for cell in self._cells:
            count = len(cell.state_info)
            parts.append(states[at:at + count])
            at += count
        return parts


class SequentialRNNCell(_Container):
    """Cells on top of each other."""

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__("", params)

    @property
    def cells(self) -> list[BaseRNNCell]:
        """The cells, from the bottom up."""
        return list(self._cells)

    def add(self, cell: BaseRNNCell) -> None:
        """Put a cell on top."""
        self._adopt(cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step of all cells."""
        after: States = []
        for cell, part in zip(self._cells, self._parts(states), strict=True):
            inputs, part = cell(inputs, part)
            after += part
        return inputs, after

    def unroll(self, length: int, inputs: Any, begin_state: Sequence[Symbol] | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """As BaseRNNCell.unroll, one cell after the other: some may need whole sequences."""
        self.reset()
        outputs: Any = split_steps(inputs, length, layout)
        states: States = []
        parts = self._parts(self.begin_state() if begin_state is None else begin_state)
        for cell, part in zip(self._cells, parts, strict=True):
            outputs, after = cell.unroll(length, outputs, part, layout, merge_outputs=False)
            states += after
        return join_steps(outputs, layout) if merge_outputs else outputs, states


class BidirectionalCell(_Container):
    """One cell forwards and one backwards; their outputs side by side."""

    def __init__(self, l_cell: BaseRNNCell, r_cell: BaseRNNCell, params: RNNParams | None = None,
                 output_prefix: str = "bi_") -> None:
        super().__init__("", params)
        self._output_prefix = output_prefix
        self._adopt(l_cell)
        self._adopt(r_cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """Refused: a step backwards needs the whole sequence."""
        raise MXNetError("Bidirectional cannot be stepped. Please use unroll")

    def unroll(self, length: int, inputs: Any, begin_state: Sequence[Symbol] | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """As BaseRNNCell.unroll."""
        self.reset()
        steps = split_steps(inputs, length, layout)
        left, right = self._cells
        first, second = self._parts(self.begin_state() if begin_state is None else begin_state)
        forwards, left_states = left.unroll(length, steps, first, layout, merge_outputs=False)
        backwards, right_states = right.unroll(length, steps[::-1], second, layout, merge_outputs=False)
        pairs = zip(forwards, backwards[::-1], strict=True)
        outputs = [symbol.Concat(*pair, dim=1, name=f"{self._output_prefix}t{t}") for t, pair in enumerate(pairs)]
        return join_steps(outputs, layout) if merge_outputs else outputs, left_states + right_states
