"""Filling from the bottom up: a placement in which every buffer lies on another one, made without turning back.

Of all buffers that are left those come next that can lie lowest; among the sections of time in which they live the one
is filled in which most bytes are left, since it has the least room to spare, by whoever there comes first by an
urgency. It takes some 30 microseconds a buffer, and what it wastes depends on the urgencies: so several blends of how
long a buffer lives, of its size and of the load that it meets are tried.

The exact search (:mod:`.exact`) decides likewise, but looks ahead and turns back; with thousands of buffers, or where
there is no placement, this is quicker by orders of magnitude. Choosing the lowest place first is best-fit filling of
strips (Burke, Kendall and Whitwell 2004), here with every buffer's time given.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .placement import Placer
from .problem import Int64Array

#: Height of a buffer that is placed: above every arena.
PLACED = 1 << 62
#: What one buffer's placement counts as work, in units of the placer's; measured, with some thousand buffers in all.
BUFFER_WORK = 300
#: Weights of the logarithms of width in sections, size and largest load on the way. Measured on seven steps in slices:
#: each of these was the best of some hundred random ones on one of them, or nearly.
BLENDS = ((1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (0.5, 0.0, 1.0), (1.0, 0.0, 0.15), (0.1, 0.65, 1.0), (0.2, 1.0, 0.0),
          (1.0, 0.3, 0.0), (0.8, 1.0, 0.3))
Float64Array = NDArray[np.float64]


class Filler:
    """Fills for one problem; the placer's buffers must be free and of one alignment (:func:`is_fillable`).

    Attributes:
        placer: the problem's; what is done counts in its ``work``.
        top, offset: the best so far, in units; ``offset`` by the placer's numbers, None before the first.
    """

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        self._number = np.argsort(placer.born, kind="stable")
        self._born, self._size = placer.born[self._number], placer.size[self._number]
        self._dies = np.minimum(placer.dies[self._number], placer.instants)
        self._earlier: list[int] = self._born.searchsorted(np.arange(placer.instants + 1)).tolist()
        change = np.zeros(placer.instants + 1, np.int64)
        np.add.at(change, self._born, self._size)
        np.subtract.at(change, self._dies, self._size)
        self._load = np.cumsum(change)[:-1]
        self.top = PLACED
        self._at: Int64Array | None = None

    @property
    def offset(self) -> list[int] | None:
        """The best placement so far, as offsets in units by the placer's numbers."""
        if self._at is None:
            return None
        offset = np.empty_like(self._at)
        offset[self._number] = self._at
        result: list[int] = offset.tolist()
        return result

    def blend(self, goal: int, work: int) -> None:
        """Fill by each of the blends and then by random ones, until one ends at the goal or so much work is done."""
        spans = zip(self._born.tolist(), self._dies.tolist(), strict=True)
        met = np.array([self._load[born:dies].max() for born, dies in spans], np.int64)
        columns = [_standardised(np.log(column)) for column in (self._dies - self._born, self._size, met)]
        stop_at = self.placer.work + work
        for weights in _blends():
            if self.top <= goal or self.placer.work >= stop_at:
                return
            parts = (w * column for w, column in zip(weights, columns, strict=True))
            self._keep(self.fill(_standardised(sum(parts, np.zeros(len(met))))))

    def _keep(self, at: Int64Array) -> None:
        top = int((at + self._size).max(initial=0))
        if top < self.top:
            self.top, self._at = top, at

    def fill(self, urgency: Float64Array) -> Int64Array:
        """Offsets by the filler's own numbers: where several could lie lowest, the most urgent one does."""
        born, dies, size = self._born, self._dies, self._size
        rank = np.argsort(np.argsort(-urgency, kind="stable"))
        left = self._load.copy()
        low, at = np.zeros(len(size), np.int64), np.zeros(len(size), np.int64)
        for _ in range(len(size)):
            level = int(low.min())
            lowest = np.flatnonzero(low == level)
            i = int(lowest[0] if len(lowest) == 1 else self._most_urgent(lowest, left, rank))
            end, first, last = level + int(size[i]), int(born[i]), int(dies[i])
            at[i], low[i] = level, PLACED
            earlier = self._earlier[last]
            beside = low[:earlier]
            beside[(dies[:earlier] > first) & (beside < end)] = end
            left[first:last] -= size[i]
        self.placer.work += BUFFER_WORK * len(size)
        return at

    def _most_urgent(self, lowest: Int64Array, left: Int64Array, rank: Int64Array) -> int:
        """Of buffers that can lie at one level the first by rank in the section with most left."""
        born, dies = self._born[lowest], self._dies[lowest]
        first, last = int(born[0]), int(dies.max())
        change = np.bincount(born - first, minlength=last - first + 1) - np.bincount(dies - first)
        section = first + int(np.where(np.cumsum(change)[:-1] > 0, left[first:last], -1).argmax())
        here = lowest[(born <= section) & (dies > section)]
        return int(here[rank[here].argmin()])


def is_fillable(placer: Placer) -> bool:
    """Whether all buffers are free and of one alignment."""
    return not placer.fixed and set(placer.alignments) == {1}


def _blends() -> Iterator[Sequence[float]]:
    """The weights that did best, and then random ones without end."""
    yield from BLENDS
    draw = random.Random(0)
    while True:
        yield [draw.expovariate(1) for _ in BLENDS[0]]


def _standardised(column: Float64Array) -> Float64Array:
    deviation = float(column.std())
    return (column - column.mean()) / (deviation if deviation > 0 else 1.0)
