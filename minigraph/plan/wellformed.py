"""What can be told of a plan without following time: places, forms, counts, and who may overwrite whom.

The first half of the verifier (see `verify.py`). It knows nothing of the planner: only the plan's data types and
what the operators declare.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..base import ALIGNMENT, MXNetError
from ..ops.op import Op
from ..ops.registry import get_op
from .places import Int64Array, Places, Rules, VerificationError
from .plan import TRANSIENT_ARENA, Arena, Kind

COPIES = (Kind.COPY_OUT, Kind.COPY_IN)
MOST_BYTES = 1 << 56
"""The most bytes of all arenas: more than anything holds, and addresses over them stay numbers of 64 bits."""
_OWN = ("persistent", "transient")
"""The arenas of a device's own memory, by their numbers."""
_ON_DEVICE = ("device", "mapped")
_SPACES = ("device", "host", "file", "mapped")


def check_form(places: Places) -> int:
    """Check everything that needs no following of time; the number of checks made."""
    _check_arenas(places)
    _check_buffers(places)
    _check_pieces(places)
    _check_shares(places)
    _check_ranges(places)
    _check_named(places)
    return 7 * len(places) + len(places.storage) + _Instructions(places).check()


def _check_arenas(places: Places) -> None:
    arenas = places.plan.arenas
    names: set[str] = set()
    total = 0
    for arena in arenas:
        total += arena.bytes
        if arena.space not in _SPACES or arena.bytes < 0 or total > MOST_BYTES:
            places.fail(f"arena {arena.name!r} lies in {arena.space!r} with {arena.bytes} bytes; it must lie in one "
                        f"of {', '.join(_SPACES)}, and all arenas together have 0 to {MOST_BYTES} bytes")
        if arena.name in names:
            places.fail(f"there are two arenas {arena.name!r}; arenas must have different names")
        names.add(arena.name)
        if arena.space != "mapped" and (arena.page_bytes or arena.extents):
            places.fail(f"arena {arena.name!r} lies in {arena.space!r}, and has pages of {arena.page_bytes} bytes and "
                        f"{len(arena.extents)} extents; only a mapped arena has any")
    own = [arena.name for arena in arenas if arena.space == "device"]
    if arenas and (own != list(_OWN) or any(arena.space != "device" for arena in arenas[:2])):
        places.fail(f"the arenas in 'device' are {own}; they must be {list(_OWN)}, and stand before all others")
    mapped = [arena for arena in arenas if arena.space == "mapped"]
    for arena in mapped:
        _check_mapped(places, arena, mapped[0].page_bytes)


def _check_mapped(places: Places, arena: Arena, page_bytes: int) -> None:
    """A mapped arena shows whole pages of the transient arena, as many bytes as it has, and of the plan's one size."""
    what, page = f"mapped arena {arena.name!r}", arena.page_bytes
    room = places.plan.arenas[TRANSIENT_ARENA].bytes
    if page <= 0 or page % ALIGNMENT:
        places.fail(f"{what} has pages of {page} bytes; they must have a multiple of {ALIGNMENT}, and more than none")
    if page != page_bytes:
        places.fail(f"{what} has pages of {page} bytes, and another mapped arena of {page_bytes}; they must be equal")
    if room % page:
        places.fail(f"{what} has pages of {page} bytes, and the transient arena {room} bytes; they must be whole pages")
    for offset, nbytes in arena.extents:
        if offset < 0 or nbytes <= 0 or offset % page or nbytes % page or offset + nbytes > room:
            places.fail(f"{what} shows bytes [{offset}, {offset + nbytes}) of the transient arena; an extent must be "
                        f"one or more whole pages of {page} bytes within the {room} bytes of that arena")
    total = sum(extent.bytes for extent in arena.extents)
    if not arena.extents or total != arena.bytes:
        places.fail(f"{what} has {arena.bytes} bytes and {len(arena.extents)} extents of {total} bytes together; both "
                    f"must be the same, and not 0")


def _check_buffers(places: Places) -> None:
    """Every buffer in its arena, aligned, large enough, and with a lifetime."""
    count = len(places.plan.arenas)
    _refuse(places, (places.arena < 0) | (places.arena >= count), f"names an arena that is none of the {count}",
            "arena")
    room = places.arena_bytes[places.arena]
    outside = (places.offset < 0) | (places.bytes < 0) | (places.offset > room - places.bytes)
    _refuse(places, outside, "does not lie within its arena", "offset", "bytes", arena_bytes=room)
    _refuse(places, places.offset % ALIGNMENT != 0, f"does not lie at a multiple of {ALIGNMENT}", "offset")
    needed = _needed_bytes(places)
    _refuse(places, places.bytes < needed, "has fewer bytes than its elements need", "bytes", needed_bytes=needed)
    lifeless = (places.born < -1) | (places.born >= len(places.plan)) | (places.dies <= places.born)
    _refuse(places, lifeless, "must be born at an instruction of the plan (or -1) and die later", "born", "dies")


