"""Hand-made plans: small operators, a maker that fills in places and lifetimes, and a few plans made with it."""
from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import numpy as np

from minigraph.base import Cost, align
from minigraph.ops import registry
from minigraph.ops.op import Op
from minigraph.ops.params import NoParams, param
from minigraph.plan.plan import (
    IN_STREAM,
    OUT_STREAM,
    Arena,
    BufferColumns,
    Extent,
    Figures,
    InstructionColumns,
    Kind,
    Output,
    Persistent,
    Plan,
)

FLOAT = np.dtype(np.float32)


class _Small(Op):
    """Base; nothing runs these plans."""

    def compute(self, p: Any, ins: Any, outs: Any, work: Any) -> None:
        raise AssertionError("these plans are not run")


class Unary(_Small):
    """May overwrite its input."""

    name = "t_unary"

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class _Binary(_Small):
    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("lhs", "rhs")


class Binary(_Binary):
    """May overwrite either input."""

    name = "t_binary"

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))


class First(_Binary):
    """May overwrite its first input, but not its second."""

    name = "t_first"

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class _OfAnySizes(_Binary):
    def infer_shape(self, p: Any, ins: Any, outs: Any) -> Any:
        return ins, outs


class Dense(_OfAnySizes):
    """Of tensors of any sizes; overwrites nothing; costs 100 operations an output element."""

    name = "t_dense"

    def cost(self, p: Any, ins: Any, outs: Any) -> Cost:
        return Cost(100.0 * outs[0].size, sum(t.nbytes for t in ins), outs[0].nbytes)


class Update(_OfAnySizes):
    """Changes its first input by a second one of any size."""

    name = "t_update"

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class Like(_Binary):
    """Reads its second input for its shape only."""

    name = "t_like"

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,)


class Pair(_Small):
    """Has two outputs."""

    name = "t_pair"

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("left", "right")


@dataclass(frozen=True)
class TunedParams:
    """Parameters of every kind."""

    count: int = param(3, "int", "an integer")
    slope: float = param(0.25, "float", "a number")
    flag: bool = param(True, "bool", "yes or no")
    mode: str = param("valid", "str", "a word", choices=("valid", "full"))
    kernel: tuple = param((3, 3), "shape", "a shape")
    dtype: Any = param(None, "dtype", "a type")
    axis: Any = param(None, "int", "an optional integer")


class Tuned(_Small):
    """Has parameters of every kind."""

    name = "t_tuned"
    Params = TunedParams


OPS = (Unary, Binary, First, Dense, Update, Like, Pair, Tuned)


@contextmanager
def registered() -> Iterator[None]:
    """Inside, the registry knows the operators above; afterwards no other test sees them."""
    mine = [op for op in OPS if op.name not in registry.names()]
    for op in mine:
        registry.register(op)
    yield
    for op in mine:
        del registry._OPS[op.name]


