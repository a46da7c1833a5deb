"""Plans whose transient pages are shuffled, with mapped arenas for what then lies in pieces; and changes to those."""
from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from dataclasses import replace

from minigraph.plan.plan import Arena, Extent, Plan

from .build import corrupt, mapped_arena


def mapped(plan: Plan, seed: int, page_bytes: int = 0) -> Plan:
    """The same plan over pages in another order. A storage whose pages no longer follow one another lies in a mapped
    arena, of which there are one or two, and so do some others."""
    chance = random.Random(seed)
    page, columns = page_bytes or chance.choice((64, 128)), plan.buffers
    count = -(-plan.arenas[1].bytes // page)
    order = list(range(count))
    for _ in range(chance.randrange(1, count + 1)):
        i, j = chance.randrange(count), chance.randrange(count)
        order[i], order[j] = order[j], order[i]
    shown = [[chance.randrange(count)] for _ in range(chance.choice((1, 2)))]
    moved: dict[int, tuple[int, int]] = {}
    for b in range(len(columns)):
        if columns.arena[b] != 1:
            moved[b] = columns.arena[b], 0
        elif columns.shares[b] >= 0:
            moved[b] = moved[columns.shares[b]]
        else:
            moved[b] = _moved(plan, b, page, order, shown, chance)
    arenas = [replace(arena, bytes=count * page) if k == 1 else arena for k, arena in enumerate(plan.arenas)]
    arenas += [mapped_arena(page, _extents(page, pages), f"mapped{k}") for k, pages in enumerate(shown)]
    made = replace(copy.deepcopy(plan), arenas=tuple(arenas))
    for b, (arena, by) in moved.items():
        made.buffers.arena[b] = arena
        made.buffers.offset[b] += by
    return made


def _moved(plan: Plan, b: int, page: int, order: list[int], shown: list[list[int]],
           chance: random.Random) -> tuple[int, int]:
    """The arena in which a storage lies when pages are in this order, and by how much its offset grows."""
    first = plan.buffers.offset[b] // page
    pages = order[first:-(-(plan.buffers.offset[b] + plan.buffers.bytes[b]) // page)]
    if pages == list(range(pages[0], pages[0] + len(pages))) and chance.random() < 0.7:
        return 1, page * (pages[0] - first)
    k = chance.randrange(len(shown))
    shown[k] += pages
    return len(plan.arenas) + k, page * (len(shown[k]) - len(pages) - first)


def _extents(page: int, pages: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Pages as extents, those that follow one another in memory as one."""
    found: list[tuple[int, int]] = []
    for p in pages:
        first, nbytes = found.pop() if found and sum(found[-1]) == p * page else (p * page, 0)
        found.append((first, nbytes + page))
    return tuple(found)


def remapping(plan: Plan, seed: int) -> Plan:
    """A plan with mapped arenas after one change: to an arena, or to the arena or the offset of a buffer."""
    chance = random.Random(seed)
    b, k = chance.randrange(len(plan.buffers)), chance.randrange(len(plan.arenas))
    what = chance.choice(("buffer's arena", "offset", "extents", "extents", "extents", "arena"))
    if what == "buffer's arena":
        return corrupt(plan, b_arena=(b, k))
    if what == "offset":
        return corrupt(plan, b_offset=(b, plan.buffers.offset[b] + chance.choice((-64, 64, 128))))
    arenas = list(plan.arenas)
    if what == "arena":
        arenas[k] = _changed(arenas[k], chance)
    else:
        k = chance.choice([k for k, arena in enumerate(arenas) if arena.space == "mapped"])
        arenas[k] = _reshown(arenas[k], arenas[1].bytes, chance)
    return replace(plan, arenas=tuple(arenas))


def _changed(arena: Arena, chance: random.Random) -> Arena:
    return replace(arena, **chance.choice((
        {"bytes": arena.bytes + chance.choice((-64, 64))},
        {"page_bytes": chance.choice((0, 32, 64, 128, 192))},
        {"space": chance.choice(("device", "host", "mapped"))},
        {"name": chance.choice(("transient", "persistent", "other"))},
        {"extents": ()})))


def _reshown(arena: Arena, transient_bytes: int, chance: random.Random) -> Arena:
    """A mapped arena that shows something else, or the same by other extents."""
    extents, page = list(arena.extents), arena.page_bytes
    e, f = chance.randrange(len(extents)), chance.randrange(len(extents))
    what = chance.choice(("move", "move", "swap", "swap", "split", "grow", "drop"))
    if what == "move":
        extents[e] = Extent(extents[e].offset + chance.choice((-page, page, 2 * page, 64)), extents[e].bytes)
    elif what == "swap":
        extents[e], extents[f] = extents[f], extents[e]
    elif what == "split":
        first, half = extents[e].offset, extents[e].bytes // 2
        extents[e:e + 1] = [Extent(first, half), Extent(first + half, extents[e].bytes - half)]
    elif what == "grow":
        extents.append(Extent(page * chance.randrange(transient_bytes // page), page))
    else:
        del extents[e]
    return replace(arena, bytes=sum(extent.bytes for extent in extents), extents=tuple(extents))
