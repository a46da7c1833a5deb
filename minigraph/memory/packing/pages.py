"""Packing where pages can be mapped: a buffer lies in one piece of addresses, and in several of the arena.

Free memory between live buffers is in pieces, so that an arena in which every buffer lies in one piece is larger than
the most bytes that live at once. Here a buffer for which no piece is large enough takes several: the end of a page that
another one begins, whole pages, and the beginning of a page that another one ends. What is lost then is what is free in
pages that others share, and how much that is does not depend on how long anything lives.

Buffers are placed as they are born, each into the smallest gap that holds it; only where there is none into pieces, and
of all ways to do so into one that leaves the most whole pages. Buffers below a page lie in a slab at the bottom, packed
by :func:`pack`. Near the peak even gaps that hold a buffer are used only where they fit exactly: how near is tried out.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .gaps import Gaps
from .problem import Int64Array, PagedSolution, Problem
from .solve import pack

#: Pages that an arena should have at most: each is an allocation of its own on a GPU. What is lost in pages that are
#: shared is some ten of them, whatever their size: with so many 0.001 of the arena.
MOST_PAGES = 16_384
#: A buffer is placed closely where the arena comes within so many pages of the peak during its life; None: nowhere.
NEAR_PAGES = (None, 0, 10, 20, 50, 100, 300)
#: Windows of a size that are tried again, the last ones left first.
WINDOWS_TRIED = 12

Piece = tuple[int, int]
Window = tuple[Piece, ...]


def page_bytes_for(bound_bytes: int, least_page_bytes: int) -> int:
    """Bytes of a page for an arena: the least multiple of the device's least page that makes 16,384 pages or fewer."""
    return least_page_bytes * max(-(-bound_bytes // (least_page_bytes * MOST_PAGES)), 1)


def pack_pages(problem: Problem, page_bytes: int) -> PagedSolution:
    """Choose pages so that the arena is small, and few buffers lie in more than one piece; deterministic.

    Args:
        problem: the buffers, none of them fixed.
        page_bytes: bytes of a page, a multiple of all alignments.

    Returns:
        An arena some ten pages above the lower bound, unless much of it is buffers below a page.

    Raises:
        ValueError: a fixed buffer, or a page that is not a multiple of every alignment.
    """
    unit = math.lcm(*np.unique(problem.alignments).tolist())
    if page_bytes < 1 or page_bytes % unit:
        raise ValueError(f"pack_pages: page_bytes is {page_bytes}; give a multiple of all alignments, of {unit}")
    if problem.fixed_mask.any():
        raise ValueError(f"pack_pages: buffer {int(np.argmax(problem.fixed_mask))} is fixed; leave all buffers free")
    small = np.flatnonzero(problem.aligned_bytes < page_bytes)
    large = np.flatnonzero(problem.aligned_bytes >= page_bytes)
    slab = pack(Problem(problem.born[small], problem.dies[small], problem.size_bytes[small], problem.alignments[small]))
    walk = _best_walk(problem, large, unit, page_bytes, slab.bytes + -slab.bytes % unit)
    offset, mapped = np.zeros(len(problem), np.int64), np.zeros(len(problem), np.bool_)
    offset[small] = slab.offset
    offset[large], mapped[large], extents = walk.shown()
    return PagedSolution(offset, mapped, walk.arena_bytes, page_bytes, extents)


def _best_walk(problem: Problem, large: Int64Array, unit: int, page_bytes: int, slab_bytes: int) -> _Walk:
    """The walk with the least arena, and of those the one that shows the fewest pages."""
    size = problem.aligned_bytes[large] + -problem.aligned_bytes[large] % unit
    room = problem.lower_bound_bytes - _peaks(problem)[large]
    best: _Walk | None = None
    for near in NEAR_PAGES:
        close = np.zeros(len(large), np.bool_) if near is None else room <= near * page_bytes
        walk = _Walk(problem.born[large], problem.dies[large], size, close, page_bytes)
        walk.run(slab_bytes, problem.lower_bound_bytes)
        if best is None or walk.cost() < best.cost():
            best = walk
    assert best is not None
    return best


def _peaks(problem: Problem) -> Int64Array:
    """Most bytes that live at once during the life of each buffer."""
    instants = np.unique(problem.born)
    first, last = np.searchsorted(instants, problem.born), np.searchsorted(instants, problem.dies)
    change = np.zeros(len(instants) + 1, np.int64)
    np.add.at(change, first, problem.aligned_bytes)
    np.subtract.at(change, last, problem.aligned_bytes)
    most, peaks, span = np.cumsum(change)[:-1], np.zeros(len(problem), np.int64), 1
    while len(most):  # here the most of each 'span' instants in a row
        chosen = (last - first >= span) & (last - first < 2 * span)
        peaks[chosen] = np.maximum(most[first[chosen]], most[last[chosen] - span])
        most, span = np.maximum(most[:-span], most[span:]), 2 * span
    return peaks


class _Choice(NamedTuple):
    """A way to place a buffer in pieces: whole pages it takes, bytes left in the midst of a page, head and tail."""

    page_bytes: int
    left_bytes: int
    head: int  # first byte
    head_bytes: int
    tail: int  # first byte, or -1 for the beginning of a page that is free
    tail_bytes: int


class _Walk:
    """Buffers of a page or more, placed in the order of their births.

    `close` says which are placed closely: into a gap in one piece only where it fits exactly.
    """

    def __init__(self, born: Int64Array, dies: Int64Array, size: Int64Array, close: NDArray[np.bool_],
                 page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.arena_bytes = 0
        self._gaps = Gaps(page_bytes)
        self._size, self._close, self._dies = size.tolist(), close.tolist(), dies.tolist()
        self._births = np.lexsort((-size, born)).tolist()
        self._born = born.tolist()
        self._deaths = np.argsort(dies, kind="stable").tolist()
        self._windows: dict[int, dict[Window, None]] = {}
        self._pieces: list[Window] = [()] * len(size)

    def run(self, slab_bytes: int, bound_bytes: int) -> None:
        """Place all buffers above a slab, in an arena that grows by pages where it must."""
        self.arena_bytes = -(-max(slab_bytes, bound_bytes) // self.page_bytes) * self.page_bytes
        if slab_bytes < self.arena_bytes:
            self._gaps.release(slab_bytes, self.arena_bytes)
        dead = 0
        for i in self._births:
            while self._dies[self._deaths[dead]] <= self._born[i]:
                self._leave(self._deaths[dead])
                dead += 1
            self._pieces[i] = self._place(self._size[i], self._close[i])
        highest = max((last for window in self._pieces for _, last in window), default=slab_bytes)
        self.arena_bytes = -(-max(highest, slab_bytes) // self.page_bytes) * self.page_bytes

    def cost(self) -> tuple[int, int]:
        """Bytes of the arena, and of what is mapped."""
        return self.arena_bytes, sum(map(self._shown_bytes, self._shared()))

    def shown(self) -> tuple[Int64Array, NDArray[np.bool_], tuple[Piece, ...]]:
        """Offset of each buffer, whether it lies in the mapped arena, and the extents of that (offset, bytes)."""
        page, base, place = self.page_bytes, 0, {}
        extents: list[list[int]] = []
        for window in self._shared():
            place[window] = base + window[0][0] % page
            base += self._shown_bytes(window)
            for first, last in window:
                low, high = first // page * page, -(-last // page) * page
                if extents and sum(extents[-1]) == low:
                    extents[-1][1] += high - low
                else:
                    extents.append([low, high - low])
        offset = [place.get(window, window[0][0]) for window in self._pieces]
        mapped = [len(window) > 1 for window in self._pieces]
        return np.array(offset, np.int64), np.array(mapped, np.bool_), tuple((low, size) for low, size in extents)

    def _shared(self) -> dict[Window, None]:
        """The windows that are shown, each once."""
        return {window: None for window in self._pieces if len(window) > 1}

    def _shown_bytes(self, window: Window) -> int:
        page = self.page_bytes
        return sum(-(-last // page) - first // page for first, last in window) * page

    def _leave(self, i: int) -> None:
        window = self._pieces[i]
        for first, last in window:
            self._gaps.release(first, last)
        if len(window) > 1:  # now the last one left of its size
            windows = self._windows.setdefault(self._size[i], {})
            windows.pop(window, None)
            windows[window] = None

    def _place(self, size: int, close: bool) -> Window:
        gaps = self._gaps
        at = bisect_left(gaps.lengths, (size, -1))
        if at < len(gaps.lengths) and (not close or gaps.lengths[at][0] == size):
            first = gaps.lengths[at][1]
            return self._take(((first, first + size),))
        for window in islice(reversed(self._windows.get(size, {})), WINDOWS_TRIED):
            if all(gaps.is_free(first, last) for first, last in window):
                return self._take(window)
        while not (choices := [choice for choice in self._choices(size) if choice.page_bytes <= gaps.run_bytes]):
            gaps.release(self.arena_bytes, self.arena_bytes + self.page_bytes)
            self.arena_bytes += self.page_bytes
        return self._take_in_pieces(size, min(choices))

    def _take(self, window: Window) -> Window:
        for first, last in window:
            self._gaps.take(first, last)
        return window

    def _choices(self, size: int) -> Iterator[_Choice]:
        """Ways to place a buffer in pieces: a head or none and the tail that fits it best, a tail and its best head."""
        page, heads, tails = self.page_bytes, self._gaps.heads, self._gaps.tails
        for head_bytes, head in [(0, 0), *heads]:
            over = (size - head_bytes) % page
            whole = size - head_bytes - over
            if whole < 0:
                continue
            if not over:
                yield _Choice(whole, 0, head, head_bytes, -1, 0)
                continue
            yield _Choice(whole + page, page, head, head_bytes, -1, over)
            at = bisect_left(tails, (over, 0))
            if at < len(tails):
                yield _Choice(whole, tails[at][0] - over, head, head_bytes, tails[at][1] - tails[at][0], over)
        for tail_bytes, end in tails:
            over = (size - tail_bytes) % page
            at = bisect_left(heads, (over, 0))
            if over and tail_bytes + over <= size and at < len(heads):
                first = heads[at][1] + heads[at][0] - over
                yield _Choice(size - tail_bytes - over, heads[at][0] - over, first, over, end - tail_bytes, tail_bytes)

    def _take_in_pieces(self, size: int, choice: _Choice) -> Window:
        """Take head and tail, then the pages beside them, then those of other runs: the smallest that is enough."""
        before, behind = [], []
        need = size - choice.head_bytes
        if choice.head_bytes:
            before.append((choice.head, choice.head + choice.head_bytes))
        if choice.tail >= 0:
            behind.append((choice.tail, choice.tail + choice.tail_bytes))
            need -= choice.tail_bytes
        self._take((*before, *behind))
        if before and (beside := min(self._gaps.run_from(before[0][1]), need)):
            before += self._take(((before[0][1], before[0][1] + beside),))
            need -= beside
        if behind and (beside := min(self._gaps.run_up_to(behind[0][0]), need)):
            behind = [*self._take(((behind[0][0] - beside, behind[0][0]),)), *behind]
            need -= beside
        while need:
            runs = self._gaps.runs
            length, first = runs[min(bisect_left(runs, (need, -1)), len(runs) - 1)]
            before += self._take(((first, first + min(length, need)),))
            need -= min(length, need)
        return _joined([*before, *behind])


def _joined(pieces: list[Piece]) -> Window:
    """Pieces in order, those that touch as one."""
    joined = pieces[:1]
    for first, last in pieces[1:]:
        if joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)
