"""The plan: frozen, printable data that says what runs, on which stream, and where every byte lies.

Everything is kept as columns (one sequence an attribute), so that hundreds of thousands of instructions fit; `Buffer`
and `Instruction` are views made for reading and printing. The order of the instructions is a legal serial order.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

CLASSES = ("parameter", "auxiliary", "state", "gradient", "input", "output", "activation", "backward", "workspace")
"""What a buffer holds. The first four are persistent; `backward` are gradients of activations and other values
that only backward or update makes."""
PERSISTENT_CLASSES = CLASSES[:4]
AGAIN = "/again"
"""What the name of an instruction that repeats an earlier one holds, before the number of the repetition."""
SLICE = "/slice"
"""What the name of an instruction or a value that is a slice of the batch holds, before the number of the slice."""
TRANSIENT_ARENA = 1
"""The number of the transient arena; that of persistent tensors is number 0."""
COMPUTE_STREAM, OUT_STREAM, IN_STREAM = 0, 1, 2
STREAMS = ("compute", "out", "in")


class Kind(IntEnum):
    """What an instruction does."""

    COMPUTE = 0
    FILL = 1
    COPY_OUT = 2
    COPY_IN = 3
    RECORD = 4
    WAIT = 5


class Extent(NamedTuple):
    """Bytes of the transient arena that a mapped arena shows: `bytes` of them from `offset` on, whole pages both."""

    offset: int
    bytes: int


@dataclass(frozen=True)
class Arena:
    """One contiguous range of addresses: `space` is "device", "host", "file" or "mapped".

    A mapped arena has no memory of its own: its addresses show pages of the transient arena once more, those of
    `extents` one after another, which together are its `bytes`. So a tensor may lie in one piece where free memory is
    in several. `page_bytes` is what all of that is a multiple of, the size of the transient arena too.
    """

    name: str
    space: str
    bytes: int
    page_bytes: int = 0
    extents: tuple[Extent, ...] = ()

    @property
    def on_device(self) -> bool:
        """Whether it is device memory to those who use it, be it of its own or mapped."""
        return self.space in ("device", "mapped")


@dataclass(frozen=True)
class Buffer:
    """One tensor value in its place: a view of one row of the plan's buffer columns.

    `born` is the instruction that writes it first (-1: it holds its value before the program starts) and `dies` the
    first instruction at which it is no longer needed. `shares` is the buffer whose bytes it takes over (-1: none):
    as another name for the same value when `view` is true, as its successor in place otherwise.
    """

    id: int
    name: str
    arena: int
    offset: int
    bytes: int
    shape: tuple[int, ...]
    dtype: np.dtype
    layout: str
    born: int
    dies: int
    shares: int
    view: bool
    buffer_class: str


@dataclass(frozen=True)
class Instruction:
    """One instruction: a view of one row of the plan's instruction columns.

    `reads` and `writes` are buffer ids in the op's order of inputs and outputs; inputs listed in `unread` are read
    for their shape only. Copies read one buffer and write one; Fill writes one with `value`; Record and Wait name
    an `event`. `workspace` is a buffer id or -1.
    """

    id: int
    kind: Kind
    stream: int
    name: str
    op: str
    params: Any
    algorithm: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    unread: tuple[int, ...]
    workspace: int
    event: int
    value: float


def _ints() -> MutableSequence[int]:
    return array("q")


def _floats() -> MutableSequence[float]:
    return array("d")


class _Columns:
    """Columns of numbers become arrays of 64 bits an item, whatever sequences they were given as: a plan of a deep
    network stays in memory while it runs."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            column = getattr(self, each.name)
            if each.default_factory in (_ints, _floats) and not isinstance(column, array):
                setattr(self, each.name, array("q" if each.default_factory is _ints else "d", column))


@dataclass
class BufferColumns(_Columns):
    """Attributes of all buffers, one column each."""

    name: list[str] = field(default_factory=list)
    arena: MutableSequence[int] = field(default_factory=_ints)
    offset: MutableSequence[int] = field(default_factory=_ints)
    bytes: MutableSequence[int] = field(default_factory=_ints)
    shape: list[tuple[int, ...]] = field(default_factory=list)
    dtype: list[np.dtype] = field(default_factory=list)
    layout: list[str] = field(default_factory=list)
    born: MutableSequence[int] = field(default_factory=_ints)
    dies: MutableSequence[int] = field(default_factory=_ints)
    shares: MutableSequence[int] = field(default_factory=_ints)
    view: list[bool] = field(default_factory=list)
    buffer_class: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.name)

    def add(self, name: str, arena: int, offset: int, nbytes: int, shape: tuple[int, ...], dtype: np.dtype, *,
            born: int, dies: int, shares: int = -1, view: bool = False, buffer_class: str = "activation",
            layout: str = "") -> int:
        """Append one buffer and return its id."""
        for column, value in zip(vars(self).values(), (name, arena, offset, nbytes, shape, dtype, layout, born,
                                                       dies, shares, view, buffer_class), strict=True):
            column.append(value)
        return len(self.name) - 1