def _check_pieces(places: Places) -> None:
    """No buffer has one byte of memory at two of its addresses."""
    if not places.scattered:
        return
    first, start, end = places.pieces
    buffer = np.repeat(np.arange(len(places)), np.diff(first))
    order = np.lexsort((start, buffer))
    before, after = order[:-1], order[1:]
    twice = (buffer[before] == buffer[after]) & (end[before] > start[after])
    if twice.any():
        k = int(after[np.argmax(twice)])
        b, low, high = int(buffer[k]), int(start[k]), int(min(end[k], end[before[np.argmax(twice)]]))
        places.fail(f"{places.buffer(b)}, written by {places.instruction(int(places.born[b]))}, has the same memory "
                    f"at two addresses, as its arena shows it twice there", int(places.born[b]), at=(low, high))


def _check_shares(places: Places) -> None:
    """Views and successors lie inside the bytes that they share; chains end."""
    shares = places.shares
    _refuse(places, (shares < -1) | (shares >= len(places)), "shares bytes of a buffer that does not exist", "shares")
    _refuse(places, places.view & (shares < 0), "is a view of nothing; `shares` must name a buffer", "shares")
    sharing = np.flatnonzero(shares >= 0)
    other = shares[sharing]
    inside = ((places.arena[sharing] == places.arena[other]) & (places.start[sharing] >= places.start[other])
              & (places.end[sharing] <= places.end[other]))
    if not inside.all():
        index = int(sharing[np.argmin(inside)])
        owner = int(shares[index])
        places.fail(f"{places.buffer(index)} at {places.where(places.start[index], places.end[index])} does not lie "
                    f"inside {places.buffer(owner)} at {places.where(places.start[owner], places.end[owner])}, whose "
                    f"bytes it shares; they are written by {places.instruction(int(places.born[index]))} and "
                    f"{places.instruction(int(places.born[owner]))}", int(places.born[owner]),
                    int(places.born[index]), at=(int(places.start[index]), int(places.end[index])))


def _check_ranges(places: Places) -> None:
    """The ranges follow one another and cover all instructions."""
    at = 0
    for name, (first, last) in sorted(places.plan.ranges.items(), key=lambda item: item[1]):
        if first != at or last < first:
            places.fail(f"range {name!r} is [{first}, {last}), but the ranges before it end at {at}; ranges must "
                        f"cover the {len(places.plan)} instructions one after another", at, first)
        at = last
    if at != len(places.plan):
        places.fail(f"the ranges end at {at}, but the plan has {len(places.plan)} instructions", at)


def _check_named(places: Places) -> None:
    """What the outside reads and writes are buffers of the plan; what outlives it does not lie where other
    programs write."""
    plan = places.plan
    held = [(t.name, b) for t in plan.persistent for b in (t.first, t.last)]
    for name, b in (*plan.inputs.items(), *plan.outputs, *held):
        if not 0 <= b < len(places):
            places.fail(f"{name!r} is buffer {b}; the plan has buffers 0 to {len(places) - 1}")
    for name in plan.late_inputs:
        if name not in plan.inputs:
            places.fail(f"{name!r} is said to be given late, but it is none of the plan's inputs: "
                        f"{', '.join(plan.inputs)}")
    for tensor in plan.persistent:
        arena = plan.arenas[plan.buffers.arena[tensor.first]]
        if arena.name == "transient" or arena.space == "mapped":
            places.fail(f"persistent tensor {tensor.name!r} is {places.buffer(tensor.first)}, which lies in arena "
                        f"{arena.name!r}; that is transient memory, which other programs write too")


def _needed_bytes(places: Places) -> Int64Array:
    kinds, kind_of = places.types
    return np.array([kind.nbytes for kind in kinds], np.int64)[kind_of]


def _refuse(places: Places, bad: NDArray[np.bool_], rule: str, *columns: str, **more: Int64Array) -> None:
    """Fail for the first buffer at which `bad` is true, with its values and the instruction that writes it."""
    if not bad.any():
        return
    index = int(np.argmax(bad))
    values = {**{name: getattr(places, name) for name in columns}, **more}
    told = ", ".join(f"{name} {column[index]}" for name, column in values.items())
    born = int(places.born[index])
    first, size = int(places.offset[index]), int(places.bytes[index])
    arena = places.plan.buffers.arena[index]
    name = places.plan.arenas[arena].name if 0 <= arena < len(places.plan.arenas) else ""
    raise VerificationError(f"{places.buffer(index)}, written by {places.instruction(born)}, {rule}: {told}; "
                            f"it takes bytes [{first}, {first + size}) of arena {name!r}", (born,), name,
                            (first, first + size))


