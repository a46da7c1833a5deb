"""Plans with copies, what they should compute, and short ways to load and run them on the CPU."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minigraph.base import align
from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.memory import CpuMemory
from minigraph.device.cpu.program import CpuProgram
from minigraph.ops.op import Workspace
from minigraph.ops.registry import get_op
from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Kind, Plan
from tests.plan import build
from tests.plan.build import Maker


def unary(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
    """Bounded, and not linear."""
    np.sin(ins[0], out=outs[0])
    np.add(outs[0], 0.25, out=outs[0])


def mixed(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
    """Of both inputs, which may be of any length; leaves something in its scratch."""
    work._memory.fill(7)
    first, second, out = ins[0], ins[-1], outs[0]
    n = min(first.size, second.size, out.size)
    np.subtract(first[:n], second[:n], out=out[:n])
    np.cos(out[:n], out=out[:n])
    out[n:] = out[0]


COMPUTE = {build.Unary: unary, build.Binary: mixed, build.First: mixed, build.Dense: mixed, build.Update: mixed}
"""What the operators of hand-made plans compute here."""


def expected(plan: Plan, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs and persistent tensors after the plan, each buffer in an array of its own, in list order."""
    columns, code = plan.buffers, plan.instructions
    values: dict[int, np.ndarray] = {}
    for name, b in [*plan.inputs.items(), *((t.name, t.first) for t in plan.persistent)]:
        values[b] = feeds[name].copy()

    def value(b: int) -> np.ndarray:
        if columns.view[b]:
            return value(columns.shares[b])[:columns.shape[b][0]]
        return values[b]

    for i in range(len(plan)):
        kind = code.kind[i]
        if kind in (Kind.RECORD, Kind.WAIT):
            continue
        ins = [value(b) for b in code.reads[i]]
        outs = [np.zeros(columns.shape[b], columns.dtype[b]) for b in code.writes[i]]
        if kind == Kind.COMPUTE:
            get_op(code.op[i]).compute(code.params[i], ins, outs, Workspace(np.empty(0, np.uint8)))
        else:
            outs[0][...] = code.value[i] if kind == Kind.FILL else ins[0]
        values.update(zip(code.writes[i], outs, strict=True))
    named = {**dict(plan.outputs), **{t.name: t.last for t in plan.persistent}}
    return {name: value(b) for name, b in named.items()}


def feeds(plan: Plan, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for inputs and persistent tensors."""
    chance = np.random.default_rng(seed)
    named = {**plan.inputs, **{t.name: t.first for t in plan.persistent}}
    return {name: chance.standard_normal(plan.buffers.shape[b]).astype(np.float32) for name, b in named.items()}


def load(plan: Plan, device: CpuDevice | None = None, memory: CpuMemory | None = None, **options: Any) -> CpuProgram:
    """The plan over arenas just large enough."""
    device = device or CpuDevice()
    memory = memory or device.memory()
    memory.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes, plan.page_bytes)
    return device.load(plan, memory, **options)


def set_values(program: CpuProgram, given: Mapping[str, np.ndarray]) -> None:
    """Feed the inputs and set the persistent tensors."""
    for name in program.plan.inputs:
        program.feed(name, given[name])
    for tensor in program.plan.persistent:
        program.array(tensor.first)[...] = given[tensor.name]


def run(program: CpuProgram, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One whole run; copies of what it leaves."""
    set_values(program, given)
    for name in sorted(program.plan.ranges, key=program.plan.ranges.__getitem__):
        program.run(name)
    named = {**dict(program.plan.outputs), **{t.name: t.last for t in program.plan.persistent}}
    return {name: program.array(b).copy() for name, b in named.items()}


def same_bits(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    assert one.keys() == other.keys()
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def in_file(plan: Plan) -> Plan:
    """The plan with its host arena in a file."""
    return replace(plan, arenas=tuple(replace(arena, name="file", space="file") if arena.space == "host" else arena
                                      for arena in plan.arenas))


def chain(length: int = 8, distance: int = 1, floats: int = 16) -> Plan:
    """A forward and a backward chain: every activation is copied out after forward and back for backward.

    Activations take three places in turn; what comes back takes `distance` + 2, and its copy is issued `distance`
    steps before it is used.
    """
    m, event = Maker(), iter(range(10000))
    data, weight = m.value("data", floats), m.value("weight", floats, arena="persistent")
    slots, back_slots = ([_place(m, floats) for _ in range(count)] for count in (3, distance + 2))
    values, on_host, out_done = [data], list[int](), list[int]()
    for i in range(length):
        a = m.value(f"a{i}", floats, at=slots[i % 3])
        if i >= 3:
            m.wait(out_done[i - 3], free=(values[i - 2],))
        m.run("t_dense", (values[-1], weight), (a,))
        host = m.value(f"host{i}", floats, arena="host")
        made, done = next(event), next(event)
        m.record(made)
        m.wait(made, OUT_STREAM)
        m.copy_out(a, host)
        m.record(done, OUT_STREAM)
        values.append(a)
        on_host.append(host)
        out_done.append(done)
    gradient = values[-1]
    used: dict[int, int] = {}
    issued: dict[int, tuple[int, int]] = {}

    def fetch(i: int) -> None:
        back = m.value(f"back{i}", floats, at=back_slots[i % len(back_slots)])
        if i + len(back_slots) in used:
            m.wait(used[i + len(back_slots)], IN_STREAM)
        m.wait(out_done[i], IN_STREAM)
        m.copy_in(on_host[i], back)
        issued[i] = next(event), back
        m.record(issued[i][0], IN_STREAM)

    for i in range(length - 1, -1, -1):
        for k in range(length - 1, max(i - distance, 0) - 1, -1):
            if k not in issued:
                fetch(k)
        here, back = issued[i]
        m.wait(here)
        after = m.value(f"g{i}", floats, buffer_class="backward")
        m.run("t_dense", (gradient, back), (after,))
        used[i] = next(event)
        m.record(used[i])
        gradient = after
    new_weight = m.value("weight_after", floats, over=weight)
    m.run("t_update", (weight, gradient), (new_weight,))
    out = m.value("out", floats)
    m.run("t_unary", (gradient,), (out,))
    return m.plan((data,), (out,), ((weight, new_weight),))


def _place(m: Maker, floats: int) -> int:
    """An offset of the transient arena that no value of its own has."""
    offset = m.used.get("transient", 0)
    m.used["transient"] = offset + align(4 * floats)
    return offset
