"""Versions of values in a schedule, as arrays: each time that one is made is a version, and a reader meets the latest.

All questions are asked for whole columns at once; a schedule of hundreds of thousands of steps is nothing then.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
END = 1 << 60
"""The step of readers behind the end of a schedule."""


@dataclass(frozen=True)
class Lists:
    """A list of integers for each row: `count[row]` of `items` from `start[row]` on."""

    start: Ints
    count: Ints
    items: Ints

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Lists:
        """From one sequence for each row."""
        rows = list(rows)
        count = np.fromiter(map(len, rows), np.int64, len(rows))
        items = np.fromiter((item for row in rows for item in row), np.int64, int(count.sum()))
        return cls(np.cumsum(count) - count, count, items)

    def gather(self, rows: Ints) -> tuple[Ints, Ints]:
        """The lists of the rows one behind the other: for each item the position of its row in `rows`, and the item."""
        count = self.count[rows]
        position = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self.items[self.start[rows][position] + within]


class Versions:
    """The versions of `entries` many values in a schedule of `length` steps: first those of `inputs`, made at -1, then
    the others by the step `made_at` that makes them, those of one step in the order given."""

    def __init__(self, entries: int, length: int, inputs: Ints, made_at: Ints, made: Ints) -> None:
        order = np.argsort(made_at, kind="stable")
        self.made_at = np.concatenate((np.full(len(inputs), -1), made_at[order]))
        self.entry = np.concatenate((inputs, made[order]))
        self.last = self.made_at.copy()
        """The last step that needs each of them; a version that nobody reads is needed while it is made."""
        self._stride = length + 2
        self._index(self.entry * self._stride + self.made_at + 1, np.arange(len(self.entry)))

    def __len__(self) -> int:
        return len(self.entry)

    def _index(self, keys: Ints, versions: Ints) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._versions = keys[order], versions[order]

    def rename(self, steps: Ints, values: Ints, names: Ints) -> None:
        """From each of the steps on `names` means the version of `values` that the step meets."""
        if len(steps):
            keys = names * self._stride + steps + 1
            self._index(np.concatenate((self._keys, keys)),
                        np.concatenate((self._versions, self.met(steps, values))))

    def met(self, steps: Ints, entries: Ints) -> Ints:
        """The version of each entry that its step meets, made before it; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(steps), -1)
        found = np.searchsorted(self._keys, entries * self._stride + steps + 1) - 1
        return np.where((found >= 0) & (self._keys[found] // self._stride == entries), self._versions[found], -1)

    def use(self, steps: Ints, versions: Ints) -> None:
        """Note that steps, in rising order, need versions."""
        last = np.full(len(self) + 1, -1)
        last[versions] = steps  # the last one counts; those of no version go to the end
        np.maximum(self.last, last[:-1], out=self.last)

    def keep(self, entries: Ints) -> None:
        """Note that the first versions of entries are needed for ever."""
        if len(self._keys):
            first = np.searchsorted(self._keys, entries * self._stride)
            found = first < len(self._keys)
            first, entries = first[found], entries[found]
            self.last[self._versions[first[self._keys[first] // self._stride == entries]]] = END


def repeated(values: Ints) -> NDArray[np.bool_]:
    """Which of the values stood before."""
    again = np.ones(len(values), bool)
    again[np.unique(values, return_index=True)[1]] = False
    return again


def follows(steps: Ints, entries: Ints, first: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the events at some steps follow, as the next one of their entry, on one of the `first` kind."""
    order = np.lexsort((steps, entries))
    result = np.zeros(len(steps), bool)
    result[order[1:]] = (entries[order[1:]] == entries[order[:-1]]) & first[order[:-1]]
    return result
