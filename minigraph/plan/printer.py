"""A plan as text, one line an instruction:

    12 compute  Convolution conv0 [im2col]  %3 %4 -> %7 = %3 in place @transient+4096  ws %9 1.20 MiB @transient+0
    13 out      copy-out relu0  %7 -> %8 @host+0
    14 out      record 2
    15 compute  wait 2

`%3` is buffer 3, `@arena+offset` says where a written buffer lies, and `shape(%4)` is read for its shape only.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base import format_bytes
from .plan import Arena, Kind, Plan

_SHOWN = 4
"""Extents of a mapped arena that are printed."""


def format_plan(plan: Plan, buffers: bool = False) -> str:
    """The whole plan: a heading, its arenas and ranges, every instruction, and every buffer if asked for."""
    lines = [f"plan {plan.program}: memory {plan.memory}, {len(plan)} instructions, {len(plan.buffers)} buffers, "
             f"{format_bytes(plan.planned_bytes)} planned"]
    lines += [f"arena {arena.name}: {format_bytes(arena.bytes)} of {_memory(arena)}" for arena in plan.arenas]
    lines += [f"range {name}: [{first}, {last})" for name, (first, last) in plan.ranges.items()]
    lines += _named("input", plan.inputs.items()) + _named("output", plan.outputs)
    lines += [f"persistent {p.name}: %{p.first} -> %{p.last}" for p in plan.persistent]
    width = len(str(max(len(plan) - 1, 0)))
    places = _places(plan)
    lines += [_line(plan, i, width, places) for i in range(len(plan))]
    if buffers:
        lines += [format_buffer(plan, b) for b in range(len(plan.buffers))]
    return "\n".join(lines) + "\n"


def format_instruction(plan: Plan, index: int) -> str:
    """One instruction as one line."""
    return _line(plan, index, len(str(index)), None)


def format_buffer(plan: Plan, index: int) -> str:
    """One buffer as one line: place, shape, dtype, lifetime and class."""
    b = plan.buffer(index)
    shared = "" if b.shares < 0 else f"  {'view of' if b.view else 'in place of'} %{b.shares}"
    layout = f" {b.layout}" if b.layout else ""
    shape = "x".join(map(str, b.shape)) or "scalar"
    return (f"%{index} {b.name}  {b.dtype.name} {shape}{layout}  {format_bytes(b.bytes)} "
            f"@{plan.arenas[b.arena].name}+{b.offset}  [{b.born}, {b.dies})  {b.buffer_class}{shared}")


def _memory(arena: Arena) -> str:
    """The memory of an arena, with what a mapped one shows, as far as a line holds it."""
    if arena.space != "mapped":
        return f"{arena.space} memory"
    shown = [f"[{offset}, {offset + nbytes})" for offset, nbytes in arena.extents[:_SHOWN]]
    more = [f"{len(arena.extents) - _SHOWN} more"] if len(arena.extents) > _SHOWN else []
    return (f"addresses that show transient {' '.join(shown + more)}, {len(arena.extents)} extents in pages of "
            f"{format_bytes(arena.page_bytes)}")


def _named(what: str, buffers: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{what} {name}: %{b}" for name, b in buffers]


def _places(plan: Plan) -> list[str]:
    names = [arena.name for arena in plan.arenas]
    return [f"@{names[arena]}+{offset}"
            for arena, offset in zip(plan.buffers.arena, plan.buffers.offset, strict=True)]


def _place(plan: Plan, b: int, places: list[str] | None) -> str:
    if places is not None:
        return places[b]
    return f"@{plan.arenas[plan.buffers.arena[b]].name}+{plan.buffers.offset[b]}"


def _line(plan: Plan, i: int, width: int, places: list[str] | None) -> str:
    columns = plan.instructions
    kind = columns.kind[i]
    head = f"{i:>{width}} {plan.streams[columns.stream[i]]:<8}"
    if kind in (Kind.RECORD, Kind.WAIT):
        return f"{head} {'record' if kind == Kind.RECORD else 'wait'} {columns.event[i]}"
    if kind == Kind.COMPUTE:
        what = f"{columns.op[i]} {columns.name[i]}"
        if columns.algorithm[i] not in ("", "default"):
            what += f" [{columns.algorithm[i]}]"
    elif kind == Kind.FILL:
        what = f"fill {columns.name[i]} with {columns.value[i]:g}"
    else:
        what = f"{'copy-out' if kind == Kind.COPY_OUT else 'copy-in'} {columns.name[i]}"
    reads, workspace = columns.reads[i], columns.workspace[i]
    text = f"{head} {what}  {_reads(reads, columns.unread[i])}-> {_writes(plan, columns.writes[i], places)}"
    if workspace >= 0:
        size = format_bytes(plan.buffers.bytes[workspace])
        text += f"  ws %{workspace} {size} {_place(plan, workspace, places)}"
    return text


def _reads(reads: Sequence[int], unread: Sequence[int]) -> str:
    return "".join([f"shape(%{b}) " if p in unread else f"%{b} " for p, b in enumerate(reads)])


def _writes(plan: Plan, writes: Sequence[int], places: list[str] | None) -> str:
    parts = []
    for b in writes:
        shares = plan.buffers.shares[b]
        over = f" = %{shares} in place" if shares >= 0 else ""
        layout = f" {plan.buffers.layout[b]}" if plan.buffers.layout[b] else ""
        parts.append(f"%{b}{layout}{over} {_place(plan, b, places)}")
    return ", ".join(parts)
