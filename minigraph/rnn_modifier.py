"""Cells around a cell, which change what it does: zoneout, and a residual connection."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import symbol
from .base import MXNetError
from .ndarray import NDArray
from .rnn_cell import (
    BaseRNNCell,
    BidirectionalCell,
    RNNParams,
    SequentialRNNCell,
    States,
    join_steps,
    split_steps,
)
from .rnn_fused import FusedRNNCell
from .symbol.symbol import Symbol


class ModifierCell(BaseRNNCell):
    """Base of cells around `base_cell`, whose parameters and states they have; nobody may call it itself any more."""

    def __init__(self, base_cell: BaseRNNCell) -> None:
        super().__init__()
        base_cell.modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        """The variables of the cell within."""
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of the cell within."""
        return self.base_cell.state_info

    def reset(self) -> None:
        """Begin to count steps anew, also in the cell within."""
        super().reset()
        if hasattr(self, "base_cell"):
            self.base_cell.reset()

    def begin_state(self, func: Callable[..., Symbol] = symbol.zeros, **kwargs: Any) -> States:
        """First states of the cell within."""
        self._refuse_modified()
        self.base_cell.modified = False
        try:
            return self.base_cell.begin_state(func, **kwargs)
        finally:
            self.base_cell.modified = True

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """As of the cell within."""
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """As of the cell within."""
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """Zoneout (Krueger et al. 2016): in training each element of the output keeps the value of the step before with
    probability `zoneout_outputs`, and each of a state with `zoneout_states`. Before the first output lie zeros.
    """

    def __init__(self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if isinstance(base_cell, FusedRNNCell):
            raise MXNetError("FusedRNNCell has no steps that zoneout could change; give ZoneoutCell the cells that "
                             "unfuse() makes")
        if _runs_backwards(base_cell):
            raise MXNetError("a bidirectional cell has no steps that zoneout could change; put a ZoneoutCell around "
                             "each cell in it")
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states
        self.prev_output: Symbol | None = None

    def reset(self) -> None:
        """Begin anew, with zeros as the output before."""
        super().reset()
        self.prev_output = None

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        output, after = self.base_cell(inputs, states)
        before = symbol.zeros_like(output) if self.prev_output is None else self.prev_output
        output = _keep_some(self.zoneout_outputs, output, before)
        self.prev_output = output
        return output, [_keep_some(self.zoneout_states, new, old) for new, old in zip(after, states, strict=True)]


def _keep_some(share: float, new: Symbol, old: Symbol) -> Symbol:
    """`new`, and in training `old` where dropout takes a 1 away."""
    return symbol.where(symbol.Dropout(symbol.ones_like(new), p=share), new, old) if share else new


def _runs_backwards(cell: BaseRNNCell) -> bool:
    if isinstance(cell, ModifierCell):
        return _runs_backwards(cell.base_cell)
    return isinstance(cell, BidirectionalCell) or (
        isinstance(cell, SequentialRNNCell) and any(map(_runs_backwards, cell.cells)))


class ResidualCell(ModifierCell):
    """The output of the cell within plus its input (Wu et al. 2016)."""

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, States]:
        """The graph of the next step."""
        output, after = self.base_cell(inputs, states)
        return _plus(output, inputs), after

    def unroll(self, length: int, inputs: Any, begin_state: Sequence[Symbol] | None = None, layout: str = "NTC",
               merge_outputs: bool | None = None) -> tuple[Any, States]:
        """As BaseRNNCell.unroll; the cell within unrolls itself, so it may be one that has no single steps."""
        self.reset()
        self.base_cell.modified = False
        try:
            outputs, states = self.base_cell.unroll(length, inputs, begin_state, layout, merge_outputs)
        finally:
            self.base_cell.modified = True
        if isinstance(outputs, Symbol):
            whole = inputs if isinstance(inputs, Symbol) and len(inputs) == 1 \
                else join_steps(split_steps(inputs, length, layout), layout)
            return _plus(outputs, whole), states
        steps = split_steps(inputs, length, layout)
        return [_plus(output, step) for output, step in zip(outputs, steps, strict=True)], states


def _plus(output: Symbol, inputs: Symbol) -> Symbol:
    return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
