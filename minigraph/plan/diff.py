"""What differs between two plans, short enough to read.

Instructions and buffers are matched by name (and by how many of the name came before), so numbers may shift freely.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from ..base import format_bytes
from .plan import Arena, Plan
from .printer import format_instruction

_SHOWN = 8
Key = Hashable


def diff(a: Plan, b: Plan) -> str:
    """The differences from plan `a` to plan `b`, a line each, long lists cut short; says so when there are none.

    The seconds that compilation took are not compared.
    """
    lines = _heads(a, b)
    keys_a, keys_b = _instruction_keys(a), _instruction_keys(b)
    lines += _presence(a, b, keys_a, keys_b)
    lines += _moves(a, b, keys_a, keys_b)
    names_a, names_b = _buffer_keys(a), _buffer_keys(b)
    lines += _changes(a, b, keys_a, keys_b, names_a, names_b)
    lines += _buffers(a, b, names_a, names_b)
    return "\n".join(lines or _details(a, b)) + "\n"


def _heads(a: Plan, b: Plan) -> list[str]:
    """Figures, arenas and the like."""
    lines = [f"{name}: {x} -> {y}" for name, x, y in (
        ("program", a.program, b.program), ("memory", a.memory, b.memory),
        ("fingerprint", a.fingerprint, b.fingerprint), ("packing", a.figures.packing, b.figures.packing),
        ("nodes", a.figures.nodes, b.figures.nodes), ("ranges", a.ranges, b.ranges),
        ("streams", a.streams, b.streams), ("instructions", len(a), len(b)),
        ("buffers", len(a.buffers), len(b.buffers))) if x != y]
    lines += [_bytes(name, x, y) for name, x, y in (
        ("planned", a.planned_bytes, b.planned_bytes), ("naive", a.figures.naive_bytes, b.figures.naive_bytes),
        ("lower bound", a.figures.lower_bound_bytes, b.figures.lower_bound_bytes)) if x != y]
    arenas_a, arenas_b = _arenas(a), _arenas(b)
    for name in dict.fromkeys((*arenas_a, *arenas_b)):
        old, new = arenas_a.get(name), arenas_b.get(name)
        if old is None or new is None:
            lines.append(f"arena {name}: {'removed' if new is None else 'added'}")
        elif old != new:
            lines.append(f"arena {name}: {_changed_arena(old, new)}")
    return lines


def _arenas(plan: Plan) -> dict[str, Arena]:
    """The arenas by name; a single mapped one by that word, as its name tells of its extents."""
    single = [arena.space for arena in plan.arenas].count("mapped") == 1
    return {"mapped" if single and arena.space == "mapped" else arena.name: arena for arena in plan.arenas}


def _changed_arena(old: Arena, new: Arena) -> str:
    what = [f"{x} -> {y}" for x, y in ((old.name, new.name), (old.space, new.space)) if x != y]
    what += [_bytes(name, x, y) for name, x, y in (("size", old.bytes, new.bytes),
                                                  ("pages", old.page_bytes, new.page_bytes)) if x != y]
    if old.extents != new.extents:
        same = (Counter(old.extents) & Counter(new.extents)).total()
        what.append(f"extents: {len(old.extents)} -> {len(new.extents)}, {same} of them the same")
    return ", ".join(what)


def _bytes(name: str, old: int, new: int) -> str:
    return f"{name}: {format_bytes(old)} -> {format_bytes(new)} ({new - old:+d} bytes)"


def _presence(a: Plan, b: Plan, keys_a: dict[Key, int], keys_b: dict[Key, int]) -> list[str]:
    removed = [f"- {format_instruction(a, i)}" for key, i in keys_a.items() if key not in keys_b]
    added = [f"+ {format_instruction(b, i)}" for key, i in keys_b.items() if key not in keys_a]
    return _section("instructions removed", removed) + _section("instructions added", added)


def _moves(a: Plan, b: Plan, keys_a: dict[Key, int], keys_b: dict[Key, int]) -> list[str]:
    """The fewest instructions without which the others are in the same order."""
    common = [(i, keys_b[key]) for key, i in keys_a.items() if key in keys_b]
    stay = _longest_increasing([j for _, j in common])
    moved = [f"{i} -> {j}: {format_instruction(b, j)}" for k, (i, j) in enumerate(common) if k not in stay]
    return _section("instructions moved", moved)


def _changes(a: Plan, b: Plan, keys_a: dict[Key, int], keys_b: dict[Key, int], names_a: dict[Key, int],
             names_b: dict[Key, int]) -> list[str]:
    """Instructions of both plans that run elsewhere, otherwise, or on other values."""
    of_a, of_b = ({b: key for key, b in names.items()} for names in (names_a, names_b))
    changed = []
    for key, i in keys_a.items():
        if (j := keys_b.get(key)) is not None and (what := _changed(a.instruction(i), b.instruction(j), of_a, of_b)):
            changed.append(f"{i} -> {j} {a.instructions.name[i]}: {', '.join(what)}")
    return _section("instructions changed", changed)


def _changed(old: Any, new: Any, of_a: dict[int, Key], of_b: dict[int, Key]) -> list[str]:
    what = [f"{name} {getattr(old, name)} -> {getattr(new, name)}"
            for name in ("stream", "algorithm", "params", "unread", "value")
            if getattr(old, name) != getattr(new, name)]
    for name in ("reads", "writes"):
        if [of_a.get(b) for b in getattr(old, name)] != [of_b.get(b) for b in getattr(new, name)]:
            what.append(f"{name} {getattr(old, name)} -> {getattr(new, name)}")
    return what


def _buffers(a: Plan, b: Plan, names_a: dict[Key, int], names_b: dict[Key, int]) -> list[str]:
    changed: list[str] = []
    moved = 0
    for key, i in names_a.items():
        j = names_b.get(key)
        if j is None:
            continue
        if _place(a, i) != _place(b, j):
            moved += 1
            if len(changed) <= _SHOWN:
                changed.append(f"{a.buffers.name[i]}: {_told(a, i)} -> {_told(b, j)}")
    lines = [f"buffers removed: {_count(names_a, names_b)}"] if _count(names_a, names_b) else []
    lines += [f"buffers added: {_count(names_b, names_a)}"] if _count(names_b, names_a) else []
    return lines + _section("buffers changed", changed, moved)


def _count(keys: Iterable[Key], others: dict[Key, int]) -> int:
    return sum(1 for key in keys if key not in others)


def _place(plan: Plan, b: int) -> tuple[int, list[tuple[str, int, int]]]:
    """The bytes of a buffer, and where they lie in memory."""
    return plan.buffers.bytes[b], [(plan.arenas[k].name, offset, nbytes) for k, offset, nbytes in plan.pieces(b)]


def _told(plan: Plan, b: int) -> str:
    columns = plan.buffers
    return f"{columns.bytes[b]} bytes @{plan.arenas[columns.arena[b]].name}+{columns.offset[b]}"


def _details(a: Plan, b: Plan) -> list[str]:
    """What is left when nothing of the above differs: which columns do, by name."""
    names = [f"{what} {name}" for what, old, new in (("buffer", a.buffers, b.buffers),
                                                     ("instruction", a.instructions, b.instructions))
             for name in vars(old) if getattr(old, name) != getattr(new, name)]
    names += [field.name for field in fields(Plan) if field.name not in ("buffers", "instructions", "figures")
              and getattr(a, field.name) != getattr(b, field.name)]
    return [f"only these differ: {', '.join(names)}"] if names else ["the plans are the same"]


def _section(title: str, items: Sequence[str], count: int | None = None) -> list[str]:
    count = len(items) if count is None else count
    if not count:
        return []
    more = [f"  and {count - _SHOWN} more"] if count > _SHOWN else []
    return [f"{title}: {count}"] + [f"  {item}" for item in items[:_SHOWN]] + more


def _instruction_keys(plan: Plan) -> dict[Key, int]:
    columns = plan.instructions
    return _numbered(zip(columns.kind, columns.op, columns.name, columns.event, strict=True))


def _buffer_keys(plan: Plan) -> dict[Key, int]:
    return _numbered((name,) for name in plan.buffers.name)


def _numbered(keys: Iterable[tuple[Any, ...]]) -> dict[Key, int]:
    """Each key, made unique by how often it has come before, to its position."""
    seen: Counter[Key] = Counter()
    positions: dict[Key, int] = {}
    for position, key in enumerate(keys):
        positions[(*key, seen[key])] = position
        seen[key] += 1
    return positions


def _longest_increasing(values: Sequence[int]) -> set[int]:
    """Positions of a longest increasing subsequence of distinct values."""
    ends: list[int] = []  # the least value that ends a subsequence of each length
    at: list[int] = []
    before: list[int] = []
    for k, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(value)
            at.append(k)
        else:
            ends[length], at[length] = value, k
    chosen, k = set(), at[-1] if at else -1
    while k >= 0:
        chosen.add(k)
        k = before[k]
    return chosen