@dataclass
class InstructionColumns(_Columns):
    """Attributes of all instructions, one column each."""

    kind: MutableSequence[int] = field(default_factory=_ints)
    stream: MutableSequence[int] = field(default_factory=_ints)
    name: list[str] = field(default_factory=list)
    op: list[str] = field(default_factory=list)
    params: list[Any] = field(default_factory=list)
    algorithm: list[str] = field(default_factory=list)
    reads: list[tuple[int, ...]] = field(default_factory=list)
    writes: list[tuple[int, ...]] = field(default_factory=list)
    unread: list[tuple[int, ...]] = field(default_factory=list)
    workspace: MutableSequence[int] = field(default_factory=_ints)
    event: MutableSequence[int] = field(default_factory=_ints)
    value: MutableSequence[float] = field(default_factory=_floats)

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: Kind, *, stream: int = COMPUTE_STREAM, name: str = "", op: str = "", params: Any = None,
            algorithm: str = "", reads: tuple[int, ...] = (), writes: tuple[int, ...] = (),
            unread: tuple[int, ...] = (), workspace: int = -1, event: int = -1, value: float = 0.0) -> int:
        """Append one instruction and return its id."""
        for column, item in zip(vars(self).values(), (int(kind), stream, name, op, params, algorithm, reads, writes,
                                                      unread, workspace, event, value), strict=True):
            column.append(item)
        return len(self.kind) - 1

    def selected(self, rows: Sequence[int]) -> InstructionColumns:
        """These rows alone."""
        return InstructionColumns(*([column[i] for i in rows] for column in vars(self).values()))


@dataclass(frozen=True)
class Persistent:
    """A tensor that outlives the program: it lies in `first` at the beginning and in `last` at the end."""

    name: str
    first: int
    last: int


class Output(NamedTuple):
    """What the outside reads at the end. Outputs are told apart by their position: several may have one name."""

    name: str
    buffer: int


@dataclass(frozen=True)
class Figures:
    """The planner's own figures about one program, in bytes of the device arenas.

    `step_seconds` is the modelled time of the program's instructions one after the other, `plain_step_seconds` that of
    the same program without any recomputation, `recompute_flops` what is computed more than once.
    """

    nodes: int
    naive_bytes: int
    lower_bound_bytes: int
    packing: str
    compile_seconds: float
    pass_seconds: dict[str, float]
    step_seconds: float = 0.0
    plain_step_seconds: float = 0.0
    recompute_flops: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A program ready to run: arenas, buffers, instructions and what the outside reads and writes.

    `ranges` names the parts that can be run alone, as (first, past the last) instruction: `step`, `eval`, or `forward`
    and `backward`. `inputs` gives buffers by name, which are filled before the first range runs, those in
    `late_inputs` (head gradients) before `backward` does; `outputs` are in the order of the symbol's.
    `parameters` are the updated or differentiated arguments in the order of the control buffer's rates;
    `without_gradient` those of them that no output depends on, so that no update may touch them. `expected` tells by a
    digest what each output, in order, and then each persistent tensor is computed from (`values.py`), or nothing.
    """

    program: str
    memory: str
    arenas: tuple[Arena, ...]
    buffers: BufferColumns
    instructions: InstructionColumns
    persistent: tuple[Persistent, ...]
    inputs: dict[str, int]
    outputs: tuple[Output, ...]
    ranges: dict[str, tuple[int, int]]
    fingerprint: str
    figures: Figures
    streams: tuple[str, ...] = STREAMS
    parameters: tuple[str, ...] = ()
    without_gradient: tuple[str, ...] = ()
    late_inputs: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    def buffer(self, index: int) -> Buffer:
        """Buffer number `index` as one object."""
        return Buffer(index, *(column[index] for column in vars(self.buffers).values()))

    def instruction(self, index: int) -> Instruction:
        """Instruction number `index` as one object."""
        kind, *rest = (column[index] for column in vars(self.instructions).values())
        return Instruction(index, Kind(kind), *rest)

    def pieces(self, b: int) -> list[tuple[int, int, int]]:
        """Where the bytes of a buffer lie in memory: (arena, offset, bytes), in order, of no mapped arena."""
        columns = self.buffers
        arena, first, last = columns.arena[b], columns.offset[b], columns.offset[b] + columns.bytes[b]
        if arena not in self._shown:
            return [(arena, first, last - first)]
        begins, extents, found = self._shown[arena], self.arenas[arena].extents, []
        for k in range(bisect_right(begins, first) - 1, min(bisect_left(begins, last), len(extents))):
            low, high = max(first, begins[k]), min(last, begins[k + 1])
            found.append((TRANSIENT_ARENA, extents[k].offset + low - begins[k], high - low))
        return found

    @cached_property
    def _shown(self) -> dict[int, list[int]]:
        """For each mapped arena the addresses at which its extents begin, and at which the last one ends."""
        return {k: [0, *accumulate(extent.bytes for extent in arena.extents)]
                for k, arena in enumerate(self.arenas) if arena.space == "mapped"}

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return (self.instruction(i) for i in range(len(self)))

    @property
    def backward_start(self) -> int:
        """The first instruction of backward in a plan that runs in two parts; the number of instructions elsewhere."""
        return self.ranges["backward"][0] if "backward" in self.ranges else len(self)

    def arena_bytes(self, space: str) -> int:
        """Bytes of all arenas in a memory space."""
        return sum(arena.bytes for arena in self.arenas if arena.space == space)

    @property
    def page_bytes(self) -> int:
        """Bytes of the pages of the transient arena that are mapped once more; 0 where none are."""
        return max((arena.page_bytes for arena in self.arenas), default=0)

    @property
    def planned_bytes(self) -> int:
        """Bytes of the device arenas, persistent and transient: what a budget is compared with."""
        return self.arena_bytes("device")
