"""The verifier: proves that a plan computes what it says, from the plan alone; it shares no code with the planner.

It plays the plan's list order over the bytes of all memory and keeps for each byte whose value it holds (*owner*).
Bytes between two neighbouring buffer ends always change together, so one *cell* of an array stands for them and every
access is a slice of cells. A buffer in a mapped arena lies in several pieces of the transient arena: cells are cut at
the ends of all pieces, and an access is to those of each piece. What is proved:

- form (`wellformed.py`): places, alignment, sizes, counts, copies, ranges, and what an instruction may overwrite of
  what it reads;
- operands (`operands.py`): shapes, dtypes and layouts are those that the operators infer, and scratch is as large as
  the algorithm declares;
- reads see their writes: every byte of what is read still belongs to the buffer that is named. A buffer is one
  value, so a weight before and after its update are two buffers, and reading the old one afterwards is an error;
- live bytes do not overlap, and lifetimes are honest: the first write is at `born`, no read at or after `dies`;
- inputs and persistent tensors hold their values at the start; outputs and persistent tensors hold theirs at the
  end, the latter where they lay at the start, with every change that was made to a copy elsewhere (`homes.py`);
- outputs and persistent tensors are computed from what the graph says, through whatever copies and repetitions
  (`values.py`);
- between forward and backward users see what they expect: outputs are made in forward, head gradients are read in
  backward alone;
- any two accesses of two streams to the same byte, one of them a write, are ordered by events: a vector clock for
  each stream, and for each cell the clock of the last write and the last access of each stream.

It rests on two things outside the plan: a program starts when the streams of the one before it are idle, and a device
shows in a mapped arena the pages that the plan says.
"""
from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..ops.choices import AlgorithmChoices
from .homes import Homes
from .operands import Operands
from .places import Int64Array, Places, VerificationError
from .plan import Kind, Plan
from .values import Values
from .wellformed import check_form

__all__ = ["Verification", "VerificationError", "verify"]
At = slice | Int64Array
"""Which cells, as an index of arrays over all cells."""
_NOBODY = -1
_NEVER = -2


@dataclass(frozen=True)
class Verification:
    """What was proved: a plan of so many instructions and buffers, by so many checks, in so many seconds."""

    instructions: int
    buffers: int
    checks: int
    seconds: float


def verify(plan: Plan, algorithms: AlgorithmChoices | None = None) -> Verification:
    """Prove that a plan is right, or raise VerificationError naming both instructions and the bytes.

    `algorithms` are the ways to compute an op of the device that is to run the plan (`Device.algorithms`): then each
    instruction's must be one of them. Time grows with the instructions and with the cells that their buffers cover.
    """
    begin = perf_counter()
    places = Places(plan)
    checks = check_form(places) + Operands(places, algorithms).check()
    checks += _Playback(places).run() + Homes(places).check() + Values(places).check()
    return Verification(len(plan), len(places), checks, perf_counter() - begin)


class _Cells:
    """The smallest ranges of bytes that buffers tell apart, over all memory."""

    def __init__(self, places: Places) -> None:
        self.places = places
        first, start, end = places.pieces
        self.bounds: Int64Array = np.unique(np.concatenate((start, end)))
        self._first, self._low, self._high = first, *(np.searchsorted(self.bounds, ends) for ends in (start, end))
        self._slices: list[slice | None] = list(map(slice, self._low[first[:-1]].tolist(),
                                                    self._high[first[:-1]].tolist()))
        for b in places.scattered:
            self._slices[b] = None

    def __len__(self) -> int:
        return max(len(self.bounds) - 1, 0)

    def of(self, b: int) -> At:
        """The cells of a buffer, as an index: a slice where it lies in one piece."""
        return self._slices[b] or self._gathered(b)

    def _gathered(self, b: int) -> Int64Array:
        return np.concatenate([np.arange(self._low[k], self._high[k]) for k in range(*self._first[[b, b + 1]])])

    def first_run(self, bad: NDArray[np.bool_], at: At) -> tuple[int, tuple[int, int]]:
        """The first of the cells `at` at which the mask `bad` is true, and the addresses of the run of such."""
        cells = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        cells = cells[np.argmax(bad):][:_run_length(bad[np.argmax(bad):])]
        length = _run_length(np.append(True, np.diff(cells) == 1))
        return int(cells[0]), (int(self.bounds[cells[0]]), int(self.bounds[cells[length - 1] + 1]))


def _run_length(mask: NDArray[np.bool_]) -> int:
    """How many items of a mask are true before the first one that is not."""
    return len(mask) if mask.all() else int(np.argmin(mask))


