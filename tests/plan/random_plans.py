"""Random right plans on three streams, packed tightly, and random single corruptions of them."""
from __future__ import annotations

import random

from minigraph.base import align
from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Kind, Plan

from .build import Maker, corrupt


class _Random:
    """Adds random computations, updates, views and swaps, keeping to values that are there."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.m = Maker()
        self.event = 0
        weight = self.m.value("weight", arena="persistent")
        self.first = self.weight = weight
        self.inputs = (self.m.value("data"), self.m.value("more"))
        self.live = [*self.inputs, weight]
        self.swapped: list[int] = []

    def make(self, length: int) -> Plan:
        for _ in range(length):
            self.chance.choice((self.compute, self.compute, self.in_place, self.view, self.update, self.swap_out,
                                self.swap_in))()
        out = self.m.value("out")
        self.m.run("t_dense", (self.pick(), self.pick()), (out,))
        plan = self.m.plan(self.inputs, (out,), ((self.first, self.weight),))
        return packed(plan)

    def pick(self) -> int:
        return self.chance.choice(self.live)

    def new(self, **more: int | bool) -> int:
        return self.m.value(f"v{len(self.m.buffers)}", **more)  # type: ignore[arg-type]

    def compute(self) -> None:
        out = self.new(floats=self.chance.choice((16, 20, 40)))
        scratch = self.new() if self.chance.random() < 0.3 else -1
        self.m.run("t_dense", (self.pick(), self.pick()), (out,), workspace=scratch)
        self.live.append(out)

    def in_place(self) -> None:
        source = self.pick()
        shares = self.m.buffers.shares
        if source in (self.weight, *self.inputs) or self.m.buffers.view[source] or source in [
                shares[b] for b in self.live if self.m.buffers.view[b]]:
            return
        out = self.new(over=source, floats=self.m.buffers.bytes[source] // 4)
        if self.chance.random() < 0.5:
            self.m.run("t_unary", (source,), (out,))
        else:
            self.m.run("t_binary", (source, source), (out,))
        self.live[self.live.index(source)] = out

    def view(self) -> None:
        source = self.pick()
        if source not in (self.weight, *self.inputs):
            self.live.append(self.new(over=source, view=True, floats=16))

    def update(self) -> None:
        after = self.m.value(f"weight{len(self.m.code)}", over=self.weight)
        gradient = self.chance.choice([b for b in self.live if b != self.weight])
        self.m.run("t_update", (self.weight, gradient), (after,))
        self.live[self.live.index(self.weight)] = self.weight = after

    def swap_out(self) -> None:
        choices = [b for b in self.live if b not in (self.weight, *self.inputs) and self.m.buffers.shares[b] < 0
                   and b not in [self.m.buffers.shares[v] for v in self.live]]
        if not choices:
            return
        source = self.chance.choice(choices)
        host = self.new(arena="host", floats=self.m.buffers.bytes[source] // 4)  # type: ignore[arg-type]
        self.order(0, OUT_STREAM)
        self.m.copy_out(source, host)
        self.m.record(self.event, OUT_STREAM)
        out_event, self.event = self.event, self.event + 1
        if self.chance.random() < 0.5:
            self.compute()
        self.m.wait(out_event, free=(source, host))
        self.live.remove(source)
        self.swapped.append(host)

    def swap_in(self) -> None:
        if not self.swapped:
            return
        host = self.swapped.pop(self.chance.randrange(len(self.swapped)))
        back = self.new(floats=self.m.buffers.bytes[host] // 4)
        self.order(0, IN_STREAM)
        self.m.copy_in(host, back)
        self.m.record(self.event, IN_STREAM)
        in_event, self.event = self.event, self.event + 1
        if self.chance.random() < 0.5:
            self.compute()
        self.m.wait(in_event, free=(host, back))
        self.live.append(back)

    def order(self, first: int, second: int) -> None:
        self.m.record(self.event, first)
        self.m.wait(self.event, second)
        self.event += 1


def random_plan(seed: int, length: int = 14) -> Plan:
    """A right plan; the same for the same seed."""
    return _Random(random.Random(seed)).make(length)


def packed(plan: Plan) -> Plan:
    """The plan with its transient and host storages put as low as their lifetimes allow."""
    columns = plan.buffers
    root = list(range(len(columns)))
    for b, shares in enumerate(columns.shares):
        root[b] = b if shares < 0 else root[shares]
    born = {r: min(columns.born[b] for b in range(len(root)) if root[b] == r) for r in set(root)}
    dies = {r: max(columns.dies[b] for b in range(len(root)) if root[b] == r) for r in set(root)}
    placed: list[int] = []
    for r in sorted(set(root)):
        if columns.arena[r] == 0:
            continue
        offset = 0
        near = [p for p in placed if columns.arena[p] == columns.arena[r] and born[p] < dies[r] and born[r] < dies[p]]
        for p in sorted(near, key=lambda p: columns.offset[p]):
            if columns.offset[p] < offset + columns.bytes[r]:
                offset = max(offset, columns.offset[p] + align(columns.bytes[p]))
        columns.offset[r] = offset
        placed.append(r)
    for b, r in enumerate(root):
        columns.offset[b] = columns.offset[r]
    return plan


def corruption(plan: Plan, seed: int) -> Plan:
    """The plan with one value changed: an offset, a lifetime, a stream, or a wait."""
    chance = random.Random(seed)
    b, i = chance.randrange(len(plan.buffers)), chance.randrange(len(plan))
    waits = [k for k in range(len(plan)) if plan.instructions.kind[k] == Kind.WAIT]
    what = chance.choice(("offset", "dies", "born", "stream", "wait" if waits else "stream"))
    if what == "offset":
        step = chance.choice((-64, 64, 128, 1))
        return corrupt(plan, b_offset=(b, plan.buffers.offset[b] + step))
    if what == "dies":
        return corrupt(plan, b_dies=(b, plan.buffers.dies[b] + chance.choice((-2, -1, 1, 3))))
    if what == "born":
        return corrupt(plan, b_born=(b, min(max(plan.buffers.born[b] + chance.choice((-1, 1)), 0), len(plan) - 1)))
    if what == "stream":
        return corrupt(plan, i_stream=(i, chance.randrange(3)))
    k = chance.choice(waits)
    if chance.random() < 0.5:
        return corrupt(plan, i_kind=(k, int(Kind.RECORD)), i_event=(k, 1000))
    return corrupt(plan, i_event=(k, max(plan.instructions.event[k] + chance.choice((-1, 1)), 0)))
