"""What is live when: the bytes of a plan's storages over its instructions, for report, timeline and trace.

Instants are -1, the start of the program, and the numbers of the instructions. A storage is a set of buffers that share
bytes, as views or in place; it counts once, with its aligned size.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base import align
from .plan import AGAIN, PERSISTENT_CLASSES, Kind, Plan


@dataclass(frozen=True, eq=False)
class Storages:
    """The device storages of a plan as columns, in the order of their first buffers.

    `bytes` are aligned; a storage is live in [born, dies), where -1 is the start of the program and the number of
    instructions its end. `classes` are those of the first buffers, where a value that is made again or copied back has
    the class of the original; `members` are the buffers of each storage but its views, by birth; `kept` says that the
    bytes are needed after the program: outputs and persistent tensors.
    """

    bytes: NDArray[np.int64]
    born: NDArray[np.int64]
    dies: NDArray[np.int64]
    classes: list[str]
    members: list[list[int]]
    kept: list[bool]

    def live_at(self, instant: int) -> list[int]:
        """Numbers of the storages that are live at an instant."""
        return np.flatnonzero((self.born <= instant) & (self.dies > instant)).tolist()


def device_storages(plan: Plan) -> Storages:
    """Every storage in device memory, those in mapped arenas too."""
    root, born, dies = storage_lifetimes(plan)
    device = [arena.on_device for arena in plan.arenas]
    members: dict[int, list[int]] = {b: [] for b, r in enumerate(root.tolist())
                                     if b == r and device[plan.buffers.arena[b]]}
    for b, r in enumerate(root.tolist()):
        if r in members and (b == r or not plan.buffers.view[b]):
            members[r].append(b)
    for held in members.values():
        held.sort(key=plan.buffers.born.__getitem__)
    kept = {int(root[b]) for b in (*(out.buffer for out in plan.outputs), *(held.first for held in plan.persistent))}
    first = np.array(list(members), np.int64)
    sizes = np.array([align(plan.buffers.bytes[b]) for b in members], np.int64)
    return Storages(sizes, born[first], np.minimum(dies[first], len(plan)),
                    _classes(plan, list(members)), list(members.values()), [b in kept for b in members])


def _classes(plan: Plan, buffers: list[int]) -> list[str]:
    """The classes of buffers; to the passes, whatever runs in backward makes values of the class `backward`."""
    columns, names, classes = plan.instructions, plan.buffers.name, plan.buffers.buffer_class
    origin: dict[int, int] = {}
    for i in range(len(plan)):
        if columns.kind[i] in (Kind.COPY_OUT, Kind.COPY_IN):
            source = columns.reads[i][0]
            origin[columns.writes[i][0]] = origin.get(source, source)
    found = [classes[origin.get(b, b)] for b in buffers]
    return ["activation" if kind == "backward" and AGAIN in names[b] else kind
            for b, kind in zip(buffers, found, strict=True)]


def live_bytes(storages: Storages, length: int) -> NDArray[np.int64]:
    """Live bytes of a plan of `length` instructions: `length + 1` values, that of instant t at index t + 1."""
    change = np.zeros(length + 2, np.int64)
    np.add.at(change, storages.born + 1, storages.bytes)
    np.subtract.at(change, storages.dies + 1, storages.bytes)
    return np.cumsum(change)[:length + 1]


def peak_instant(storages: Storages, length: int) -> int:
    """The first instant at which most bytes are live."""
    return int(np.argmax(live_bytes(storages, length))) - 1


def member_at(plan: Plan, storages: Storages, storage: int, instant: int) -> int:
    """The buffer whose value a live storage holds at an instant: the one written last. A persistent tensor keeps the
    name that it has before any update."""
    held = storages.members[storage]
    if storages.classes[storage] in PERSISTENT_CLASSES:
        return held[0]
    return next((b for b in reversed(held) if plan.buffers.born[b] <= instant), held[0])


def storage_lifetimes(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each buffer the first buffer of its storage; and for such a first buffer when the storage is born and dies.

    The two ends of a persistent tensor belong together and live throughout: born at -1, dying at the end. Values of
    other buffers mean nothing.
    """
    root = _roots(plan)
    born, dies = np.array(plan.buffers.born, np.int64), np.array(plan.buffers.dies, np.int64)
    first, last = born.copy(), dies.copy()
    np.minimum.at(first, root, born)
    np.maximum.at(last, root, dies)
    held = root[[tensor.first for tensor in plan.persistent]]
    first[held], last[held] = -1, len(plan)
    return root, first, last


def _roots(plan: Plan) -> NDArray[np.int64]:
    """The first buffer of each buffer's storage, by union of everything that shares."""
    parent = list(range(len(plan.buffers)))

    def find(b: int) -> int:
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        return b

    for b, shares in enumerate(plan.buffers.shares):
        if shares >= 0:
            parent[find(b)] = find(shares)
    for tensor in plan.persistent:
        parent[find(tensor.last)] = find(tensor.first)
    return np.array([find(b) for b in range(len(parent))], np.int64)
