"""Packing where pages can be mapped: a buffer lies in one piece of addresses, and in several of the arena.

Free memory between live buffers is in pieces, so that an arena in which every buffer lies in one piece is larger than
the most bytes that live at once. Here a buffer for which no piece is large enough takes several: the end of a page that
another one begins, whole pages, and the beginning of a page that another one ends. What is lost then is what is free in
pages that others share, and how much that is does not depend on how long anything lives.

Buffers are placed as they are born. The first time each takes a small gap that holds it, beside what dies at about the
same time, so that gaps become large; it lies in pieces only where there is none. The arena then has to grow at a few
instants, as what is free lies in parts of pages; so all is placed again, and whatever lives at those instants closely:
in the way that leaves the most whole pages, in one piece or not. Few buffers need that, and in pieces lie fewer still.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .gaps import Gaps, Ranked
from .problem import Int64Array, PagedSolution, Problem
from .solve import pack

#: Pages that an arena should have at most: on a GPU, up to 32 GiB, each is an allocation of its own. What is lost in
#: pages that are shared is six of them at most on training steps, whatever their size: with so many 0.0004 of all.
MOST_PAGES = 16_384
#: Windows of a size that are tried again, the last ones left first.
WINDOWS_TRIED = 12
#: Gaps, heads and tails just large enough that are tried where a buffer is placed closely; gaps, where it is not.
TRIED, GAPS_TRIED = 16, 4
#: When what lies at either end of the arena dies.
NEVER = 1 << 40
#: Buffers of less than this part of a page are packed into a slab at the bottom, which takes a small part of a page on
#: training steps; larger ones fill what is left of pages.
SLAB_PART = 1024

Piece = tuple[int, int]
Window = tuple[Piece, ...]


def page_bytes_for(bound_bytes: int, least_page_bytes: int) -> int:
    """Bytes of a page for an arena: the least multiple of the device's least page that makes 16,384 pages or fewer."""
    return least_page_bytes * max(-(-bound_bytes // (least_page_bytes * MOST_PAGES)), 1)


def pack_pages(problem: Problem, page_bytes: int, capacity_bytes: int | None = None) -> PagedSolution:
    """Choose pages so that the arena is small, and few buffers lie in more than one piece; deterministic.

    Args:
        problem: the buffers, none of them fixed.
        page_bytes: bytes of a page, a multiple of all alignments.
        capacity_bytes: stop at the first arena within so many bytes, which as a rule has fewer buffers in pieces than
            smaller ones. None is within if and only if without a capacity the arena is larger.

    Returns:
        An arena at most six pages above the lower bound on training steps, and one or two where it has few: its ratio
        to the bound is up to 1.02 with a hundred pages, and 1.0004 with 16,384.

    Raises:
        ValueError: a fixed buffer, a page that is not a multiple of every alignment, or a negative capacity.
    """
    unit = _checked_unit(problem, page_bytes, capacity_bytes)
    is_tiny = problem.aligned_bytes < max(page_bytes // SLAB_PART, 1)
    tiny, walked = np.flatnonzero(is_tiny), np.flatnonzero(~is_tiny)
    below = Problem(problem.born[tiny], problem.dies[tiny], problem.size_bytes[tiny], problem.alignments[tiny])
    slab = pack(below, below.lower_bound_bytes + page_bytes // 16)
    walk = _best_walk(problem, walked, unit, page_bytes, slab.bytes + -slab.bytes % unit, capacity_bytes or 0)
    offset, mapped = np.zeros(len(problem), np.int64), np.zeros(len(problem), np.bool_)
    offset[tiny] = slab.offset
    offset[walked], mapped[walked], extents = walk.shown()
    return PagedSolution(offset, mapped, walk.arena_bytes, page_bytes, extents)


def _checked_unit(problem: Problem, page_bytes: int, capacity_bytes: int | None) -> int:
    """The least common multiple of all alignments, of which a page is a multiple too."""
    unit = math.lcm(*np.unique(problem.alignments).tolist())
    if page_bytes < 1 or page_bytes % unit:
        raise ValueError(f"pack_pages: page_bytes is {page_bytes}; give a multiple of all alignments, of {unit}")
    if problem.fixed_mask.any():
        raise ValueError(f"pack_pages: buffer {int(np.argmax(problem.fixed_mask))} is fixed; leave all buffers free")
    if capacity_bytes is not None and capacity_bytes < 0:
        raise ValueError(f"pack_pages: capacity_bytes is {capacity_bytes}; give 0 or more")
    return unit


def _best_walk(problem: Problem, walked: Int64Array, unit: int, page_bytes: int, slab_bytes: int,
               capacity_bytes: int) -> _Walk:
    """The first walk within the capacity, or that with the least arena, and of those the one that shows the least."""
    born, dies = problem.born[walked], problem.dies[walked]
    size = problem.aligned_bytes[walked] + -problem.aligned_bytes[walked] % unit
    close, walks = np.zeros(len(walked), np.bool_), []
    for rules in RULES:
        walk = _Walk(born, dies, size, close, rules, page_bytes)
        grown = walk.run(slab_bytes, problem.lower_bound_bytes)
        walks.append(walk)
        if walk.arena_bytes <= capacity_bytes:
            return walk
        if not grown or len(walks) >= WALKS and sum(ended.work for ended in walks) > WORK:
            break
        for instant in grown:
            close |= (born <= instant) & (instant < dies)
    return min(walks, key=_Walk.cost)


class _Rules(NamedTuple):
    """What a walk goes by where it places closely.

    A way to place a buffer costs the whole pages it takes, what it leaves in the midst of a page, and the worth of what
    it takes of heads and tails less that of the head it makes. The worth of b bytes of a page of p is `worth` b b / p:
    a large one spares somebody a page more likely than two of half its bytes.
    """

    one_piece: float  # what it may cost that a buffer lies in one piece, in pages
    worth: float


#: Tried in turn; six of those that left the least on large sliced steps and on plans under a tight budget.
RULES = (_Rules(0.3, 0.7), _Rules(0.3, 0.7), _Rules(0.5, 0.7), _Rules(0.7, 0.5), _Rules(0.3, 0.5), _Rules(0.7, 0.3))
#: No walk begins when so many have ended, and have placed so many buffers and compared so many ways to do so together.
WALKS, WORK = 2, 400_000


class _Choice(NamedTuple):
    """A way to place a buffer: what it costs, bytes of whole pages it takes beside its head and its tail."""

    cost: int
    run_bytes: int
    head: int  # first byte
    head_bytes: int
    tail: int  # first byte, or -1 for the beginning of a page that is free
    tail_bytes: int


class _Walk:
    """Buffers placed in the order of their births; `close` says which of them closely."""

    def __init__(self, born: Int64Array, dies: Int64Array, size: Int64Array, close: NDArray[np.bool_], rules: _Rules,
                 page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._worth = rules.worth
        self._one_piece = int(rules.one_piece * page_bytes)
        self.arena_bytes = 0
        self.work = len(size)
        self._gaps = Gaps(page_bytes)
        self._size, self._close, self._dies = size.tolist(), close.tolist(), dies.tolist()
        self._births = np.lexsort((-size, born)).tolist()
        self._born = born.tolist()
        self._deaths = np.argsort(dies, kind="stable").tolist()
        self._dies_at: dict[int, int] = {}  # by first byte of a piece
        self._dies_before: dict[int, int] = {}  # by byte behind the last of a piece
        self._windows: dict[int, dict[Window, None]] = {}
        self._pieces: list[Window] = [()] * len(size)

    def run(self, slab_bytes: int, bound_bytes: int) -> list[int]:
        """Place all buffers above a slab, in an arena that grows by pages where it must: at which instants it did."""
        self.arena_bytes = -(-max(slab_bytes, bound_bytes) // self.page_bytes) * self.page_bytes
        if slab_bytes < self.arena_bytes:
            self._gaps.release(slab_bytes, self.arena_bytes)
        dead, grown = 0, []
        for i in self._births:
            while self._dies[self._deaths[dead]] <= self._born[i]:
                self._leave(self._deaths[dead])
                dead += 1
            bytes_before = self.arena_bytes
            self._pieces[i] = self._place(self._size[i], self._dies[i], self._close[i])
            for first, last in self._pieces[i]:
                self._dies_at[first] = self._dies_before[last] = self._dies[i]
            if self.arena_bytes > bytes_before:
                grown.append(self._born[i])
        highest = max((last for window in self._pieces for _, last in window), default=slab_bytes)
        self.arena_bytes = -(-max(highest, slab_bytes) // self.page_bytes) * self.page_bytes
        return grown

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

    def _place(self, size: int, dies: int, close: bool) -> Window:
        gaps = self._gaps
        at = bisect_left(gaps.lengths, (size, -1))
        if at < len(gaps.lengths) and (not close or gaps.lengths[at][0] == size):
            first = self._beside(size, dies) if gaps.lengths[at][0] > size else gaps.lengths[at][1]
            return self._take(((first, first + size),))
        for window in islice(reversed(self._windows.get(size, {})), WINDOWS_TRIED):
            if all(gaps.is_free(first, last) for first, last in window):
                return self._take(window)
        choices = list(self._choices(size))
        self.work += len(choices)
        if (lacking := min(choice.run_bytes for choice in choices) - gaps.run_bytes) > 0:
            gaps.release(self.arena_bytes, self.arena_bytes + lacking)
            self.arena_bytes += lacking
            choices = list(self._choices(size))
        return self._take_in_pieces(size, min(choice for choice in choices if choice.run_bytes <= gaps.run_bytes))

    def _beside(self, size: int, dies: int) -> int:
        """Where to place a buffer in one piece: in a small gap, beside what dies at about the same time."""
        beside = []
        for length, first in _some(self._gaps.lengths, size, GAPS_TRIED):
            low, high = self._dies_before.get(first, NEVER), self._dies_at.get(first + length, NEVER)
            beside += [(abs(low - dies) * length, first), (abs(high - dies) * length, first + length - size)]
        return min(beside)[1]

    def _take(self, window: Window) -> Window:
        for first, last in window:
            self._gaps.take(first, last)
        return window

    def _value(self, *lost: int, made: int = 0) -> int:
        """What it costs that heads and tails of so many bytes are gone, and that one is made."""
        return int(self._worth * (sum(part * part for part in lost) - made * made) / self.page_bytes)

    def _choices(self, size: int) -> Iterator[_Choice]:
        """Ways to place a buffer: in one piece, a head or none and the tail that fits it best, a tail and its head."""
        page, value, gaps = self.page_bytes, self._value, self._gaps
        for _, first in _some(gaps.lengths, size):
            head, rest = -first % page, -(first + size) % page
            cost = size - head + rest + value(head, made=rest) - self._one_piece
            yield _Choice(cost, 0, first, size, -1, 0)
        for head, first in [(0, 0), *_some(gaps.heads, size % page), *gaps.heads[-TRIED:]]:
            over = (size - head) % page
            whole = size - head - over
            if whole < 0:
                continue
            rest = -over % page
            yield _Choice(whole + over + rest + value(head, made=rest), whole + over + rest, first, head, -1, over)
            at = bisect_left(gaps.tails, (over, 0))
            if over and at < len(gaps.tails):
                tail, end = gaps.tails[at]
                yield _Choice(whole + tail - over + value(head, tail), whole, first, head, end - tail, over)
        for tail, end in _some(gaps.tails, size % page):
            over = (size - tail) % page
            at = bisect_left(gaps.heads, (over, 0))
            if over and tail + over <= size and at < len(gaps.heads):
                head, first = gaps.heads[at]
                whole = size - tail - over
                cost = whole + head - over + value(head, tail)
                yield _Choice(cost, whole, first + head - over, over, end - tail, tail)

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


def _some(ranked: Ranked, least_bytes: int, most: int = TRIED) -> Ranked:
    """The first entries of at least so many bytes, at most so many."""
    at = bisect_left(ranked, (least_bytes, -1))
    return ranked[at:at + most]


def _joined(pieces: list[Piece]) -> Window:
    """Pieces in order, those that touch as one."""
    joined = pieces[:1]
    for first, last in pieces[1:]:
        if joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)
