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
_NUMBER_BITS = 20


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
        self._members = self._members_by_section()

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
            members = self._members[first:last]
            keys = np.sort((low[members] << _NUMBER_BITS) + members, axis=1)
            least, number = keys >> _NUMBER_BITS, keys & ((1 << _NUMBER_BITS) - 1)
            left = least < PLACED
            above = np.cumsum((self.size[number] * left)[:, ::-1], axis=1)[:, ::-1]
            floor[first:last] = least[:, 0]
            if ((least + above) * left).max(initial=0) > self.capacity:
                return False
            latest = self.capacity - above[:, 0]
            undermost = left[:, 1] & (least[:, 1] > latest)
            first, last = self._lift(low, number[undermost, 0], latest[undermost])
        return True

    def _lift(self, low: Int64Array, undermost: Int64Array, latest: Int64Array) -> tuple[int, int]:
        """Raise whatever can only lie above the undermost buffer of a section; gives the sections to settle again.

        A buffer is undermost where the section has no room for what is left above any other one. It then lies no
        higher than ``latest``, and what would end above that, in whatever section they meet, lies above it.
        """
        if not undermost.size:
            return 0, 0
        low, end = low[:-1], low + self.size
        least_end = end[undermost, None]
        lifted = self._meets[undermost] & (low < least_end) & (end[:-1] > latest[:, None])
        which = np.flatnonzero(lifted.any(axis=0))
        if not which.size:
            return 0, 0
        low[which] = (lifted[:, which] * least_end).max(axis=0)
        return int(self.born[which].min()), int(self.dies[which].max())

    def peak_load(self) -> Int64Array:
        """The largest load that each buffer lives through."""
        spans = zip(self.born.tolist(), self.dies.tolist(), strict=True)
        return np.array([self.load[born:dies].max() for born, dies in spans], np.int64)

    def _members_by_section(self) -> Int64Array:
        """The buffers that live in each section, a row a section, filled up with the number of nobody."""
        rows: list[list[int]] = [[] for _ in range(self.sections)]
        for i, (born, dies) in enumerate(zip(self.born.tolist(), self.dies.tolist(), strict=True)):
            for section in range(born, dies):
                rows[section].append(i)
        width = max([2, *map(len, rows)])  # there is a second one to look at in every row
        return np.array([row + [self.count] * (width - len(row)) for row in rows], np.int64).reshape(-1, width)
