"""What is packed, and what a packing is: plain arrays, so that hundreds of thousands of buffers stay cheap.

Dynamic storage allocation: every buffer has a lifetime ``[born, dies)`` in instants (half-open, so that a
buffer which dies at an instant may share bytes with one born at it) and a size; an offset in one arena is
wanted for each such that no two buffers overlap in both time and space, and the arena is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Buffers to be packed into one arena, as read-only int64 arrays of equal length n.

    Args:
        born: first instant at which each buffer is alive.
        dies: first instant at which it is alive no more; greater than ``born``.
        size_bytes: bytes of each, 0 or more. A buffer takes its size rounded up to its alignment; one of 0
            bytes takes no space at all.
        alignment: what the offset must be a multiple of: one integer, or one for each buffer; any integer
            from 1.
        fixed: offset at which a buffer must lie, or -1 where it is free; None when all are free.

    Raises:
        ValueError: an array of another length or type, a lifetime that is empty, a negative size, an
            alignment below 1, a fixed offset that is negative or misaligned, or two fixed buffers in each
            other's way. The message names the index and the values.
    """

    born: Int64Array
    dies: Int64Array
    size_bytes: Int64Array
    alignment: Int64Array | int = 64
    fixed: Int64Array | None = None

    def __post_init__(self) -> None:
        count = len(self._store("born", self.born))
        self._store("dies", self.dies, count)
        self._store("size_bytes", self.size_bytes, count)
        alignment = self.alignment
        if np.ndim(alignment) == 0:
            alignment = np.full(count, _integers("alignment", alignment))
        self._store("alignment", alignment, count)
        self._store("fixed", np.full(count, -1) if self.fixed is None else self.fixed, count)
        self._check_values()
        self._check_fixed()

    def __len__(self) -> int:
        return len(self.born)

    @cached_property
    def aligned_bytes(self) -> Int64Array:
        """Bytes each buffer takes in the arena: its size rounded up to its alignment."""
        return -(-self.size_bytes // self.alignments) * self.alignments

    @cached_property
    def lower_bound_bytes(self) -> int:
        """Least bytes an arena can have: peak live aligned bytes, or the highest end of a fixed buffer."""
        instants = np.unique(self.born)
        change = np.zeros(len(instants) + 1, np.int64)
        np.add.at(change, np.searchsorted(instants, self.born), self.aligned_bytes)
        np.subtract.at(change, np.searchsorted(instants, self.dies), self.aligned_bytes)
        return max(int(np.cumsum(change).max()), self._fixed_end_bytes)

    @cached_property
    def naive_bytes(self) -> int:
        """Bytes when each buffer has bytes of its own: the sum of aligned sizes.

        More than the sum only where fixed offsets leave holes, or where alignments that do not divide each
        other do (:attr:`naive_offsets`).
        """
        end = self.naive_offsets + self.aligned_bytes
        return max(int(self.aligned_bytes.sum()), int(end[self.size_bytes > 0].max(initial=0)))

    @cached_property
    def naive_offsets(self) -> Int64Array:
        """Offsets without sharing: free buffers in a row by descending alignment, above the fixed ones."""
        offset = np.where(self.fixed_mask, self.fixed_offsets, 0)
        free = ~self.fixed_mask & (self.size_bytes > 0)
        top = self._fixed_end_bytes
        for alignment in np.unique(self.alignments[free])[::-1].tolist():
            members = np.flatnonzero(free & (self.alignments == alignment))
            ends = -(-top // alignment) * alignment + np.cumsum(self.aligned_bytes[members])
            offset[members] = ends - self.aligned_bytes[members]
            top = int(ends[-1])
        return offset

    @cached_property
    def fixed_mask(self) -> NDArray[np.bool_]:
        """True for each buffer whose offset is given."""
        return self.fixed_offsets >= 0

    @property
    def fixed_offsets(self) -> Int64Array:
        """Offset at which each buffer must lie, -1 where it is free."""
        return np.asarray(self.fixed)

    @property
    def alignments(self) -> Int64Array:
        """Alignment of each buffer, whether one was given or many."""
        return np.asarray(self.alignment)

    @cached_property
    def _fixed_end_bytes(self) -> int:
        held = self.fixed_mask & (self.size_bytes > 0)
        return int((self.fixed_offsets + self.aligned_bytes)[held].max(initial=0))

    def _store(self, name: str, values: ArrayLike, count: int | None = None) -> Int64Array:
        """Replace a field by its checked, read-only int64 copy."""
        array = _integers(name, values)
        if array.ndim != 1:
            raise ValueError(f"Problem: {name} has shape {array.shape}; give one value for each buffer")
        if count is not None and len(array) != count:
            raise ValueError(f"Problem: {name} has {len(array)} values for {count} buffers; give one each")
        array.setflags(write=False)
        object.__setattr__(self, name, array)
        return array

    def _check_values(self) -> None:
        _refuse(self.dies <= self.born, "must die after it is born", born=self.born, dies=self.dies)
        _refuse(self.size_bytes < 0, "must have a size of 0 or more", size_bytes=self.size_bytes)
        _refuse(self.alignments < 1, "must have an alignment of 1 or more", alignment=self.alignments)
        _refuse(self.fixed_offsets < -1, "must have a fixed offset of 0 or more, or -1 for free",
                fixed=self.fixed_offsets)
        _refuse(self.fixed_mask & (self.fixed_offsets % self.alignments != 0),
                "must have a fixed offset that is a multiple of its alignment",
                fixed=self.fixed_offsets, alignment=self.alignments)

    def _check_fixed(self) -> None:
        """Refuse two fixed buffers that overlap in time and space: no offsets of others could mend that."""
        held = np.flatnonzero(self.fixed_mask & (self.size_bytes > 0))
        held = held[np.argsort(self.fixed_offsets[held], kind="stable")]
        start, born, dies = self.fixed_offsets[held], self.born[held], self.dies[held]
        reach = np.searchsorted(start, start + self.aligned_bytes[held])
        for k, stop in enumerate(reach.tolist()):
            later = slice(k + 1, stop)
            clash = np.flatnonzero((born[later] < dies[k]) & (dies[later] > born[k]))
            if clash.size:
                raise ValueError(self._clash(int(held[k]), int(held[k + 1 + clash[0]])))

    def _clash(self, first: int, second: int) -> str:
        def told(i: int) -> str:
            return (f"{i} (bytes [{self.fixed_offsets[i]}, {self.fixed_offsets[i] + self.aligned_bytes[i]}), "
                    f"instants [{self.born[i]}, {self.dies[i]}))")
        return (f"Problem: fixed buffers {told(first)} and {told(second)} overlap in time and space; "
                "move one of them or leave it free")


@dataclass(frozen=True, eq=False)
class Solution:
    """Where each buffer lies.

    Args:
        offset: int64 array, the first byte of each buffer in the arena; 0 for a free buffer of 0 bytes.
        bytes: size of the arena: the end of the highest buffer, sizes rounded up to their alignments.
        method: name of the heuristic that found it.
    """

    offset: Int64Array
    bytes: int
    method: str


@dataclass(frozen=True, eq=False)
class PagedSolution:
    """Where each buffer lies in an arena made of pages, or in a mapped arena that shows them once more.

    The addresses of the mapped arena show the extents of the arena one after another, so that a buffer lies there in
    one piece whose bytes are in several.

    Args:
        offset: int64 array, the first byte of each buffer, in the arena or in the mapped arena; 0 for a buffer of 0
            bytes.
        mapped: bool array, whether a buffer lies in the mapped arena.
        bytes: size of the arena, whole pages.
        page_bytes: bytes of a page.
        extents: (offset, bytes) in the arena of what the mapped arena shows; whole pages, and those of one page may be
            shown several times.
        method: name of what found it.
    """

    offset: Int64Array
    mapped: NDArray[np.bool_]
    bytes: int
    page_bytes: int
    extents: tuple[tuple[int, int], ...]
    method: str = "pages"


def _integers(name: str, values: Any) -> Int64Array:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"Problem: {name} is of type {array.dtype}; give integers")
    return array.astype(np.int64)


def _refuse(bad: NDArray[np.bool_], rule: str, **columns: Int64Array) -> None:
    """Raise for the first buffer at which ``bad`` is true, with its values."""
    if not bad.any():
        return
    i = int(np.argmax(bad))
    values = ", ".join(f"{name} {column[i]}" for name, column in columns.items())
    raise ValueError(f"Problem: buffer {i} {rule}; it has {values}")
