"""Canonical chunks of the batch: the cuts at which every op that may be sliced is defined.

An op's bits may not depend on whether it runs whole or in slices, and BLAS's bits depend on the sizes it is
called with. So each such op is *defined* chunk by chunk, in ascending order, whatever the memory plan.
"""
from __future__ import annotations

from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""Scratch that one chunk should stay within: about one core's share of a last-level cache."""
MAX_CHUNK = 128
"""Rows of the largest chunk; a power of two, as every chunk length is, so that chunks of all ops nest."""


def chunk_rows(row_bytes: int) -> int:
    """Rows a chunk for an op that needs `row_bytes` of scratch or operand a row: a power of two in 1..MAX_CHUNK.

    It depends on a row alone, never on the number of rows, so a slice is cut like the whole.
    """
    rows = MAX_CHUNK
    while rows > 1 and rows * row_bytes > CHUNK_BYTES:
        rows //= 2
    return rows


def chunks(rows: int, length: int) -> Iterator[slice]:
    """The slices of `range(rows)` of `length` each, in ascending order, the last one shorter."""
    for start in range(0, rows, length):
        yield slice(start, min(start + length, rows))
