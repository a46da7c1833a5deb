"""Which values to give up for so many bytes in the least time: a knapsack, filled by dynamic programming.

Taken one after the other by their bytes a second, values free what is asked for in steps of their own size: in a
network whose first layers make a tenth of all bytes each, that is a tenth too much. A knapsack passes such a value over
where smaller ones free as much in less time.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

CELLS = 1_024
"""Parts of all bytes in which a value's are counted, rounded down: a choice frees at least what it was chosen for."""


def cheapest(size_bytes: Sequence[int], seconds: Sequence[float], count: int) -> Iterator[list[int]]:
    """For each of `count` equal steps up to all bytes the positions of items that free so many in the least seconds, by
    the whole cells of each; no more than these free where that is less. Takes time by items times `CELLS`."""
    cells = np.array([nbytes * CELLS // max(sum(size_bytes), 1) for nbytes in size_bytes], np.int64)
    most, wanted = int(cells.sum()), np.arange(CELLS + 1)
    least = np.where(wanted == 0, 0.0, np.inf)
    taken = np.zeros((len(cells), CELLS + 1), bool)
    for k, (own, cost) in enumerate(zip(cells.tolist(), seconds, strict=True)):
        with_it = least[np.maximum(wanted - own, 0)] + cost
        taken[k] = with_it < least
        least = np.minimum(with_it, least)
    for step in range(1, count + 1):
        yield _chosen(taken, cells, min(CELLS * step // count, most))


def _chosen(taken: np.ndarray, cells: np.ndarray, wanted: int) -> list[int]:
    """The items behind the least time for so many cells, the last first."""
    found = []
    for k in reversed(range(len(cells))):
        if taken[k, wanted]:
            found.append(k)
            wanted = max(wanted - int(cells[k]), 0)
    return found
