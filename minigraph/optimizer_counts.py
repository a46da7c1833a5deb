"""How often an optimizer has updated each parameter."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .formats.optimizer_states import Key


class Counts:
    """Updates by parameter, as one vector, so that a step of thousands of parameters is counted at once."""

    def __init__(self, start: int, counts: Mapping[Key, int] | None = None) -> None:
        self._start = start
        self._slot = {key: slot for slot, key in enumerate(counts or {})}
        self._values = np.array(list((counts or {}).values()), np.int64)
        self._slots: dict[tuple[Key, ...], np.ndarray] = {}

    def advance(self, keys: tuple[Key, ...]) -> np.ndarray:
        """Count one update of each key; the new counts."""
        slots = self._slots.get(keys)
        if slots is None:
            numbers = [self._slot.setdefault(key, len(self._slot)) for key in keys]
            slots = self._slots[keys] = np.array(numbers, np.intp)
            fresh = len(self._slot) - len(self._values)
            self._values = np.concatenate([self._values, np.full(fresh, self._start, np.int64)])
        self._values[slots] += 1
        return self._values[slots]

    def take_back(self, keys: tuple[Key, ...]) -> None:
        """Count one update of each key less, which `advance` has counted."""
        self._values[self._slots[keys]] -= 1

    def as_dict(self) -> dict[Key, int]:
        """Counts by key."""
        return {key: int(self._values[slot]) for key, slot in self._slot.items()}

    def __getitem__(self, key: Key) -> int:
        """The count of a key."""
        return int(self._values[self._slot[key]]) if key in self._slot else self._start


class CountsByIndex:
    """Update counts by a parameter's number or name."""

    def __init__(self, counts: Counts, names: Mapping[Any, str]) -> None:
        self._counts = counts
        self._names = names

    def __getitem__(self, index: Key) -> int:
        return self._counts[self._names.get(index, index)]
