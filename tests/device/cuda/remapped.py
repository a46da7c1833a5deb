"""Plans rewritten by hand so that transient tensors lie in a mapped arena, as a planner might have placed them."""
from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from minigraph.device.storages import storage_roots
from minigraph.plan.plan import Arena, Extent, Plan

SPARE_PAGES = 2


def remapped(plan: Plan, page_bytes: int, seed: int = 0) -> Plan:
    """The plan with the pages of its transient arena in a random order.

    A tensor whose pages are no longer in one piece lies in a mapped arena that shows them one after another, and so do
    some of the others. Pages that tensors share one after the other are shown by several places of the mapped arena.
    """
    draw, number = np.random.RandomState(seed), next(k for k, a in enumerate(plan.arenas) if a.name == "transient")
    count = -(-plan.arenas[number].bytes // page_bytes) + SPARE_PAGES
    order, columns = draw.permutation(count).tolist(), plan.buffers
    offset, arena, shown = list(columns.offset), list(columns.arena), []
    for members in _storages(plan, number):
        begin = min(offset[b] for b in members)
        end = max(offset[b] + columns.bytes[b] for b in members)
        first, last = begin // page_bytes, max(begin, end - 1) // page_bytes
        pages = order[first:last + 1]
        whole = pages == list(range(pages[0], pages[0] + len(pages))) and draw.rand() < 0.5
        move = ((pages[0] if whole else len(shown)) - first) * page_bytes
        for b in members:
            offset[b] += move
            arena[b] = number if whole else len(plan.arenas)
        shown += [] if whole else pages
    arenas = (*plan.arenas[:number], replace(plan.arenas[number], bytes=count * page_bytes, page_bytes=0),
              *plan.arenas[number + 1:], _arena(shown, page_bytes))
    return replace(plan, arenas=arenas, buffers=replace(columns, offset=offset, arena=arena))


def _storages(plan: Plan, arena: int) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for b, root in enumerate(storage_roots(plan)):
        if plan.buffers.arena[b] == arena:
            found.setdefault(root, []).append(b)
    return list(found.values())


def _arena(pages: list[int], page_bytes: int) -> Arena:
    extents: list[Extent] = []
    for page in pages:
        begin, nbytes = extents[-1] if extents else (0, 0)
        if begin + nbytes == page * page_bytes and extents:
            extents[-1] = Extent(begin, nbytes + page_bytes)
        else:
            extents.append(Extent(page * page_bytes, page_bytes))
    name = f"mapped-{zlib.crc32(repr(extents).encode()):08x}"
    return Arena(name, "mapped", len(pages) * page_bytes, page_bytes, tuple(extents))