@dataclass
class Maker:
    """Makes a plan instruction by instruction; lifetimes follow from the reads and writes.

    A value is placed after all others of its arena unless `at` gives an offset or it shares bytes. With `extents` there
    is an arena "mapped", which shows those of the transient arena, in pages of `page_bytes`.
    """

    buffers: BufferColumns = field(default_factory=BufferColumns)
    code: InstructionColumns = field(default_factory=InstructionColumns)
    names: list[str] = field(default_factory=lambda: ["persistent", "transient", "host"])
    used: dict[str, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    extents: tuple[tuple[int, int], ...] = ()
    page_bytes: int = 64

    def __post_init__(self) -> None:
        self.names += ["mapped"] if self.extents else []

    def value(self, name: str, floats: int = 16, *, arena: str = "transient", at: int | None = None, over: int = -1,
              view: bool = False, buffer_class: str = "activation") -> int:
        """Declare a float32 vector; `over` is the buffer that it shares bytes with, as a view or in place."""
        size, number = 4 * floats, self.names.index(arena)
        if over >= 0:
            number, at = self.buffers.arena[over], at if at is not None else self.buffers.offset[over]
        if at is None:
            at = self.used.get(arena, 0)
        key = self.names[number]
        self.used[key] = max(self.used.get(key, 0), at + align(size))
        return self.buffers.add(name, number, at, size, (floats,), FLOAT, born=-1, dies=0, shares=over, view=view,
                                buffer_class=buffer_class)

    def run(self, op: str, reads: tuple[int, ...], writes: tuple[int, ...], *, name: str = "", workspace: int = -1,
            stream: int = 0, unread: tuple[int, ...] = (), params: Any = None, algorithm: str = "default") -> int:
        """Add a computation."""
        name = name or (self.buffers.name[writes[0]] if writes else op)
        return self.code.add(Kind.COMPUTE, stream=stream, name=name, op=op, reads=reads, writes=writes, unread=unread,
                             workspace=workspace, params=NoParams() if params is None else params, algorithm=algorithm)

    def fill(self, b: int, value: float) -> int:
        """Add a fill."""
        return self.code.add(Kind.FILL, name=self.buffers.name[b], writes=(b,), value=value)

    def copy_out(self, source: int, target: int, stream: int = OUT_STREAM) -> int:
        """Add a copy to the host."""
        return self.code.add(Kind.COPY_OUT, stream=stream, name=self.buffers.name[source], reads=(source,),
                             writes=(target,))

    def copy_in(self, source: int, target: int, stream: int = IN_STREAM) -> int:
        """Add a copy from the host."""
        return self.code.add(Kind.COPY_IN, stream=stream, name=self.buffers.name[target], reads=(source,),
                             writes=(target,))

    def record(self, event: int, stream: int = 0) -> int:
        """Add a record."""
        return self.code.add(Kind.RECORD, stream=stream, name=f"event{event}", event=event)

    def wait(self, event: int, stream: int = 0, free: tuple[int, ...] = ()) -> int:
        """Add a wait; the buffers in `free` are needed up to it."""
        i = self.code.add(Kind.WAIT, stream=stream, name=f"event{event}", event=event)
        self.held.update(dict.fromkeys(free, i + 1))
        return i

    def plan(self, inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = (),
             persistent: tuple[tuple[int, int], ...] = (), ranges: dict[str, tuple[int, int]] | None = None) -> Plan:
        """The plan, its arenas just large enough."""
        self._lifetimes((*outputs, *(last for _, last in persistent)))
        names = self.buffers.name
        return Plan("step", "plain", self._arenas(), self.buffers, self.code,
                    tuple(Persistent(names[first], first, last) for first, last in persistent),
                    {names[b]: b for b in inputs}, tuple(Output(names[b], b) for b in outputs),
                    ranges or {"step": (0, len(self.code))}, "print",
                    Figures(len(self.code), 4096, 1024, "first fit", 0.5, {"pack": 0.25}))

    def _arenas(self) -> tuple[Arena, ...]:
        shown = max((offset + nbytes for offset, nbytes in self.extents), default=0)
        transient = align(max(self.used.get("transient", 0), shown), self.page_bytes if self.extents else 4)
        plain = (Arena("persistent", "device", self.used.get("persistent", 0)), Arena("transient", "device", transient),
                 Arena("host", "host", self.used.get("host", 0)))
        return (*plain, mapped_arena(self.page_bytes, self.extents)) if self.extents else plain

    def _lifetimes(self, kept: tuple[int, ...]) -> None:
        columns, count = self.buffers, len(self.code)
        for i in range(count):
            for b in (*self.code.writes[i], *([self.code.workspace[i]] if self.code.workspace[i] >= 0 else [])):
                columns.born[b] = i if columns.born[b] < 0 else columns.born[b]
                columns.dies[b] = i + 1
            for p, b in enumerate(self.code.reads[i]):
                if p not in self.code.unread[i]:
                    columns.dies[b] = i + 1
        for b in range(len(columns)):
            columns.dies[b] = max(columns.dies[b], self.held.get(b, 0))
            if columns.view[b]:
                columns.born[b] = columns.born[columns.shares[b]]
                columns.dies[b] = max(columns.dies[b], columns.born[b] + 1)
        for b in kept:
            columns.dies[b] = max(count, 1)


def mapped_arena(page_bytes: int, extents: tuple[tuple[int, int], ...], name: str = "mapped") -> Arena:
    """A mapped arena that shows (offset, bytes) of the transient one."""
    return Arena(name, "mapped", sum(nbytes for _, nbytes in extents), page_bytes, tuple(starmap(Extent, extents)))


def corrupt(plan: Plan, **changes: tuple[int, Any]) -> Plan:
    """A copy with one value changed in each named column of buffers (`b_offset=(3, 64)`) or instructions (`i_...`)."""
    broken = copy.deepcopy(plan)
    for name, (row, value) in changes.items():
        columns = broken.buffers if name.startswith("b_") else broken.instructions
        getattr(columns, name[2:])[row] = value
    return broken


def chain() -> Plan:
    """A forward pass: a product with a workspace, a step in place, a view, and a last product.

    data %0, weight %1 (persistent), a %2, scratch %3, b %4 in place of a, flat %5 a view of b, out %6; the bytes of
    the dead data are those of out.
    """
    m = Maker()
    data = m.value("data", buffer_class="input")
    weight = m.value("weight", arena="persistent", buffer_class="parameter")
    a, scratch = m.value("a"), m.value("scratch", 32, buffer_class="workspace")
    b = m.value("b", over=a)
    flat, out = m.value("flat", over=b, view=True), m.value("out", at=0, buffer_class="output")
    m.run("t_dense", (data, weight), (a,), workspace=scratch)
    m.run("t_unary", (a,), (b,))
    m.run("t_dense", (flat, weight), (out,))
    return m.plan(inputs=(data,), outputs=(out,), persistent=((weight, weight),))


def training() -> Plan:
    """A weight that is read, updated in place, and read again.

    data %0, weight %1, a %2, gradient %3, weight after the update %4 on the same bytes, out %5.
    """
    m = Maker()
    data = m.value("data", buffer_class="input")
    weight = m.value("weight", arena="persistent", buffer_class="parameter")
    a, gradient = m.value("a"), m.value("gradient", buffer_class="backward")
    after = m.value("weight_after", over=weight, buffer_class="parameter")
    out = m.value("out", buffer_class="output")
    m.run("t_dense", (data, weight), (a,))
    m.run("t_dense", (a, weight), (gradient,))
    m.run("t_update", (weight, gradient), (after,))
    m.run("t_dense", (a, after), (out,))
    return m.plan(inputs=(data,), outputs=(out,), persistent=((weight, after),))


def swap() -> Plan:
    """Three streams: `a` is copied out, its bytes are used for `c`, and it comes back as `back`.

    data %0, a %1, on_host %2, b %3, c %4 on the bytes of a, back %5, out %6.
    """
    m = Maker()
    data, a, on_host = m.value("data", buffer_class="input"), m.value("a"), m.value("on_host", arena="host")
    b = m.value("b")
    c, back, out = m.value("c", at=m.buffers.offset[a]), m.value("back"), m.value("out", buffer_class="output")
    m.run("t_unary", (data,), (a,))           # 0
    m.record(0)                               # 1
    m.wait(0, OUT_STREAM)                     # 2
    m.copy_out(a, on_host)                    # 3
    m.record(1, OUT_STREAM)                   # 4
    m.run("t_unary", (a,), (b,))              # 5
    m.wait(1, free=(a,))                      # 6
    m.run("t_unary", (b,), (c,))              # 7
    m.wait(1, IN_STREAM)                      # 8
    m.copy_in(on_host, back)                  # 9
    m.record(2, IN_STREAM)                    # 10
    m.wait(2)                                 # 11
    m.run("t_binary", (c, back), (out,))      # 12
    return m.plan(inputs=(data,), outputs=(out,))


def scattered() -> Plan:
    """A value in two pieces of memory that is read as one, and whose second piece then holds another value.

    In pages of 64 bytes: data %0 in page 0; a %1 in pages 3 and 1, the first two of the mapped arena; kept %2 in page
    2; b %3 in page 1, by its transient address; c %4 in pages 3 and 0, the next two of the mapped arena; out %5 in
    page 4.
    """
    m = Maker(extents=((192, 64), (64, 64), (192, 64), (0, 64)))
    data, a = m.value("data", buffer_class="input"), m.value("a", 32, arena="mapped")
    kept, b = m.value("kept", at=128), m.value("b", at=64)
    c, out = m.value("c", 32, arena="mapped"), m.value("out", at=256, buffer_class="output")
    m.run("t_dense", (data, data), (a,))     # 0
    m.run("t_dense", (a, data), (kept,))     # 1
    m.run("t_dense", (kept, kept), (b,))     # 2
    m.run("t_dense", (b, kept), (c,))        # 3
    m.run("t_dense", (c, b), (out,))         # 4
    return m.plan(inputs=(data,), outputs=(out,))
