"""What all parts of the verifier ask of a plan: where its buffers lie and of what types they are, what its operators
declare; and the error, which tells of them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..base import BLOCKED, PLAIN, TRANSPOSED, MXNetError, Shape, TensorType
from ..ops.registry import get_op
from .plan import TRANSIENT_ARENA, Kind, Plan

Int64Array = NDArray[np.int64]


class VerificationError(MXNetError):
    """A plan that would compute something else than it says.

    `instructions` are the two (or the one) at fault, -1 standing for the start of the program and the number of
    instructions for its end; `arena` and `byte_range` (first, past the last) say where, when bytes are concerned.
    """

    def __init__(self, message: str, instructions: Sequence[int] = (), arena: str = "",
                 byte_range: tuple[int, int] = (0, 0)) -> None:
        super().__init__(message)
        self.instructions = tuple(int(i) for i in instructions)
        self.arena = arena
        self.byte_range = byte_range


@dataclass(frozen=True)
class Rules:
    """What an op declares for one set of parameters, as far as a plan must keep to it."""

    inputs: int
    outputs: int
    unread: frozenset[int]
    inplace: frozenset[tuple[int, int]]
    mutates: frozenset[tuple[int, int]]


class KnownRules:
    """The rules of ops, asked once for equal parameters. Those are known again as objects, which a plan keeps: it takes
    a fraction of the time of comparing them."""

    def __init__(self) -> None:
        self._of_object: dict[tuple[str, int], Rules] = {}
        self._of_value: dict[tuple[str, Any], Rules] = {}

    def get(self, op: str, params: Any) -> Rules | None:
        """The rules of an op that was asked with these very parameters."""
        return self._of_object.get((op, id(params)))

    def ask(self, op_name: str, params: Any) -> Rules:
        """The rules of an op; whatever the op raises."""
        rules = self._of_value.get((op_name, params))
        if rules is None:
            op = get_op(op_name)
            rules = self._of_value[op_name, params] = Rules(
                len(op.inputs(params)), len(op.outputs(params)), frozenset(op.unread(params)),
                frozenset(op.inplace(params)), frozenset(op.mutates(params)))
        self._of_object[op_name, id(params)] = rules
        return rules


class Pieces(NamedTuple):
    """Ranges of memory in which buffers lie: `start` and `end` are addresses outside mapped arenas.

    Those of buffer b are the ones from `first[b]` up to `first[b + 1]`, in the order of its own addresses. A buffer has
    at least one, which is empty where it has no bytes.
    """

    first: Int64Array
    start: Int64Array
    end: Int64Array


class Places:
    """Where every buffer of a plan lies, as arrays over all buffers, and the words for error messages.

    `start` and `end` are addresses in one space that holds all arenas one after another, and `pieces` says in which
    memory they are; `value` is the buffer whose value a view is another name of (itself for any other buffer);
    `storage` the first buffer of a chain that shares its bytes; `until` is, for a value, the last `dies` of all its
    names.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rules = KnownRules()
        self._check_columns()
        columns = plan.buffers
        self.arena, self.offset, self.bytes, self.born, self.dies, self.shares = (
            np.array(column, np.int64).reshape(-1)
            for column in (columns.arena, columns.offset, columns.bytes, columns.born, columns.dies, columns.shares))
        self.view = np.array(columns.view, bool).reshape(-1)
        self.arena_bytes = np.array([arena.bytes for arena in plan.arenas], np.int64)

    def __len__(self) -> int:
        return len(self.arena)

    def _check_columns(self) -> None:
        for what, columns in (("buffer", self.plan.buffers), ("instruction", self.plan.instructions)):
            for name, column in vars(columns).items():
                if len(column) != len(columns):
                    raise VerificationError(f"the {what} column {name!r} has {len(column)} rows, the others "
                                            f"{len(columns)}; every column needs one row for each {what}")

    @cached_property
    def types(self) -> tuple[list[TensorType], list[int]]:
        """The different types of buffers, each a sound one, and the number of each buffer's own."""
        columns = self.plan.buffers
        number: dict[tuple[Any, ...], int] = {}
        rows = zip(columns.shape, columns.dtype, columns.layout, strict=True)
        kind_of = [number.setdefault(row, len(number)) for row in rows]
        for row, k in number.items():
            if not _is_sound(*row):
                b = kind_of.index(k)
                self.fail(f"{self.buffer(b)} has the shape {row[0]}, the dtype {row[1]} and the layout {row[2]!r}; a "
                          f"shape holds whole numbers, 0 or more, and the layouts are {PLAIN!r}, {BLOCKED!r} of two or "
                          f"more axes, and {TRANSPOSED!r} of two")
        return list(starmap(TensorType, number)), kind_of

    @cached_property
    def base(self) -> Int64Array:
        """First address of each arena."""
        return np.concatenate(([0], np.cumsum(self.arena_bytes))).astype(np.int64)

    @cached_property
    def start(self) -> Int64Array:
        """First address of each buffer."""
        return self.base[self.arena] + self.offset

    @cached_property
    def end(self) -> Int64Array:
        """Address past the last byte of each buffer."""
        return self.start + self.bytes

    @cached_property
    def pieces(self) -> Pieces:
        """The memory of each buffer, for arenas that are well formed."""
        seen, shown = self._shown()
        run = np.searchsorted(seen[:-1], self.start, side="right") - 1
        last = np.maximum(np.searchsorted(seen[:-1], self.end, side="left") - 1, run)
        first = np.concatenate(([0], np.cumsum(last - run + 1)))
        buffer = np.repeat(np.arange(len(self)), last - run + 1)
        run = run[buffer] + np.arange(len(buffer)) - first[buffer]
        moved = shown[run] - seen[run]
        return Pieces(first, np.maximum(self.start[buffer], seen[run]) + moved,
                      np.minimum(self.end[buffer], seen[run + 1]) + moved)

    @cached_property
    def scattered(self) -> list[int]:
        """The buffers that lie in more than one piece."""
        return np.flatnonzero(np.diff(self.pieces.first) > 1).tolist()

    def _shown(self) -> tuple[Int64Array, Int64Array]:
        """The addresses at which runs of memory are seen, with the end of all of them, and where that memory begins:
        each arena is one run, but a mapped one has a run for each extent."""
        seen, shown = [], []
        for arena, base in zip(self.plan.arenas, self.base.tolist(), strict=False):
            if arena.space != "mapped":
                seen.append(base)
                shown.append(base)
                continue
            for offset, nbytes in arena.extents:
                seen.append(base)
                shown.append(int(self.base[TRANSIENT_ARENA]) + offset)
                base += nbytes
        return np.array([*seen, self.base[-1]], np.int64), np.array(shown, np.int64)

    @cached_property
    def value(self) -> Int64Array:
        """The buffer of which each view is another name, itself for a buffer that is none."""
        return self._follow(np.where(self.view, self.shares, np.arange(len(self))))

    @cached_property
    def storage(self) -> Int64Array:
        """The first buffer of the chain of views and in-place successors that each buffer belongs to."""
        return self._follow(np.where(self.shares >= 0, self.shares, np.arange(len(self))))

    @cached_property
    def until(self) -> Int64Array:
        """For a value: the first instruction at which none of its names is needed any longer."""
        last = self.dies.copy()
        np.maximum.at(last, self.value, self.dies)
        return last

    def _follow(self, parent: Int64Array) -> Int64Array:
        """The ends of chains of parents, by doubling the step; an error when a chain runs in a circle."""
        for _ in range(len(self).bit_length() + 1):
            further = parent[parent]
            if np.array_equal(further, parent):
                return parent
            parent = further
        culprit = int(np.flatnonzero(parent[parent] != parent)[0])
        self.fail(f"{self.buffer(culprit)} shares bytes with itself in a circle of `shares`")

    # -- words -------------------------------------------------------------------------------------------------
    def instruction(self, index: int) -> str:
        """An instruction for people, its number, name and op."""
        if index < 0:
            return "the start of the program"
        if index >= len(self.plan):
            return "the end of the program"
        columns = self.plan.instructions
        what = columns.op[index] or _kind_name(columns.kind[index])
        return f"instruction {index} {columns.name[index]!r} ({what})"

    def buffer(self, index: int) -> str:
        """A buffer for people, its number and name."""
        return f"buffer {index} {self.plan.buffers.name[index]!r}"

    def where(self, low: int, high: int) -> str:
        """A range of addresses for people, as an arena and offsets in it."""
        arena, first, last = self.locate(low, high)
        return f"bytes [{first}, {last}) of arena {arena!r}"

    def locate(self, low: int, high: int) -> tuple[str, int, int]:
        """Arena, first offset and offset past the last of a range of addresses."""
        arena = min(int(np.searchsorted(self.base, low, side="right")) - 1, len(self.plan.arenas) - 1)
        base = int(self.base[arena])
        return self.plan.arenas[arena].name, int(low) - base, int(high) - base

    def fail(self, message: str, *instructions: int, at: tuple[int, int] | None = None) -> NoReturn:
        """Raise the error; `at` is the range of addresses that it concerns."""
        if at is None:
            raise VerificationError(message, instructions)
        arena, first, last = self.locate(*at)
        raise VerificationError(f"{message}, at bytes [{first}, {last}) of arena {arena!r}", instructions, arena,
                                (first, last))


def _is_sound(shape: Shape, dtype: np.dtype, layout: str) -> bool:
    """Whether a buffer may be of such a type; its bytes must be a number of 64 bits."""
    ranks = {PLAIN: True, BLOCKED: len(shape) >= 2, TRANSPOSED: len(shape) == 2}
    return all(isinstance(d, (int, np.integer)) and d >= 0 for d in shape) and ranks.get(layout, False) \
        and TensorType(shape, dtype, layout).nbytes <= np.iinfo(np.int64).max


def _kind_name(kind: int) -> str:
    try:
        return Kind(kind).name.lower().replace("_", "-")
    except ValueError:
        return f"kind {kind}"
