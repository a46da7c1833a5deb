"""A program that is asked whether it has a plan within its budget, and what it counts, before it is compiled."""
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..graph import Graph
from ..memory.layout import PersistentLayout
from ..memory.policies import Slicing
from ..plan.plan import Plan
from .compilation import Request
from .evaluate import packed_bytes
from .pipeline import begin, complete, without_collection
from .schedule import Offers


@dataclass(frozen=True)
class Count:
    """The least bytes that a program's schedules need by their counts, nothing being packed, and the slices of the one
    that needs them."""

    bytes: int
    slicing: Slicing | None


class Prospect:
    """One program under a budget. Whatever was made to answer one question is there for the next; nothing is packed for
    counts, and for `packed` no more than it takes to find one candidate that fits, whether it is the fastest or not."""

    def __init__(self, symbol_graph: Graph, request: Request, layout: PersistentLayout) -> None:
        self._state = begin(symbol_graph, request, layout)
        with self._timed():
            self._offers = self._state.offers = Offers(self._state)

    def count(self) -> Count:
        """The least count of all candidates."""
        with self._timed():
            least = min([*self._offers.first, *self._offers.others], key=lambda c: c.peak_bytes)
        return Count(least.peak_bytes, least.slicing)

    def count_alike(self, slicing: Slicing | None) -> int | None:
        """The least count in as many slices, which is no less than that of all candidates and takes a part of the time;
        None where there is no candidate in them."""
        with self._timed():
            return min((c.peak_bytes for c in self._offers.alike(slicing)), default=None)

    def packed(self) -> int | None:
        """Bytes of both arenas for one of the candidates that fit; None, where there is no plan within the budget."""
        with self._timed():
            found = self._offers.pack_any()
        return None if found is None or self._state.tried is None else packed_bytes(self._state.tried)

    def plan(self) -> Plan:
        """The plan that compiling the program gives; OutOfMemoryError, where there is none within the budget."""
        complete(self._state)
        assert self._state.plan is not None
        return self._state.plan

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """What is done here belongs to the time of `schedule`."""
        start = time.perf_counter()
        try:
            with without_collection():
                yield
        finally:
            seconds = self._state.seconds
            seconds["schedule"] = seconds.get("schedule", 0.0) + time.perf_counter() - start
