"""A schedule: the order in which the nodes of a graph run. Policies make schedules; every later pass reads them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """`order[t]` is the node that runs at position t. Views and variables do not run and are not listed."""

    order: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.order)


def from_order(order: Sequence[int]) -> Schedule:
    """A schedule that runs each node once, in the given order."""
    if len(set(order)) != len(order):
        raise ValueError("a node is listed twice in a plain order")
    return Schedule(tuple(order))
