"""A link to host memory over one step: which of its time is still free for copies."""
from __future__ import annotations

import numpy as np

SLOTS = 1024
"""Slots into which the time of a step is cut; a copy begins and ends between them."""


class Link:
    """One direction of a link, which makes one copy at a time. Times are in seconds from the step's beginning."""

    def __init__(self, step_seconds: float) -> None:
        self.width = max(step_seconds, 1e-12) / SLOTS
        self.free = np.full(SLOTS, self.width)

    def end_after(self, begin: float, seconds: float) -> float:
        """When a copy that may begin at `begin` would have ended; beyond the step, as if it went on alone."""
        passed = np.cumsum(self.free[self._slot(begin):])
        slot = int(np.searchsorted(passed, seconds))
        if slot == len(passed):
            return SLOTS * self.width + seconds - (float(passed[-1]) if slot else 0.0)
        return (self._slot(begin) + slot + 1) * self.width

    def free_between(self, begin: float, end: float) -> float:
        """Seconds that are free between two moments."""
        return float(self.free[self._slot(begin):int(end / self.width)].sum())

    def take_after(self, begin: float, seconds: float) -> None:
        """Take the first free seconds from `begin` on."""
        _take(self.free[self._slot(begin):], seconds)

    def take_before(self, end: float, seconds: float) -> None:
        """Take the last free seconds until `end`."""
        _take(self.free[:int(end / self.width)][::-1], seconds)

    def _slot(self, begin: float) -> int:
        """The first slot that begins at a moment or later."""
        return min(int(np.ceil(begin / self.width)), SLOTS)


def _take(free: np.ndarray, seconds: float) -> None:
    """Take seconds from the first free slots, in place."""
    before = np.cumsum(free) - free
    free -= np.clip(seconds - before, 0.0, free)
