"""events: of the records and waits between streams those that order what nothing else orders.

A stream runs its instructions one after the other, so whoever has waited for an event knows all that its stream had
done or waited for by then. What each stream knows is a clock with a count for each stream (Mattern, "Virtual time and
global states of distributed systems", 1989); a wait that adds nothing to its stream's clock goes, and so do a record at
which the clock is that of the last one, whose event then serves both, and a record that nobody waits for.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import le
from typing import NamedTuple

from ..plan.plan import InstructionColumns, Kind


class Thinned(NamedTuple):
    """Instructions without needless events; for each old one its place among them.

    `first` is the number of the first instruction that was kept at or behind an old one. `stands` is the old one's own
    new number, or where a wait has gone that of the instruction of its stream after which what it waited for is known;
    not that of a record, so that a record that has gone with it stands behind it too.
    """

    code: InstructionColumns
    first: list[int]
    stands: list[int]


def without_implied(code: InstructionColumns, streams: int) -> Thinned:
    """Leave out what other records and waits imply, events numbered anew; time grows with the instructions."""
    waits = _needed_waits(code, streams)
    used = set(waits.values())
    kept = [i for i, (kind, event) in enumerate(zip(code.kind, code.event, strict=True))
            if (i in waits if kind == Kind.WAIT else kind != Kind.RECORD or event in used)]
    number = {event: k for k, event in enumerate(code.event[i] for i in kept if code.kind[i] == Kind.RECORD)}
    result = code.selected(kept)
    for new, old in enumerate(kept):
        if code.kind[old] in (Kind.RECORD, Kind.WAIT):
            result.event[new] = number[waits.get(old, code.event[old])]
    return Thinned(result, *_places(code, kept, streams))


def _needed_waits(code: InstructionColumns, streams: int) -> dict[int, int]:
    """The waits that add to what their streams know, each with the event that it waits for."""
    clocks, needed = _Clocks(streams), {}
    run: Sequence[int]
    for run in _runs(code):
        if len(run) > 1:  # waits in a row: one that implies another knows more
            run = sorted(run, key=lambda i: -sum(clocks.at_event[code.event[i]]))
        for i in run:
            stream, event = code.stream[i], code.event[i]
            if code.kind[i] == Kind.RECORD:
                clocks.record(stream, event)
            elif code.kind[i] != Kind.WAIT:
                clocks.work(stream)
            elif clocks.wait(stream, event):
                needed[i] = clocks.same_as.get(event, event)
    return needed


def _runs(code: InstructionColumns) -> Iterator[range]:
    """All instructions in order: waits of one stream that follow each other together, others alone."""
    begin = 0
    while begin < len(code):
        end = begin + 1
        while (end < len(code) and code.kind[begin] == code.kind[end] == Kind.WAIT
               and code.stream[begin] == code.stream[end]):
            end += 1
        yield range(begin, end)
        begin = end


def _places(code: InstructionColumns, kept: list[int], streams: int) -> tuple[list[int], list[int]]:
    number = {old: new for new, old in enumerate(kept)}
    first, stands, latest, passed = [0] * len(code), [-1] * len(code), [-1] * streams, 0
    for run in _runs(code):
        for i in run:
            first[i] = passed
            if i in number:
                passed += 1
                if code.kind[i] != Kind.RECORD:
                    latest[code.stream[i]] = number[i]
        for i in run:
            stands[i] = number.get(i, latest[code.stream[i]])
    return first, stands


class _Clocks:
    """`known[s][t]`: how much of stream t's work has ended for sure when the next instruction of stream s begins."""

    def __init__(self, streams: int) -> None:
        self.known = [(0,) * streams for _ in range(streams)]
        self.at_event: dict[int, tuple[int, ...]] = {}
        self.same_as: dict[int, int] = {}
        """For an event of the same clock as an earlier one of its stream that one."""
        self._latest: list[int | None] = [None] * streams

    def work(self, stream: int) -> None:
        """The stream's next instruction is neither a record nor a wait."""
        own = self.known[stream]
        self.known[stream] = (*own[:stream], own[stream] + 1, *own[stream + 1:])

    def record(self, stream: int, event: int) -> None:
        """The event stands for all that the stream knows."""
        latest, self.at_event[event] = self._latest[stream], self.known[stream]
        if latest is not None and self.at_event[latest] == self.known[stream]:
            self.same_as[event] = latest
        else:
            self._latest[stream] = event

    def wait(self, stream: int, event: int) -> bool:
        """The stream knows what the event stands for; whether it has not done so before."""
        known, told = self.known[stream], self.at_event[event]
        self.known[stream] = tuple(map(max, known, told))
        return not all(map(le, told, known))