class _Instructions:
    """The checks of single instructions."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.start, self.end = places.start.tolist(), places.end.tolist()
        first, low, high = places.pieces
        self.low, self.high = low[first[:-1]].tolist(), high[first[:-1]].tolist()
        self.further = {b: list(zip(low[first[b] + 1:first[b + 1]].tolist(), high[first[b] + 1:first[b + 1]].tolist(),
                                    strict=True)) for b in places.scattered}
        """The memory of buffers in several pieces, behind the first piece."""
        self.rules = places.rules
        self.checks = 0

    def check(self) -> int:
        """Check all instructions one by one; the number of checks made."""
        columns = self.places.plan.instructions
        rows = zip(columns.kind, columns.stream, columns.reads, columns.writes, columns.unread, columns.workspace,
                   strict=True)
        for i, (kind, stream, reads, writes, unread, workspace) in enumerate(rows):
            self._check_ids(i, stream, reads, writes, workspace)
            if kind == Kind.COMPUTE:
                self._check_compute(i, reads, writes, unread, workspace)
            elif kind in COPIES:
                self._check_copy(i, kind, reads, writes)
            elif kind == Kind.FILL:
                self._check_fill(i, reads, writes)
            elif kind not in (Kind.RECORD, Kind.WAIT):
                self._fail(i, f"is of the unknown kind {kind}")
            elif reads or writes or columns.event[i] < 0:
                self._fail(i, f"must name an event and no buffers; it has event {columns.event[i]}, reads {reads} "
                              f"and writes {writes}")
            if kind != Kind.COMPUTE and (workspace >= 0 or unread):
                self._fail(i, "has a workspace or unread inputs, which only a computation has")
        return self.checks

    def _fail(self, index: int, what: str) -> NoReturn:
        self.places.fail(f"{self.places.instruction(index)} {what}", index)

    def _check_ids(self, i: int, stream: int, reads: tuple[int, ...], writes: tuple[int, ...], workspace: int) -> None:
        count = len(self.places)
        for b in (*reads, *writes):
            if not 0 <= b < count:
                self._fail(i, f"names buffer {b}; the plan has buffers 0 to {count - 1}")
        if not -1 <= workspace < count:
            self._fail(i, f"names workspace {workspace}; the plan has buffers 0 to {count - 1}")
        if not 0 <= stream < len(self.places.plan.streams):
            self._fail(i, f"runs on stream {stream}; the plan has {len(self.places.plan.streams)} streams")
        for b in (*writes, workspace):
            if b >= 0 and self.places.plan.buffers.view[b]:
                self._fail(i, f"writes {self.places.buffer(b)}, which is a view; only the buffer of which it is a "
                              "view may be written")

    def _check_fill(self, i: int, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        if reads or len(writes) != 1:
            self._fail(i, f"must write one buffer and read none; it reads {reads} and writes {writes}")
        self._check_spaces(i, writes, *_ON_DEVICE)

    def _check_copy(self, i: int, kind: int, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        if len(reads) != 1 or len(writes) != 1:
            self._fail(i, f"must read one buffer and write one; it reads {reads} and writes {writes}")
        size = self.places.plan.buffers.bytes
        if size[reads[0]] != size[writes[0]]:
            self._fail(i, f"copies {size[reads[0]]} bytes of {self.places.buffer(reads[0])} into "
                          f"{size[writes[0]]} bytes of {self.places.buffer(writes[0])}; they must be equal")
        outside = ("host", "file")
        self._check_spaces(i, reads, *(_ON_DEVICE if kind == Kind.COPY_OUT else outside))
        self._check_spaces(i, writes, *(outside if kind == Kind.COPY_OUT else _ON_DEVICE))

    def _check_spaces(self, i: int, buffers: Sequence[int], *allowed: str) -> None:
        plan = self.places.plan
        for b in buffers:
            space = plan.arenas[plan.buffers.arena[b]].space
            if space not in allowed:
                self._fail(i, f"uses {self.places.buffer(b)}, which lies in {space!r}; it must lie in "
                              f"{' or '.join(map(repr, allowed))}")

    def _check_compute(self, i: int, reads: tuple[int, ...], writes: tuple[int, ...], unread: tuple[int, ...],
                       workspace: int) -> None:
        rules = self._rules(i)
        if (len(reads), len(writes)) != (rules.inputs, rules.outputs):
            self._fail(i, f"has {len(reads)} reads and {len(writes)} writes; its op has {rules.inputs} inputs and "
                          f"{rules.outputs} outputs")
        if not rules.unread.issuperset(unread):
            self._fail(i, f"leaves inputs {tuple(unread)} unread, but its op reads all but {sorted(rules.unread)}")
        used = [b for p, b in enumerate(reads) if p not in unread]
        self._check_spaces(i, [*used, *writes, *([workspace] if workspace >= 0 else [])], *_ON_DEVICE)
        for p, o in rules.mutates:
            self._check_mutation(i, p, o, reads[p], writes[o])
        self._check_overlaps(i, rules, reads, writes, unread, workspace)

    def _rules(self, i: int) -> Rules:
        columns = self.places.plan.instructions
        rules = self.rules.get(columns.op[i], columns.params[i])
        if rules is None:
            self._check_params(i)
            try:
                rules = self.rules.ask(columns.op[i], columns.params[i])
            except Exception as error:
                self._fail(i, f"cannot be checked: {error!r}")
        return rules

    def _check_params(self, i: int) -> None:
        """The op is known, and the parameters are of its kind."""
        columns = self.places.plan.instructions
        try:
            op = get_op(columns.op[i])
        except MXNetError as error:
            self._fail(i, f"cannot be checked: {error}")
        if type(op).compute is Op.compute:
            self._fail(i, "cannot be computed: its op only stands for others, which it expands to")
        if not isinstance(columns.params[i], op.Params):
            self._fail(i, f"has the parameters {columns.params[i]!r}; its op takes {op.Params.__name__}")

    def _check_mutation(self, i: int, p: int, o: int, r: int, w: int) -> None:
        self.checks += 1
        if r == w or (self.start[r], self.end[r]) != (self.start[w], self.end[w]):
            places = self.places
            places.fail(f"{places.instruction(i)} mutates input {p}, so output {o} must be a new buffer on the same "
                        f"bytes; input {p} is {places.buffer(r)} at {places.where(self.start[r], self.end[r])} of "
                        f"{places.instruction(int(places.born[r]))} and output {o} is {places.buffer(w)}",
                        int(places.born[r]), i, at=(self.start[w], self.end[w]))

    def _check_overlaps(self, i: int, rules: Rules, reads: tuple[int, ...], writes: tuple[int, ...],
                        unread: tuple[int, ...], workspace: int) -> None:
        """What an instruction writes overlaps nothing else that it uses, but for the pairs that its op allows."""
        used = [(self.low[b], self.high[b], "input", p, b) for p, b in enumerate(reads) if p not in unread]
        used += [(self.low[b], self.high[b], "output", o, b) for o, b in enumerate(writes)]
        if workspace >= 0:
            used.append((self.low[workspace], self.high[workspace], "workspace", -1, workspace))
        if self.further:
            used += [(*piece, *item[2:]) for item in used for piece in self.further.get(item[4], ())]
        used = sorted(item for item in used if item[0] < item[1])
        self.checks += len(used)
        active: list[tuple[int, int, str, int, int]] = []
        for item in used:
            active = [other for other in active if other[1] > item[0]]
            for other in active:
                if not (item[2] == other[2] == "input" or self._allowed(rules, item, other)):
                    self._fail_overlap(i, other, item)
            active.append(item)

    def _allowed(self, rules: Rules, first: tuple[int, int, str, int, int],
                 second: tuple[int, int, str, int, int]) -> bool:
        """Whether an input and an output may be the same bytes: declared, at the same addresses, and stated by
        `shares`."""
        if first[2] == "output":
            first, second = second, first
        pair, r, w = (first[3], second[3]), first[4], second[4]
        return (first[2] == "input" and second[2] == "output"
                and (self.start[r], self.end[r]) == (self.start[w], self.end[w])
                and (pair in rules.inplace or pair in rules.mutates)
                and self.places.storage[r] == self.places.storage[w])

    def _fail_overlap(self, i: int, first: tuple[int, int, str, int, int],
                      second: tuple[int, int, str, int, int]) -> NoReturn:
        places = self.places
        other = first if first[2] == "input" else second
        told = " and ".join(f"{role} {position if position >= 0 else ''}".strip() + f" ({places.buffer(b)})"
                            for _, _, role, position, b in (first, second))
        born = int(places.born[other[4]])
        places.fail(f"{places.instruction(i)} has {told} on overlapping bytes, which its op does not allow (or "
                    f"which are not at the same addresses, or not stated by `shares`); {places.buffer(other[4])} is "
                    f"written by {places.instruction(born)}", born, i,
                    at=(max(first[0], second[0]), min(first[1], second[1])))
