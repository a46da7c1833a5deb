"""Values that wait in host memory, by the steps that need them, and when the first must begin to come back."""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...base import Entry


class Due:
    """Values away, each with the step that needs it next. `starts` are the seconds at which steps begin, with the end
    of the last one, and `copy_in_seconds` tells how long a value comes back; copies come one after the other."""

    def __init__(self, starts: Sequence[float], copy_in_seconds: Callable[[Entry], float]) -> None:
        self.starts, self.copy_in_seconds = starts, copy_in_seconds
        self.use: dict[Entry, int] = {}
        self.order: list[tuple[int, Entry]] = []
        self.needed, self.seconds = array("d"), array("d")
        """When each value of the order is needed, and how long it comes back."""
        self._latest: float | None = None

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self.use

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        """(step, value), the first needed first."""
        return iter(self.order)

    def add(self, entry: Entry, use: int) -> None:
        """A value leaves that the step `use` needs; one behind the last step is never needed."""
        self.use[entry] = use
        at = bisect_left(self.order, (use, entry))
        self.order.insert(at, (use, entry))
        self.needed.insert(at, self.starts[min(use, len(self.starts) - 1)])
        self.seconds.insert(at, self.copy_in_seconds(entry))
        self._latest = None

    def discard(self, entry: Entry) -> None:
        """A value is back, if it was away."""
        if entry in self.use:
            at = bisect_left(self.order, (self.use.pop(entry), entry))
            del self.order[at], self.needed[at], self.seconds[at]
            self._latest = None

    def pass_to(self, step: int, use_of: Callable[[Entry], int]) -> None:
        """Ask again which step needs those values whose step is passed."""
        while self.order and self.order[0][0] < step:
            entry = self.order[0][1]
            self.discard(entry)
            self.add(entry, use_of(entry))

    def latest(self) -> float:
        """The moment at which the first value must begin to come back for none of them to be late; without end where
        none is away."""
        if self._latest is None:
            self._latest = float((np.array(self.needed) - np.cumsum(np.array(self.seconds))).min(initial=np.inf))
        return self._latest
