"""An independent judge of plans for property tests: byte by byte, pair by pair, as slow as it likes.

`faults` looks for every reason why a plan could go wrong, with sets of bytes as integers and happens-before as the
closure of a graph. `play` runs a plan in one random interleaving of its streams, an instruction taking time from its
first read to its last write, and counts the reads that find wrong bytes.
"""
from __future__ import annotations

import random
from collections.abc import Iterator

from minigraph.ops.registry import get_op
from minigraph.plan.plan import Kind, Plan


class Bytes:
    """Which bytes a buffer takes: `span` in addresses over all arenas, `of` in memory, byte by byte."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.masks: dict[int, int] = {}
        self.base = [0]
        for arena in plan.arenas:
            self.base.append(self.base[-1] + arena.bytes)
        self.memory = list(range(self.base[-1]))
        for arena, base in zip(plan.arenas, self.base, strict=False):
            if arena.space == "mapped":
                transient = self.base[[other.name for other in plan.arenas].index("transient")]
                self.memory[base:base + arena.bytes] = [transient + offset + k for offset, nbytes in arena.extents
                                                        for k in range(nbytes)]

    def span(self, b: int) -> tuple[int, int]:
        columns = self.plan.buffers
        start = self.base[columns.arena[b]] + columns.offset[b]
        return start, start + columns.bytes[b]

    def of(self, b: int) -> list[int]:
        return self.memory[slice(*self.span(b))]

    def mask(self, b: int) -> int:
        if b not in self.masks:
            self.masks[b] = sum({1 << byte for byte in self.of(b)})
        return self.masks[b]


def value_of(plan: Plan, b: int) -> int:
    while plan.buffers.view[b]:
        b = plan.buffers.shares[b]
    return b


def storage_of(plan: Plan, b: int) -> int:
    while plan.buffers.shares[b] >= 0:
        b = plan.buffers.shares[b]
    return b


def used(plan: Plan, i: int) -> list[int]:
    columns = plan.instructions
    return [b for p, b in enumerate(columns.reads[i]) if p not in columns.unread[i]]


def written(plan: Plan, i: int) -> list[int]:
    columns = plan.instructions
    return [*columns.writes[i], *([columns.workspace[i]] if columns.workspace[i] >= 0 else [])]


def faults(plan: Plan) -> list[str]:
    """Everything that is wrong with places, operands, values or order."""
    return (list(arena_faults(plan)) or list(place_faults(plan))
            or [*operand_faults(plan), *value_faults(plan), *order_faults(plan)])


def arena_faults(plan: Plan) -> Iterator[str]:
    names = [arena.name for arena in plan.arenas]
    if len(names) > len(set(names)):
        yield "two arenas of a name"
    pages = {arena.page_bytes for arena in plan.arenas if arena.space == "mapped"}
    if len(pages) > 1:
        yield "pages of several sizes"
    own = [(arena.name, arena.space) for arena in plan.arenas[:2]]
    if own != [("persistent", "device"), ("transient", "device")] or "device" in [a.space for a in plan.arenas[2:]]:
        yield "other arenas than a device has"
        return
    for arena in plan.arenas:
        if arena.bytes < 0:
            yield f"{arena.name} has no size"
        if arena.space != "mapped":
            if arena.page_bytes or arena.extents:
                yield f"{arena.name} has pages"
            continue
        page = arena.page_bytes
        transient = plan.arenas[1]
        if page < 1 or page % 64 or transient.bytes % page:
            yield f"{arena.name} has no whole pages"
        elif not arena.extents or sum(extent.bytes for extent in arena.extents) != arena.bytes:
            yield f"{arena.name} is not as large as what it shows"
        else:
            for first, nbytes in arena.extents:
                pages_shown = range(first, first + nbytes, page)
                if first % page or nbytes % page or nbytes <= 0 or any(
                        not 0 <= at <= transient.bytes - page for at in pages_shown):
                    yield f"{arena.name} shows no pages at {first}"


def place_faults(plan: Plan) -> Iterator[str]:
    for b in range(len(plan.buffers)):
        buffer = plan.buffer(b)
        if buffer.offset < 0 or buffer.offset + buffer.bytes > plan.arenas[buffer.arena].bytes:
            yield f"{b} outside"
        if buffer.offset % 64:
            yield f"{b} misaligned"
        if buffer.dies <= buffer.born:
            yield f"{b} has no life"
        if buffer.shares >= 0:
            of = plan.buffer(buffer.shares)
            inside = of.offset <= buffer.offset and buffer.offset + buffer.bytes <= of.offset + of.bytes
            if buffer.arena != of.arena or not inside:
                yield f"{b} not inside {of.id}"
    where = Bytes(plan)
    for b in range(len(plan.buffers)):
        if len(set(where.of(b))) < len(where.of(b)):
            yield f"{b} overlaps itself"
    for tensor in plan.persistent:
        arena = plan.arenas[plan.buffers.arena[tensor.first]]
        if arena.name == "transient" or arena.space == "mapped":
            yield f"{tensor.name} is transient"


def operand_faults(plan: Plan) -> Iterator[str]:
    where, columns = Bytes(plan), plan.instructions
    away = [plan.arenas[arena].space in ("host", "file") for arena in plan.buffers.arena]
    for i in range(len(plan)):
        if any(away[b] != (columns.kind[i] == Kind.COPY_IN) for b in used(plan, i)) or any(
                away[b] != (columns.kind[i] == Kind.COPY_OUT) for b in written(plan, i)):
            yield f"{i} uses what lies on the other side"
        op = get_op(columns.op[i]) if columns.kind[i] == Kind.COMPUTE else None
        mutates = op.mutates(columns.params[i]) if op else ()
        pairs = {*(op.inplace(columns.params[i]) if op else ()), *mutates}
        for p, o in mutates:
            if where.span(columns.reads[i][p]) != where.span(columns.writes[i][o]):
                yield f"{i} changes another place"
        for o, w in enumerate(columns.writes[i]):
            for p, r in enumerate(columns.reads[i]):
                if p in columns.unread[i] or not where.mask(w) & where.mask(r):
                    continue
                if (p, o) not in pairs or where.span(w) != where.span(r) or storage_of(plan, w) != storage_of(plan, r):
                    yield f"{i} overwrites its input {p}"
            for other in written(plan, i):
                if other != w and where.mask(w) & where.mask(other):
                    yield f"{i} writes bytes twice"
        if columns.workspace[i] >= 0 and any(where.mask(columns.workspace[i]) & where.mask(r) for r in used(plan, i)):
            yield f"{i} has scratch over an input"


def value_faults(plan: Plan) -> Iterator[str]:
    """List order, byte by byte: what each byte holds, and until when that is needed."""
    where, columns, n = Bytes(plan), plan.buffers, len(plan)
    until: dict[int, int] = {}
    for b in range(len(columns)):
        value = value_of(plan, b)
        until[value] = max(until.get(value, 0), columns.dies[b])
    memory: dict[int, int] = {}
    for b in (*plan.inputs.values(), *(t.first for t in plan.persistent)):
        if columns.born[b] != -1:
            yield f"{b} is given, but not born before the start"
    for b in {value_of(plan, b) for b in (*plan.inputs.values(), *(t.first for t in plan.persistent))}:
        for byte in where.of(b):
            if byte in memory:
                yield f"{b} and {memory[byte]} at the start"
            memory[byte] = b
    for i in range(n):
        reads = used(plan, i)
        for b in reads:
            if not columns.born[b] <= i < columns.dies[b]:
                yield f"{i} reads {b} outside its life"
            if any(memory.get(byte) != value_of(plan, b) for byte in where.of(b)):
                yield f"{i} reads {b} which is not there"
        for b in written(plan, i):
            if columns.born[b] != i:
                yield f"{b} not born at {i}"
            for byte in where.of(b):
                old = memory.get(byte, b)
                ends = old in [value_of(plan, r) for r in reads] and until[old] == i + 1
                if old != b and until[old] > i and not ends:
                    yield f"{i} overwrites {old}"
                memory[byte] = b
    for b in (*(out.buffer for out in plan.outputs), *(t.last for t in plan.persistent)):
        if columns.dies[b] < n:
            yield f"{b} dies before the end"
        if any(memory.get(byte) != value_of(plan, b) for byte in where.of(b)):
            yield f"{b} is not there at the end"
    for tensor in plan.persistent:
        if where.span(tensor.first) != where.span(tensor.last):
            yield f"{tensor.name} not at home"
    for b in range(len(columns)):
        if columns.born[b] < columns.born[value_of(plan, b)]:
            yield f"view {b} born before its value"


def order_faults(plan: Plan) -> Iterator[str]:
    """Pairs of accesses without a path between them."""
    where, columns = Bytes(plan), plan.instructions
    before = [0] * len(plan)
    last: dict[int, int] = {}
    recorded: dict[int, int] = {}
    for i in range(len(plan)):
        for parent in (last.get(columns.stream[i]), recorded.get(columns.event[i])
                       if columns.kind[i] == Kind.WAIT else None):
            if parent is not None:
                before[i] |= before[parent] | 1 << parent
        if columns.kind[i] == Kind.WAIT and columns.event[i] not in recorded:
            yield f"{i} waits for what is not recorded"
        if columns.kind[i] == Kind.RECORD:
            if columns.event[i] in recorded:
                yield f"{i} records again"
            recorded[columns.event[i]] = i
        last[columns.stream[i]] = i
    reads, writes = ([sum_masks(where, get(plan, i)) for i in range(len(plan))] for get in (used, written))
    for i in range(len(plan)):
        for j in range(i):
            clash = writes[i] & (reads[j] | writes[j]) | reads[i] & writes[j]
            if clash and not before[i] >> j & 1:
                yield f"{j} and {i} are not ordered"


def sum_masks(where: Bytes, buffers: list[int]) -> int:
    total = 0
    for b in buffers:
        total |= where.mask(b)
    return total


def play(plan: Plan, seed: int) -> int:
    """Wrong reads in one random interleaving; instructions of different streams overlap in time."""
    chance = random.Random(seed)
    where, columns = Bytes(plan), plan.instructions
    memory = [-1] * where.base[-1]
    for b in (*plan.inputs.values(), *(t.first for t in plan.persistent)):
        for byte in where.of(b):
            memory[byte] = value_of(plan, b)
    queues: dict[int, list[tuple[int, str]]] = {}
    for i in range(len(plan)):
        queues.setdefault(columns.stream[i], []).extend([(i, "begin"), (i, "end")])
    recorded: set[int] = set()
    wrong = 0
    while any(queues.values()):
        ready = [q for q in queues.values() if q and not (columns.kind[q[0][0]] == Kind.WAIT
                                                          and columns.event[q[0][0]] not in recorded)]
        assert ready, "a deadlock"
        i, phase = chance.choice(ready).pop(0)
        if columns.kind[i] == Kind.RECORD:
            recorded.add(columns.event[i])
        wrong += sum(memory[byte] != value_of(plan, b) for b in used(plan, i)
                     for byte in where.of(b)
                     if phase == "begin" or not sum_masks(where, written(plan, i)) >> byte & 1)
        held = [value_of(plan, r) for r in used(plan, i)]
        for b in written(plan, i):
            for byte in where.of(b):
                memory[byte] = b if phase == "end" else memory[byte] if memory[byte] in held else -2
    for b in (*(out.buffer for out in plan.outputs), *(t.last for t in plan.persistent)):
        wrong += sum(memory[byte] != value_of(plan, b) for byte in where.of(b))
    return wrong
