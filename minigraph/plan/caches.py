"""Which operands of a plan's instructions lie in a cache when they are used, from the addresses that the plan gives.

Bytes are in a cache as long as few others have been touched since: the *distance* of a use is the number of bytes that
instructions have read and written since the last use of the same address. Bytes touched twice in between count twice,
but a distance is never more than the device arenas hold. Every instruction counts as if it touched its operands once,
in the order of the list. Copies are made by other threads, on other cores: what they bring in is in no cache of the
thread that computes, and what they touch drives nothing out of it.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .plan import Kind, Plan

Floats = NDArray[np.float64]
_PIECES = 2**16
"""Pieces of an arena for which the last use is noted, at most; the smallest is a cache line."""
_LINE_BYTES = 64
_ON_COMPUTING_THREAD = (Kind.COMPUTE, Kind.FILL)
_RUNS = 2
"""A run finds in the caches what the one before has left."""
Span = tuple[int, int, int]


def coldness(plan: Plan, cold: Callable[[Floats], Floats]) -> list[float]:
    """For each instruction, in a run that follows another one, the share of its operands' bytes that lies in no cache;
    `cold` says from distances in bytes how much of the bytes that is, 0 to 1. 0 for what computes nothing."""
    spans = [touched(plan, i) for i in range(len(plan))]
    grain = [max(_LINE_BYTES, -(-arena.bytes // _PIECES)) for arena in plan.arenas]
    at = [np.full(arena.bytes // size + 1, -np.inf) for arena, size in zip(plan.arenas, grain, strict=True)]
    room = float(sum(arena.bytes for arena in plan.arenas if arena.space == "device"))
    now, shares = 0.0, [0.0] * len(plan)
    for _ in range(_RUNS):
        for i, mine in enumerate(spans):
            pieces = [at[arena][offset // grain[arena]:(offset + nbytes - 1) // grain[arena] + 1]
                      for arena, offset, nbytes in mine]
            if plan.instructions.kind[i] == Kind.COPY_IN:
                for piece in pieces:
                    piece[:] = -np.inf
            if plan.instructions.kind[i] not in _ON_COMPUTING_THREAD:
                continue
            total = sum(nbytes for *_, nbytes in mine)
            away = sum(nbytes * float(cold(_distances(now, piece, room)).mean())
                       for piece, (*_, nbytes) in zip(pieces, mine, strict=True))
            shares[i] = away / total if total else 0.0
            now += total
            for piece in pieces:
                piece[:] = now
    return shares


def _distances(now: float, last: Floats, room: float) -> Floats:
    """Bytes touched since the last uses; infinitely many where there was none on this thread."""
    return np.where(np.isinf(last), np.inf, np.minimum(now - last, room))


def touched(plan: Plan, i: int) -> list[Span]:
    """(arena, offset, bytes) of the pieces of device memory that an instruction reads or writes, its workspace too;
    what it writes in place is there once."""
    code, columns = plan.instructions, plan.buffers
    if code.kind[i] in (Kind.RECORD, Kind.WAIT):
        return []
    read = [b for k, b in enumerate(code.reads[i]) if k not in code.unread[i]]
    found: dict[tuple[int, int], int] = {}
    for b in (*read, *code.writes[i], *([code.workspace[i]] if code.workspace[i] >= 0 else [])):
        if plan.arenas[columns.arena[b]].on_device and columns.bytes[b]:
            for arena, offset, nbytes in plan.pieces(b):
                found[arena, offset] = max(nbytes, found.get((arena, offset), 0))
    return [(arena, offset, nbytes) for (arena, offset), nbytes in found.items()]


__all__ = ["coldness", "touched"]
