"""Poison: NaN in all bytes that nobody may read, so that a stale, missing or early read shows in the results."""
from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...plan.plan import Kind, Plan
from ..storages import storage_roots
from .memory import CpuMemory
from .spaces import OUTSIDE, fill_place

BYTE = 0xFF


def poison(array: np.ndarray) -> None:
    """Fill with 0xFF bytes: NaN in every float type, -1 or the largest number in integers."""
    if array.size:
        array.reshape(-1).view(np.uint8).fill(BYTE)


def poison_buffer(plan: Plan, memory: CpuMemory, b: int) -> None:
    """Fill a buffer's bytes, wherever they lie."""
    columns = plan.buffers
    arena = plan.arenas[columns.arena[b]].name
    fill_place(memory.place(arena, columns.offset[b], columns.bytes[b]), BYTE)


def poison_unwritten(plan: Plan, memory: CpuMemory) -> None:
    """Before a program: fill the transient arena, except for the inputs, which were written before, and the storages
    outside the device, except for persistent ones.

    Transient bytes below the plan's own belong to the program before it, whose outputs may still be read: all of them,
    where the plan has none.
    """
    columns = plan.buffers
    arenas = [plan.arenas[arena] for arena in columns.arena]
    places = [(arenas[b].name, columns.offset[b], columns.shape[b], columns.dtype[b]) for b in plan.inputs.values()]
    inputs = [memory.view(*place).copy() for place in places]
    own = min((offset for b in range(len(columns)) for arena, offset, _ in plan.pieces(b)
               if plan.arenas[arena].name == "transient"), default=len(memory.arenas["transient"]))
    poison(memory.arenas["transient"][own:])
    for (name, offset, *_), value in zip(places, inputs, strict=True):
        memory.write(name, offset, value)
    for b, arena in enumerate(arenas):
        if arena.space in OUTSIDE and columns.born[b] >= 0 and columns.shares[b] < 0:
            poison_buffer(plan, memory, b)


def written_anew(plan: Plan, i: int) -> list[int]:
    """What instruction `i` writes without taking over older bytes, and its workspace."""
    code = plan.instructions
    return [*(b for b in code.writes[i] if plan.buffers.shares[b] < 0),
            *([code.workspace[i]] if code.workspace[i] >= 0 else [])]


def deaths(plan: Plan) -> dict[int, list[int]]:
    """Storages, each as its first buffer, by the instruction after which, on that instruction's stream, nobody may
    read them: it has waited for every use of the storage, and every later use of the bytes waits for it.

    A storage for which there is no such instruction is left out; what is written over it poisons it first.
    """
    finder, roots = _Finder(plan), storage_roots(plan)
    columns = plan.buffers
    kept = {roots[out.buffer] for out in plan.outputs}
    kept.update(roots[b] for tensor in plan.persistent for b in (tensor.first, tensor.last))
    until = [0] * len(columns)
    members: dict[int, list[int]] = {}
    for b, root in enumerate(roots):
        until[root] = max(until[root], columns.dies[b])
        members.setdefault(root, []).append(b)
    result: dict[int, list[int]] = {}
    for root, names in members.items():
        persistent = root in kept or plan.arenas[columns.arena[root]].name == "persistent"
        at = None if persistent else finder.death(root, names, until[root])
        if at is not None:
            result.setdefault(at, []).append(root)
    return result


class _Finder:
    """What is ordered before what: for each instruction the last one of each stream that has ended when it ends."""

    def __init__(self, plan: Plan) -> None:
        code, columns = plan.instructions, plan.buffers
        self.stream = code.stream
        self.known = np.zeros((len(plan), len(plan.streams)), np.int64)
        self.position = [0] * len(plan)
        self.uses: list[list[int]] = [[] for _ in range(len(columns))]
        self.pieces = [plan.pieces(b) for b in range(len(columns))]
        self.owner = np.repeat(np.arange(len(columns)), [len(pieces) for pieces in self.pieces])
        self.arena, self.start, self.bytes = np.array([piece for pieces in self.pieces for piece in pieces],
                                                      np.int64).reshape(-1, 3).T
        self._play(plan)

    def _play(self, plan: Plan) -> None:
        code = plan.instructions
        now = np.zeros((len(plan.streams), len(plan.streams)), np.int64)
        recorded: dict[int, np.ndarray] = {}
        for i, (kind, stream, event) in enumerate(zip(code.kind, code.stream, code.event, strict=True)):
            now[stream, stream] += 1
            self.position[i] = int(now[stream, stream])
            if kind == Kind.WAIT:
                np.maximum(now[stream], recorded[event], out=now[stream])
            self.known[i] = now[stream]
            if kind == Kind.RECORD:
                recorded[event] = self.known[i]
            for b in _touched(plan, i):
                self.uses[b].append(i)

    def death(self, root: int, names: Iterable[int], until: int) -> int | None:
        """The instruction after which a storage, used as `names` until instruction `until`, is dead for all streams."""
        used = sorted({i for b in names for i in self.uses[b] if i < until})
        if not used:
            return None
        needed = np.zeros(self.known.shape[1], np.int64)
        for i in used:
            needed[self.stream[i]] = max(needed[self.stream[i]], self.position[i])
        last = used[-1]
        joined = (self.known[last:] >= needed).all(axis=1)
        at = last + int(np.argmax(joined))
        if not joined.any() or (at != last and not self._all_wait(root, names, last, at)):
            return None  # the last use itself needs no look ahead: later uses of the bytes wait for it
        return at

    def _all_wait(self, root: int, names: Iterable[int], last: int, at: int) -> bool:
        """Whether all uses of a storage's bytes after `last` wait for instruction `at`."""
        others = self._overlapping(root).difference(names)
        return all(self.known[i, self.stream[at]] >= self.position[at]
                   for b in others for i in self.uses[b] if i > last)


    def _overlapping(self, b: int) -> set[int]:
        """The buffers that lie in bytes of memory in which `b` lies."""
        found: set[int] = set()
        for arena, first, nbytes in self.pieces[b]:
            shared = (self.arena == arena) & (self.start < first + nbytes) & (self.start + self.bytes > first)
            found.update(self.owner[shared].tolist())
        return found


def _touched(plan: Plan, i: int) -> list[int]:
    code = plan.instructions
    read = [b for k, b in enumerate(code.reads[i]) if k not in code.unread[i]]
    return [*read, *code.writes[i], *([code.workspace[i]] if code.workspace[i] >= 0 else [])]
