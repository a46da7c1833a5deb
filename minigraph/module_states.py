"""States that a module hands itself from batch to batch, such as a recurrent network's last outputs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .base import MXNetError, Shape, TensorType
from .context import cpu
from .ndarray import HostStorage, NDArray


class ModuleStates:
    """Inputs that no iterator gives: zeros until they are set, and after that the values set last.

    `type_of` tells an input's present shape and dtype. Where that shape changes, with a batch of another size, a state
    is zeros again.
    """

    def __init__(self, names: Sequence[str], type_of: Callable[[str], TensorType]) -> None:
        self.names = list(names)
        self._type_of = type_of
        self._values: dict[str, np.ndarray] = {}

    def feeds(self) -> dict[str, np.ndarray]:
        """The states' values by name."""
        return {name: self._value(name) for name in self.names}

    def _value(self, name: str) -> np.ndarray:
        kind, value = self._type_of(name), self._values.get(name)
        if value is None or value.shape != kind.shape:
            value = self._values[name] = np.zeros(kind.shape, kind.dtype)
        return value

    def arrays(self) -> list[NDArray]:
        """Copies of the states."""
        return [NDArray(HostStorage(value.copy(), cpu())) for value in self.feeds().values()]

    def set(self, states: Sequence[Any] | None, value: float | None) -> None:
        """Copy an array into each state, in order, each perhaps in a list of one, or fill all with one number."""
        if (states is None) == (value is None):
            raise MXNetError("set_states takes either states=, an array for each, or value=, a number for all")
        if states is None:
            self._values = {name: np.full(self._shape(name), value, self._type_of(name).dtype) for name in self.names}
            return
        arrays = [each[0] if isinstance(each, (list, tuple)) and len(each) == 1 else each for each in states]
        if len(arrays) != len(self.names):
            raise MXNetError(f"set_states was given {len(arrays)} arrays, and the states are {self.names}")
        for name, array in zip(self.names, arrays, strict=True):
            if np.shape(array) != self._shape(name):
                raise MXNetError(f"the state {name} has shape {self._shape(name)}, and set_states was given an array "
                                 f"of shape {np.shape(array)}")
        copies = [array.asnumpy() if isinstance(array, NDArray) else np.array(array) for array in arrays]
        self._values = {name: copy.astype(self._type_of(name).dtype)
                        for name, copy in zip(self.names, copies, strict=True)}

    def _shape(self, name: str) -> Shape:
        return self._type_of(name).shape
