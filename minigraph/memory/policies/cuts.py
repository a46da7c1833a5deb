"""Cuts of the forward part: positions where few values cross, so that a stretch can begin there again."""
from __future__ import annotations

from dataclasses import dataclass

from ...base import Entry
from .problem import Problem


@dataclass(frozen=True)
class Cut:
    """Between forward positions `position` and the next one exactly the values `entries` cross; `bytes` is their size
    and `before_bytes` the size of all saved values made up to here."""

    position: int
    entries: frozenset[Entry]
    bytes: int
    before_bytes: int


def find_cuts(problem: Problem, slices: int = 1) -> list[Cut]:
    """Positions in forward order where the crossing values are fewer in bytes than those just before and after, or in a
    graph of so many slices, than those of all slices around.

    Variables are always there and do not count; nor do values that may not be dropped.
    """
    crossing = crossing_values(problem)
    saved = set(problem.saved)
    cuts: list[Cut] = []
    before = 0
    sizes = [sum(problem.size_bytes[e] for e in entries) for entries in crossing]
    reach = 1 if slices == 1 else 4 * slices
    for t, node in enumerate(problem.forward):
        before += sum(problem.size_bytes[e] for e in problem.graph.entries(node) if e in saved)
        is_low = sizes[t] <= min(sizes[max(0, t - reach):t + reach + 1])
        if crossing[t] and is_low and len(crossing[t]) <= _fewest_nearby(crossing, t, 8 * slices):
            cuts.append(Cut(t, frozenset(crossing[t]), sizes[t], before))
    return cuts


def crossing_values(problem: Problem) -> list[tuple[Entry, ...]]:
    """For each forward position the droppable values made at or before it that a later forward node reads."""
    last: dict[Entry, int] = {}
    for t, node in enumerate(problem.forward):
        for entry in problem.reads[node]:
            last[entry] = t
    alive: dict[Entry, None] = {}
    result = []
    for t, node in enumerate(problem.forward):
        for entry in problem.reads[node]:
            if last[entry] == t:
                alive.pop(entry, None)
        for entry in problem.graph.entries(node):
            if last.get(entry, -1) > t and entry in problem.droppable:
                alive[entry] = None
        result.append(tuple(alive))
    return result


def _fewest_nearby(crossing: list[tuple[Entry, ...]], t: int, reach: int) -> int:
    """The fewest values that cross anywhere near a position."""
    return min(len(entries) for entries in crossing[max(0, t - reach):t + reach + 1] if entries)
