"""Plans rewritten by hand so that their pages lie elsewhere in the transient arena, and are shown twice in order; and
arenas of pages alone."""
from __future__ import annotations

import gc
import random
from dataclasses import replace

from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.memory import CpuMemory
from minigraph.device.storages import storage_roots
from minigraph.plan.plan import Arena, Extent, Plan

PAGE_BYTES = CpuDevice().page_bytes or 4096


def remapped(plan: Plan, seed: int = 0, page_bytes: int = PAGE_BYTES, direct: bool = True) -> Plan:
    """The plan with the pages of its transient arena in random order, and a mapped arena that shows all of them in
    the old order, one copy behind the other.

    Each transient storage is at random in one of both copies, or (with `direct`) in the transient arena itself where
    its pages still follow one another. So bytes that were disjoint in memory still are, whatever the addresses.
    """
    transient = next(k for k, arena in enumerate(plan.arenas) if arena.name == "transient")
    if not plan.arenas[transient].bytes:
        return plan
    count = -(-plan.arenas[transient].bytes // page_bytes)
    chance = random.Random(seed)
    pages = _shuffled(count, chance)
    order = tuple(Extent(page * page_bytes, page_bytes) for page in pages)
    mapped = Arena(f"mapped-{seed}-{count}-{page_bytes}", "mapped", 2 * count * page_bytes, page_bytes, 2 * order)
    columns, roots = plan.buffers, storage_roots(plan)
    shifts: dict[int, tuple[int, int]] = {}
    for b in dict.fromkeys(roots):
        first, last = columns.offset[b] // page_bytes, -(-(columns.offset[b] + columns.bytes[b]) // page_bytes)
        choices = [(len(plan.arenas), 0), (len(plan.arenas), count * page_bytes)]
        shift = {page - k for k, page in enumerate(pages[first:last], first)}
        if direct and len(shift) == 1:
            choices.append((transient, shift.pop() * page_bytes))
        shifts[b] = chance.choice(choices)
    moved = [shifts[root] if columns.arena[root] == transient else (columns.arena[root], 0) for root in roots]
    arenas = [replace(arena, bytes=count * page_bytes) if k == transient else arena
              for k, arena in enumerate(plan.arenas)]
    return replace(plan, arenas=(*arenas, mapped), buffers=replace(
        columns, arena=[arena for arena, _ in moved],
        offset=[offset + shift for offset, (_, shift) in zip(columns.offset, moved, strict=True)]))


def arena(*extents: tuple[int, int], name: str = "mapped") -> Arena:
    shown = tuple(Extent(first * PAGE_BYTES, count * PAGE_BYTES) for first, count in extents)
    return Arena(name, "mapped", sum(extent.bytes for extent in shown), PAGE_BYTES, shown)


def memory(transient_pages: int = 4) -> CpuMemory:
    made = CpuDevice().memory()
    made.reserve(0, transient_pages * PAGE_BYTES, PAGE_BYTES)
    return made


def mappings() -> int:
    """Mappings of memory of this kind that somebody holds; an arena's own counts too."""
    gc.collect()
    with open("/proc/self/maps", encoding="ascii") as file:
        return sum("memfd:minigraph-arena" in line for line in file)


def _shuffled(count: int, chance: random.Random) -> list[int]:
    """The numbers below `count` in runs of one to three, the runs in random order."""
    runs, at = [], 0
    while at < count:
        length = min(chance.randint(1, 3), count - at)
        runs.append(range(at, at + length))
        at += length
    chance.shuffle(runs)
    return [page for run in runs for page in run]
