"""What the exact search knows of a packing problem, as columns: sections of time, who lives in each, who meets whom.

A section is the time between two births; whoever lives anywhere in it lives in all of it, so a packing is right when
it is right in every section.
"""

from __future__ import annotations

import numpy as np

from .placement import Placer
from .problem import Int64Array

#: Height of a buffer that is placed, and of a section that is full: above every capacity.
PLACED = 1 << 40


class Instance:
    """Free buffers of one alignment, numbered by birth, and a capacity to fit them into; sizes and heights in units.

    Attributes:
        number: the placer's number of each buffer.
        born, dies: first section, and one past the last, of each buffer.
        size: of each buffer, and 0 for the number that stands for nobody.
        load: what lives in each section.
        near: for each buffer the others that it shares a section with.
    """

    def __init__(self, placer: Placer, capacity: int) -> None:
        self.number = np.argsort(placer.born, kind="stable")
        self.born = placer.born[self.number]
        self.dies = np.minimum(placer.dies[self.number], placer.instants)
        self.size = np.append(placer.size[self.number], 0)
        self.sections = placer.instants
        self.capacity = capacity
        self.count = len(self.number)
        change = np.zeros(self.sections + 1, np.int64)
        np.add.at(change, self.born, self.size[:-1])
        np.subtract.at(change, self.dies, self.size[:-1])
        self.load = np.cumsum(change)[:-1]
        self._meets = (self.born < self.dies[:, None]) & (self.dies > self.born[:, None])
        np.fill_diagonal(self._meets, False)
        self.near = [np.flatnonzero(row) for row in self._meets]

    def spans(self) -> Int64Array:
        """How many buffers live on both sides of the beginning of each section, and of the end."""
        change = np.zeros(self.sections + 2, np.int64)
        np.add.at(change, self.born + 1, 1)
        np.subtract.at(change, self.dies, 1)
        return np.cumsum(change)[:-1]

    def settle(self, low: Int64Array, floor: Int64Array, first: int, last: int) -> bool:
        """Bring the floors of some sections up to date; False when one of them cannot hold what is left.

        ``low`` is the least offset of each buffer, PLACED for one that lies. In a section the buffers that are left
        lie one above the other, each at or above its own least offset. Taken in the order of those they end as low as
        they can: the one-machine problem with release dates. What follows for other sections is entered into ``low``.
        """
        while first < last:
            left = _Left(self, low, first, last)
            floor[first:last] = left.floor()
            if left.end() > self.capacity:
                return False
            latest = self.capacity - left.load[0]
            sections, undermost = left.undermost(latest)
            if not sections.size:
                return True
            first, last = self._lift(low, undermost, latest[sections])
        return True

    def _lift(self, low: Int64Array, undermost: Int64Array, latest: Int64Array) -> tuple[int, int]:
        """Raise whatever can only lie above the undermost buffer of a section; gives the sections to settle again.

        A buffer is undermost where the section has no room for what is left above any other one. It then lies no
        higher than ``latest``, and what would end above that, in whatever section they meet, lies above it.
        """
        undermost, which = np.unique(undermost, return_inverse=True)
        strictest = np.full(len(undermost), PLACED)
        np.minimum.at(strictest, which, latest)
        low, end = low[:-1], low + self.size
        least_end = end[undermost, None]
        lifted = self._meets[undermost] & (low < least_end) & (end[:-1] > strictest[:, None])
        which = np.flatnonzero(lifted.any(axis=0))
        if not which.size:
            return 0, 0
        low[which] = (lifted[:, which] * least_end).max(axis=0)
        return int(self.born[which].min()), int(self.dies[which].max())

    def peak_load(self) -> Int64Array:
        """The largest load that each buffer lives through."""
        spans = zip(self.born.tolist(), self.dies.tolist(), strict=True)
        return np.array([self.load[born:dies].max() for born, dies in spans], np.int64)


class _Left:
    """The buffers of some sections that do not lie yet, counted by their least offsets: of these there are few.

    Attributes:
        offsets: those least offsets, in ascending order.
        load: for each of them and each section the sizes of those at it or above; behind the last one a row of zeros.
    """

    def __init__(self, instance: Instance, low: Int64Array, first: int, last: int) -> None:
        until = instance.born.searchsorted(last)  # numbers ascend with births
        who = ((instance.dies[:until] > first) & (low[:until] < PLACED)).nonzero()[0]
        lows = low[who]
        order = lows.argsort()
        self._who, lows = who[order], lows[order]
        changes = np.concatenate((lows[:1] >= 0, lows[1:] > lows[:-1]))
        self.offsets = lows[changes]
        self._shape = (len(self.offsets) + 1, last - first + 1)
        row = (changes.cumsum() - 1) * self._shape[1] - first
        self._begin = row + np.maximum(instance.born[self._who], first)
        self._end = row + np.minimum(instance.dies[self._who], last)
        self.load = self._sums(instance.size[self._who])[::-1].cumsum(axis=0)[::-1]

    def _sums(self, amount: Int64Array) -> Int64Array:
        """An amount of each buffer, added up over those that live in a section with the same least offset."""
        rows, columns = self._shape
        change = np.bincount(self._begin, amount, rows * columns) - np.bincount(self._end, amount, rows * columns)
        return change.astype(np.int64).reshape(rows, columns).cumsum(axis=1)[:, :-1]

    def end(self) -> int:
        """The lowest end of the highest section."""
        load = self.load[:-1]
        return int(((self.offsets[:, None] + load) * (load > 0)).max(initial=0))

    def floor(self) -> Int64Array:
        """The least offset in each section; PLACED where nobody is left."""
        return self._offset((self.load == self.load[0]).sum(axis=0) - 1)

    def undermost(self, latest: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The sections of which one buffer alone has a least offset of no more than ``latest``, and its number."""
        if not self.offsets.size or self.offsets[-1] <= latest.min():
            return np.empty(0, np.int64), np.empty(0, np.int64)
        count = self._sums(np.ones_like(self._who))[:-1].cumsum(axis=0)
        second = self._offset((count < 2).sum(axis=0))
        sections = ((second > latest) & (second < PLACED)).nonzero()[0]
        if not sections.size:
            return sections, sections
        return sections, self._sums(self._who)[(count[:, sections] < 1).sum(axis=0), sections]

    def _offset(self, level: Int64Array) -> Int64Array:
        return np.append(self.offsets, PLACED)[level]
