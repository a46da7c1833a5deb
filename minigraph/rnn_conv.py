"""Recurrent cells whose products are convolutions (Shi et al. 2015), over images of each step."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import symbol
from .base import MXNetError
from .rnn_cell import BaseRNNCell, RNNParams, States
from .symbol.symbol import Symbol

Pair = tuple[int, int]
Activation = str | Callable[..., Symbol]


def leaky(data: Symbol, **kwargs: Any) -> Symbol:
    """The cells' activation unless another is given: a leaky ReLU of slope 0.2."""
    return symbol.LeakyReLU(data, act_type="leaky", slope=0.2, **kwargs)


class BaseConvRNNCell(BaseRNNCell):
    """Base of the convolutional cells: inputs (batch, channels, height, width) as `input_shape` says, states of
    `num_hidden` channels and the size that the convolution of the inputs has.

    The state's convolution keeps its size, so its kernel must be odd. Parameters are as those of other cells, with the
    gates stacked along the first axis. `activation` is a name, or a function of a symbol and name=.
    """

    PREFIX = ""

    def __init__(self, input_shape: Sequence[int], num_hidden: int, h2h_kernel: Pair = (3, 3),
                 h2h_dilate: Pair = (1, 1), i2h_kernel: Pair = (3, 3), i2h_stride: Pair = (1, 1),
                 i2h_pad: Pair = (1, 1), i2h_dilate: Pair = (1, 1), i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros",
                 h2h_bias_initializer: Any = "zeros", activation: Activation = leaky, prefix: str | None = None,
                 params: RNNParams | None = None, conv_layout: str = "NCHW") -> None:
        super().__init__(self.PREFIX if prefix is None else prefix, params)
        if any(size % 2 == 0 for size in h2h_kernel):
            raise MXNetError(f"{type(self).__name__}: h2h_kernel={tuple(h2h_kernel)} must be odd, so that the state "
                             f"keeps its size")
        self._num_hidden, self._activation, self._conv_layout = num_hidden, activation, conv_layout
        pad = tuple(dilate * (size - 1) // 2 for dilate, size in zip(h2h_dilate, h2h_kernel, strict=True))
        self._settings: dict[str, dict[str, Any]] = {
            "i2h": {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate},
            "h2h": {"kernel": h2h_kernel, "pad": pad, "dilate": h2h_dilate}}
        given = {"i2h_weight": i2h_weight_initializer, "h2h_weight": h2h_weight_initializer,
                 "i2h_bias": i2h_bias_initializer, "h2h_bias": h2h_bias_initializer}
        self._weights = {name: self._params.get(name, init=init) for name, init in given.items()}
        first = symbol.Convolution(symbol.Variable("data"), num_filter=num_hidden, layout=conv_layout,
                                   **self._settings["i2h"])
        shapes = first.infer_shape(data=tuple(input_shape))[1]
        assert shapes is not None
        self._state_shape = (0, *shapes[0][1:])

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """One state, the last output."""
        return [{"shape": self._state_shape, "__layout__": self._conv_layout}]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> list[Symbol]:
        filters = self._num_hidden * len(self._gate_names)
        return [symbol.Convolution(data, weight=self._weights[f"{group}_weight"], bias=self._weights[f"{group}_bias"],
                                   num_filter=filters, layout=self._conv_layout, name=f"{name}{group}",
                                   **self._settings[group]) for group, data in (("i2h", inputs), ("h2h", state))]

    def _sliced(self, gates: Symbol, name: str) -> Symbol:
        return symbol.SliceChannel(gates, num_outputs=len(self._gate_names), axis=self._conv_layout.find("C"),
                                   name=name)

    def _activated(self, data: Symbol, **kwargs: Any) -> Symbol:
        if isinstance(self._activation, str):
            return symbol.Activation(data, act_type=self._activation, **kwargs)
        return self._activation(data, **kwargs)


class ConvRNNCell(BaseConvRNNCell):
    """The simple cell: activation(i2h + h2h)."""

    PREFIX = "ConvRNN_"

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ("",)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._activated(i2h + h2h, name=f"{name}out")
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """Long short-term memory with convolutions, gates i, f, c, o; states are output and cell."""

    PREFIX = "ConvLSTM_"

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
        i, f, c, o = self._sliced(i2h + h2h, f"{name}slice")
        i, f, o = (symbol.Activation(gate, act_type="sigmoid", name=f"{name}{letter}")
                   for letter, gate in (("i", i), ("f", f), ("o", o)))
        cell = symbol.elemwise_add(f * states[1], i * self._activated(c, name=f"{name}c"), name=f"{name}state")
        output = symbol.elemwise_mul(o, self._activated(cell), name=f"{name}out")
        return output, [output, cell]


class ConvGRUCell(BaseConvRNNCell):
    """Gated recurrent unit with convolutions, gates r, z, o."""

    PREFIX = "ConvGRU_"

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return "_r", "_z", "_o"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        name, state = self._step_name(), states[0]
        i2h, h2h = (self._sliced(product, f"{name}_{group}_slice") for group, product in
                    zip(("i2h", "h2h"), self._products(inputs, state, name), strict=True))
        reset = symbol.Activation(i2h[0] + h2h[0], act_type="sigmoid", name=f"{name}_r_act")
        update = symbol.Activation(i2h[1] + h2h[1], act_type="sigmoid", name=f"{name}_z_act")
        new = self._activated(i2h[2] + reset * h2h[2], name=f"{name}_h_act")
        output = symbol.elemwise_add((1.0 - update) * new, update * state, name=f"{name}out")
        return output, [output]
