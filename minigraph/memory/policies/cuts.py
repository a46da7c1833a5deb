"""Cuts of the forward part: positions where few values cross, so that a stretch can begin there again."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...base import Entry
from .problem import Problem

BLOCK = 64
"""Positions between those at which all crossing values are noted: a network unrolled over T steps has T values that
wait for their step, and to note them at each cut would take T * T. All cuts of a chain of 2,000 layers are found and
read in 44 ms, with blocks of 256 in 70; and of an LSTM of 200 steps a quarter is noted of what blocks of 16 note."""


@dataclass(frozen=True)
class Cut:
    """Between forward positions `position` and the next one exactly the values `entries` cross; `bytes` is their size
    and `before_bytes` the size of all saved values made up to here."""

    position: int
    bytes: int
    before_bytes: int
    crossing: Crossing = field(repr=False, compare=False)

    @cached_property
    def entries(self) -> frozenset[Entry]:
        """The values that cross."""
        return frozenset(self.crossing.at(self.position))


class Crossing:
    """For each forward position the droppable values made at or before it that a later forward node reads: how many,
    of how many bytes, and which ones."""

    def __init__(self, problem: Problem) -> None:
        graph, size = problem.graph, problem.size_bytes
        self.last: dict[Entry, int] = {}
        """The forward position that reads each value last."""
        for t, node in enumerate(problem.forward):
            self.last.update(dict.fromkeys(problem.reads[node], t))
        self.count: list[int] = []
        self.bytes: list[int] = []
        self.made: list[list[Entry]] = []
        """What crosses first at each position."""
        self.noted: list[list[Entry]] = []
        """What crosses at the position before each block."""
        alive: dict[Entry, None] = {}
        held = 0
        for t, node in enumerate(problem.forward):
            if t % BLOCK == 0:
                self.noted.append(list(alive))
            for entry in problem.reads[node]:
                if self.last[entry] == t and entry in alive:
                    del alive[entry]
                    held -= size[entry]
            self.made.append([e for e in graph.entries(node) if self.last.get(e, -1) > t and e in problem.droppable])
            alive.update(dict.fromkeys(self.made[-1]))
            held += sum([size[e] for e in self.made[-1]])
            self.count.append(len(alive))
            self.bytes.append(held)

    def at(self, position: int) -> list[Entry]:
        """The values that cross at a position, in the order in which they are made."""
        block = position // BLOCK
        made = [e for found in self.made[block * BLOCK:position + 1] for e in found]
        return [e for e in (*self.noted[block], *made) if self.last[e] > position]


def find_cuts(problem: Problem, slices: int = 1) -> list[Cut]:
    """Positions in forward order where the crossing values are fewer in bytes than those just before and after, or in a
    graph of so many slices, than those of all slices around.

    Variables are always there and do not count; nor do values that may not be dropped.
    """
    crossing = Crossing(problem)
    saved = set(problem.saved)
    cuts: list[Cut] = []
    before = 0
    sizes, counts = crossing.bytes, crossing.count
    reach = 1 if slices == 1 else 4 * slices
    for t, node in enumerate(problem.forward):
        before += sum([problem.size_bytes[e] for e in problem.graph.entries(node) if e in saved])
        is_low = sizes[t] <= min(sizes[max(0, t - reach):t + reach + 1])
        if counts[t] and is_low and counts[t] <= _fewest_nearby(counts, t, 8 * slices):
            cuts.append(Cut(t, sizes[t], before, crossing))
    return cuts


def _fewest_nearby(counts: Sequence[int], t: int, reach: int) -> int:
    """The fewest values that cross anywhere near a position."""
    return min([count for count in counts[max(0, t - reach):t + reach + 1] if count])