class _Playback:
    """The list order played over the cells: who owns which bytes, and until when they are needed."""

    def __init__(self, places: Places) -> None:
        self.places, self.plan = places, places.plan
        self.cells = _Cells(places)
        self.owner = np.full(len(self.cells), _NOBODY, np.int64)
        self.needed_until = np.full(len(self.cells), -1, np.int64)
        self.value: list[int] = places.value.tolist()
        self.until: list[int] = places.until.tolist()
        self.bytes: list[int] = places.bytes.tolist()
        self.born: list[int] = places.born.tolist()
        self.dies: list[int] = places.dies.tolist()
        self.workspace = set(self.plan.instructions.workspace) - {-1}
        self.backward_start = self.plan.backward_start
        self.late = {self.value[self.plan.inputs[name]] for name in self.plan.late_inputs}
        self.writer = [_NEVER] * len(places)
        self.last_read = [_NEVER] * len(places)
        self.checks = 0
        used = sorted(set(self.plan.instructions.stream))
        self.clocks = _Clocks(self.cells, len(self.plan.streams)) if len(used) > 1 else None
        self.events = _Events(places)

    def run(self) -> int:
        """Play the whole plan; the number of checks made."""
        self._start()
        columns = self.plan.instructions
        for i, (kind, stream, event) in enumerate(zip(columns.kind, columns.stream, columns.event, strict=True)):
            if self.clocks:
                self.clocks.begin(i, stream)
            if kind == Kind.RECORD:
                self.events.record(i, event)
                if self.clocks:
                    self.clocks.record(stream, event)
            elif kind == Kind.WAIT:
                self.events.wait(i, event)
                if self.clocks:
                    self.clocks.wait(stream, event)
            else:
                self._execute(i, stream)
        self._finish()
        return self.checks

    def _execute(self, i: int, stream: int) -> None:
        columns = self.plan.instructions
        reads, unread, workspace = columns.reads[i], columns.unread[i], columns.workspace[i]
        used = [b for p, b in enumerate(reads) if p not in unread] if unread else reads
        for b in used:
            self._read(i, stream, b)
        if workspace >= 0:
            self._write(i, stream, workspace, ())
        for b in columns.writes[i]:
            self._check_value(i, b, "writes")
            self._write(i, stream, b, used)

    # -- both ends of the program --------------------------------------------------------------------------------
    def _start(self) -> None:
        """Inputs and persistent tensors own their bytes; nothing else claims a value before the program."""
        given = [*self.plan.inputs.items(), *((tensor.name, tensor.first) for tensor in self.plan.persistent)]
        for name, b in given:
            self._check_value(-1, b, f"has {name!r} in")
            if self.born[b] != -1:
                self._fail(f"{name!r} is given before the program starts, but {self.places.buffer(b)} says that it is "
                           f"born at {self.places.instruction(self.born[b])}; it must be born at -1", -1, self.born[b])
        for b in dict.fromkeys(self.value[b] for _, b in given):
            self.checks += 1
            at = self.cells.of(b)
            if (taken := self.owner[at] != _NOBODY).any():
                cell, span = self.cells.first_run(taken, at)
                self._fail(f"{self.places.buffer(b)} and {self._owner_text(cell)} both hold a value at the start of "
                           f"the program", -1, -1, at=span)
            self._own(b, -1, at)
        for b, born in enumerate(self.born):
            if born == -1 and self.writer[self.value[b]] == _NEVER:
                self._fail(f"{self.places.buffer(b)} claims a value at the start of the program, but is neither an "
                           f"input nor persistent", -1, -1, at=self._span(b))

    def _finish(self) -> None:
        """Outputs and persistent tensors hold their values, the latter at home; every buffer had its writer."""
        last = [(tensor.name, tensor.last) for tensor in self.plan.persistent]
        outputs = self.plan.outputs
        for name, b in outputs:
            self._check_held(f"output {name!r}", b)
            writer = self.writer[self.value[b]]
            if writer >= self.backward_start:
                self._fail(f"output {name!r} is {self.places.buffer(b)}, which {self.places.instruction(writer)} "
                           f"writes in backward; it is read when forward has ended", writer, at=self._span(b))
        for name, b in last:
            self._check_held(f"persistent tensor {name!r}", b)
        self._check_home()
        self._check_writers()

    def _check_held(self, what: str, b: int) -> None:
        """At the end of the program, a tensor that is asked for is there and says so."""
        end = len(self.plan)
        self.checks += 1
        self._check_value(end - 1, b, f"leaves {what} in")
        at = self.cells.of(b)
        if self._lost(b, at):
            self._fail_lost(end, b, at, f"{what} must be held at the end of the program in {self.places.buffer(b)}")
        if self.dies[b] < end:
            self._fail(f"{what} is needed to the end of the program, but {self.places.buffer(b)} of "
                       f"{self.places.instruction(self.born[b])} dies at {self.places.instruction(self.dies[b])}",
                       self.born[b], end, at=self._span(b))

    def _check_home(self) -> None:
        for tensor in self.plan.persistent:
            first, last = self._span(tensor.first), self._span(tensor.last)
            if first != last:
                writer = self.writer[self.value[tensor.last]]
                self._fail(f"persistent tensor {tensor.name!r} starts in {self.places.buffer(tensor.first)} at "
                           f"{self.places.where(*first)} and ends in {self.places.buffer(tensor.last)} of "
                           f"{self.places.instruction(writer)}; it must end where it started", -1, writer, at=last)

    def _check_writers(self) -> None:
        for b, value in enumerate(self.value):
            born = self.born[b]
            if self.writer[value] == _NEVER:
                self._fail(f"{self.places.buffer(b)} says that {self.places.instruction(born)} writes it, but no "
                           f"instruction does", born, at=self._span(b))
            if born < self.born[value]:
                self._fail(f"{self.places.buffer(b)} is a view, born at {self.places.instruction(born)}, of "
                           f"{self.places.buffer(value)}, which is written later by "
                           f"{self.places.instruction(self.born[value])}", born, self.born[value], at=self._span(b))

    # -- accesses --------------------------------------------------------------------------------------------------
    def _check_value(self, i: int, b: int, does: str) -> None:
        """A workspace holds nothing but scratch: its bytes are somebody's for one instruction, and no value."""
        if self.value[b] in self.workspace:
            user = self.plan.instructions.workspace.index(self.value[b])
            self._fail(f"{self.places.instruction(i)} {does} {self.places.buffer(b)}, which is the workspace of "
                       f"{self.places.instruction(user)}; a workspace holds no value", i, user, at=self._span(b))

    def _read(self, i: int, stream: int, b: int) -> None:
        value = self.value[b]
        self._check_value(i, b, "reads")
        if i >= self.dies[b]:
            self._fail(f"{self.places.instruction(i)} reads {self.places.buffer(b)}, written by "
                       f"{self.places.instruction(self.writer[value])}, after it has died at "
                       f"{self.places.instruction(self.dies[b])}", self.writer[value], i, at=self._span(b))
        if i < self.born[b] or self.writer[value] == _NEVER:
            self._fail(f"{self.places.instruction(i)} reads {self.places.buffer(b)} before it is written by "
                       f"{self.places.instruction(self.born[b])}", i, self.born[b], at=self._span(b))
        if value in self.late and i < self.backward_start:
            self._fail(f"{self.places.instruction(i)} reads {self.places.buffer(b)} in forward; it is given when "
                       f"backward begins, at {self.places.instruction(self.backward_start)}", i, at=self._span(b))
        self.checks += 1
        at = self.cells.of(b)
        if self._lost(b, at):
            self._fail_lost(i, b, at, f"{self.places.instruction(i)} reads {self.places.buffer(b)}")
        self.last_read[value] = i
        if self.clocks and self.bytes[b]:
            self.clocks.read(i, stream, at)

    def _lost(self, b: int, at: At) -> bool:
        return not (self.owner[at] == self.value[b]).all()

    def _fail_lost(self, i: int, b: int, at: At, what: str) -> NoReturn:
        """Fail, beginning with `what`, since not all bytes of `b` hold its value at instruction `i`."""
        cell, span = self.cells.first_run(self.owner[at] != self.value[b], at)
        owner = int(self.owner[cell])
        self._fail(f"{what}, written by {self.places.instruction(self.writer[self.value[b]])}, but its bytes hold "
                   f"{self._owner_text(cell)}", self.writer[owner] if owner >= 0 else -1, i, at=span)

    def _write(self, i: int, stream: int, b: int, taken: tuple[int, ...] | list[int]) -> None:
        """Make `b` the owner of its bytes; `taken` are buffers that the instruction may overwrite at their end."""
        places = self.places
        if self.writer[b] == _NEVER:
            if self.born[b] != i:
                self._fail(f"{places.instruction(i)} is the first to write {places.buffer(b)}, which says that it is "
                           f"born at {places.instruction(self.born[b])}", i, self.born[b], at=self._span(b))
        elif i >= self.dies[b]:
            self._fail(f"{places.instruction(i)} writes {places.buffer(b)} after it has died at "
                       f"{places.instruction(self.dies[b])}", self.writer[b], i, at=self._span(b))
        elif b not in self.workspace and (self.born[b] == -1 or self.last_read[b] != _NEVER):
            self._fail(f"{places.instruction(i)} writes {places.buffer(b)} again, whose value of "
                       f"{places.instruction(self.writer[b])} is in use; a new value needs a new buffer",
                       self.writer[b], i, at=self._span(b))
        at = self.cells.of(b)
        if self.bytes[b]:
            self._check_free(i, b, taken, at)
            if self.clocks:
                self.clocks.write(i, stream, at)
        self._own(b, i, at)

    def _own(self, b: int, i: int, at: At) -> None:
        self.owner[at] = b
        self.needed_until[at] = self.until[b]
        self.writer[b] = i

    def _check_free(self, i: int, b: int, taken: tuple[int, ...] | list[int], at: At) -> None:
        """Live bytes do not overlap: what is overwritten has died, or ends as an input of this instruction."""
        self.checks += 1
        until = self.needed_until[at]
        if until.max() <= i:
            return
        owner = self.owner[at]
        live = (until > i) & (owner != b)
        ending = np.isin(owner, [self.value[r] for r in taken]) & (until == i + 1)
        live &= ~ending
        if live.any():
            cell, span = self.cells.first_run(live, at)
            self._fail(f"{self.places.instruction(i)} writes {self.places.buffer(b)} over {self._owner_text(cell)}, "
                       f"which is needed until {self.places.instruction(int(self.needed_until[cell]))}",
                       self.writer[int(self.owner[cell])], i, at=span)

    # -- words -----------------------------------------------------------------------------------------------------
    def _owner_text(self, cell: int) -> str:
        owner = int(self.owner[cell])
        if owner == _NOBODY:
            return "nothing that was ever written"
        return f"{self.places.buffer(owner)} of {self.places.instruction(self.writer[owner])}"

    def _span(self, b: int) -> tuple[int, int]:
        return int(self.places.start[b]), int(self.places.end[b])

    def _fail(self, message: str, *instructions: int, at: tuple[int, int] | None = None) -> NoReturn:
        self.places.fail(message, *instructions, at=at)


