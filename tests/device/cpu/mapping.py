"""Plans and arenas of pages that the CPU can map."""
from __future__ import annotations

import gc
from dataclasses import replace

from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.memory import CpuMemory
from minigraph.plan.plan import Arena, Plan
from tests.plan.build import mapped_arena
from tests.plan.mapping import mapped

PAGE_BYTES = CpuDevice().page_bytes or 4096


def remapped(plan: Plan, seed: int = 0) -> Plan:
    """The plan with its pages in a random order, and mapped arenas of names that no other seed and plan have."""
    if not plan.arenas[1].bytes:
        return plan
    made = mapped(plan, seed, PAGE_BYTES)
    return replace(made, arenas=tuple(replace(arena, name=f"{arena.name}-{seed}-{len(plan)}")
                                      if arena.space == "mapped" else arena for arena in made.arenas))


def arena(*extents: tuple[int, int], name: str = "mapped") -> Arena:
    """A mapped arena that shows (first page, pages)."""
    return mapped_arena(PAGE_BYTES, tuple((first * PAGE_BYTES, count * PAGE_BYTES) for first, count in extents), name)


def memory(transient_pages: int = 4) -> CpuMemory:
    """A group's arenas, the transient one of so many pages."""
    made = CpuDevice().memory()
    made.reserve(0, transient_pages * PAGE_BYTES, PAGE_BYTES)
    return made


def mappings() -> int:
    """Mappings of memory of this kind that somebody holds; an arena's own counts too."""
    gc.collect()
    with open("/proc/self/maps", encoding="ascii") as file:
        return sum("memfd:minigraph-arena" in line for line in file)
