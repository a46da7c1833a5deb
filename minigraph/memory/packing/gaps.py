"""Free bytes of an arena made of pages, by address and by what they are of use for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

Ranked = list[tuple[int, int]]


class Gaps:
    """Ranges of free bytes, no two of which touch.

    A buffer that lies in several pieces begins at the end of a page, goes on in whole pages and ends at the beginning
    of a page. So a gap is of use for it in three ways: the bytes before its first page boundary as a *head*, those
    behind its last one as a *tail*, and the pages between as a *run*. Each is listed by ascending bytes.

    Attributes:
        lengths: (bytes, first byte) of every gap.
        heads: (bytes, first byte) of what heads can take, up to the end of the page.
        tails: (bytes, byte behind the last) of what tails can take, from the beginning of the page on.
        runs: (bytes, first byte) of the whole pages.
        run_bytes: bytes of all runs.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.lengths: Ranked = []
        self.heads: Ranked = []
        self.tails: Ranked = []
        self.runs: Ranked = []
        self.run_bytes = 0
        self._starts: list[int] = []
        self._ends: list[int] = []

    def is_free(self, first: int, last: int) -> bool:
        """Whether all the bytes [first, last) are free."""
        at = bisect_right(self._starts, first) - 1
        return at >= 0 and last <= self._ends[at]

    def run_from(self, start: int) -> int:
        """Bytes of the whole free pages from a page boundary on."""
        at = bisect_right(self._starts, start) - 1
        return max(self._ends[at] // self.page_bytes * self.page_bytes - start, 0) if at >= 0 else 0

    def run_up_to(self, end: int) -> int:
        """Bytes of the whole free pages that end at a page boundary."""
        at = bisect_left(self._ends, end)
        if at == len(self._ends) or self._starts[at] > end:
            return 0
        return max(end - self._starts[at] - -self._starts[at] % self.page_bytes, 0)

    def release(self, first: int, last: int) -> None:
        """Make the bytes [first, last) free, which were not."""
        at = bisect_left(self._starts, first)
        if at < len(self._starts) and self._starts[at] == last:
            last = self._ends[at]
            self._remove(at)
        if at and self._ends[at - 1] == first:
            first = self._starts[at - 1]
            self._remove(at - 1)
        self._insert(first, last)

    def take(self, first: int, last: int) -> None:
        """Make the bytes [first, last) free no more, all of which were."""
        at = bisect_right(self._starts, first) - 1
        start, end = self._starts[at], self._ends[at]
        self._remove(at)
        if start < first:
            self._insert(start, first)
        if last < end:
            self._insert(last, end)

    def _insert(self, start: int, end: int) -> None:
        at = bisect_left(self._starts, start)
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        insort(self.lengths, (end - start, start))
        for ranked, entry in self._uses(start, end):
            insort(ranked, entry)
            self.run_bytes += entry[0] if ranked is self.runs else 0

    def _remove(self, at: int) -> None:
        start, end = self._starts.pop(at), self._ends.pop(at)
        _discard(self.lengths, (end - start, start))
        for ranked, entry in self._uses(start, end):
            _discard(ranked, entry)
            self.run_bytes -= entry[0] if ranked is self.runs else 0

    def _uses(self, start: int, end: int) -> list[tuple[Ranked, tuple[int, int]]]:
        """What a gap is listed under, beside its length."""
        low = start + -start % self.page_bytes
        high = end - end % self.page_bytes
        if high < low:  # in the midst of one page
            return []
        uses = [(self.heads, (low - start, start)), (self.tails, (end - high, end)), (self.runs, (high - low, low))]
        return [use for use in uses if use[1][0]]


def _discard(ranked: Ranked, entry: tuple[int, int]) -> None:
    del ranked[bisect_left(ranked, entry)]