class _Events:
    """Events are recorded once, and before they are waited for."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.recorded: dict[int, int] = {}

    def record(self, i: int, event: int) -> None:
        """Note a record; fail when there was one."""
        if event in self.recorded:
            earlier = self.recorded[event]
            self.places.fail(f"{self.places.instruction(i)} records event {event} again, which "
                             f"{self.places.instruction(earlier)} has recorded", earlier, i)
        self.recorded[event] = i

    def wait(self, i: int, event: int) -> None:
        """Fail when the event has not been recorded, naming the record that comes later if there is one."""
        if event in self.recorded:
            return
        columns = self.places.plan.instructions
        later = next((j for j in range(i, len(columns))
                      if columns.kind[j] == Kind.RECORD and columns.event[j] == event), None)
        if later is None:
            self.places.fail(f"{self.places.instruction(i)} waits for event {event}, which nothing records", i)
        self.places.fail(f"{self.places.instruction(i)} waits for event {event} before "
                         f"{self.places.instruction(later)} records it", i, later)


class _Clocks:
    """Happens-before between streams. A stream's clock counts its instructions; `known[s][t]` is the last
    instruction of stream t that has ended for sure when the next one of stream s runs."""

    def __init__(self, cells: _Cells, streams: int) -> None:
        self.cells, self.places = cells, cells.places
        self.known = np.zeros((streams, streams), np.int64)
        self.at_event: dict[int, Int64Array] = {}
        self.order: list[list[int]] = [[] for _ in range(streams)]
        self.wrote = np.zeros((streams, len(cells)), np.int64)
        self.touched = np.zeros((streams, len(cells)), np.int64)

    def begin(self, i: int, stream: int) -> None:
        """Instruction `i` is the next one of a stream."""
        self.order[stream].append(i)
        self.known[stream, stream] += 1

    def record(self, stream: int, event: int) -> None:
        """The event stands for all that the stream has done or waited for."""
        self.at_event[event] = self.known[stream].copy()

    def wait(self, stream: int, event: int) -> None:
        """The stream knows from now on what the event stands for."""
        np.maximum(self.known[stream], self.at_event[event], out=self.known[stream])

    def read(self, i: int, stream: int, at: At) -> None:
        """A read of cells: after all writes of other streams."""
        self._check(i, stream, self.wrote, at)
        self.touched[stream, at] = self.known[stream, stream]

    def write(self, i: int, stream: int, at: At) -> None:
        """A write of cells: after all accesses of other streams."""
        self._check(i, stream, self.touched, at)
        now = self.known[stream, stream]
        self.touched[stream, at] = now
        self.wrote[stream, at] = now

    def _check(self, i: int, stream: int, accesses: Int64Array, at: At) -> None:
        late = accesses[:, at].max(axis=1) > self.known[stream]
        if not late.any():
            return
        other = int(np.argmax(late))
        bad = accesses[other, at] > self.known[stream, other]
        cell, span = self.cells.first_run(bad, at)
        earlier = self.order[other][int(accesses[other, cell]) - 1]
        names = self.places.plan.streams
        self.places.fail(f"{self.places.instruction(i)} on stream {names[stream]!r} does not wait for "
                         f"{self.places.instruction(earlier)} on stream {names[other]!r}, and one of them writes what "
                         f"the other uses", earlier, i, at=span)
