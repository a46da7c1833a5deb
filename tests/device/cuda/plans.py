"""Hand-made plans on the GPU: CUDA forms for their operators, and short ways to load, feed, run and read."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minigraph.base import Algorithm
from minigraph.device.cuda import cuda_device
from minigraph.device.cuda.launch import (
    BLOCK,
    KernelOp,
    Launch,
    Operand,
    address,
    flat_grid,
    implemented,
    int64,
    kernels_for,
    pointer,
)
from minigraph.plan.plan import Plan
from tests.plan.build import Maker, registered


class Add(KernelOp):
    """The sum of the operands that are read, or a single one with itself: t_unary doubles, t_binary adds."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        if outs[0].size == 0:
            return ()
        args = (pointer(ins[0]), pointer(ins[-1]), pointer(outs[0]), int64(outs[0].size))
        return (Launch("elemwise_add_forward_float32", flat_grid(outs[0].size, 4), (BLOCK, 1, 1), args),)


class Overrun(Add):
    """Writes 64 floats behind its output."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        longer = [Operand(outs[0].address, (outs[0].size + 64,), outs[0].dtype)]
        return super().launches(p, [longer[0]], longer, work)


class Scratch(Add):
    """Twice its input, by way of a workspace of as many bytes."""

    def algorithm(self, p: Any, ins: Any, outs: Any) -> Algorithm:
        return Algorithm("kernel", outs[0].nbytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        middle = Operand(work, outs[0].shape, outs[0].dtype)
        zero = Launch("elemwise_sub_forward_float32", flat_grid(middle.size, 4), (BLOCK, 1, 1),
                      (pointer(ins[0]), pointer(ins[0]), address(work), int64(middle.size)))
        return (zero, *super().launches(p, [middle, ins[0]], [middle], 0), *super().launches(p, [middle], outs, 0))


def device():
    """The device, with CUDA forms for the operators of hand-made plans."""
    if "t_unary" not in implemented():
        registered().__enter__()
        kernels_for("t_unary", "t_binary")(Add)
        kernels_for("t_first")(Overrun)
        kernels_for("t_tuned")(Scratch)
    return cuda_device(0)


def load(plan: Plan, **options: Any):
    memory = device().memory()
    memory.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes, plan.page_bytes)
    return device().load(plan, memory, **options)


def output(program, name: str = "out"):
    b = dict(program.plan.outputs)[name]
    columns, arenas = program.plan.buffers, program.plan.arenas
    return program.memory.read(arenas[columns.arena[b]].name, columns.offset[b], columns.shape[b], columns.dtype[b])


def step(program, value: float):
    program.feed("data", np.full(16, value, np.float32))
    program.run("step")
    return output(program).tolist()


def without(plan: Plan, instruction: int) -> Plan:
    """The plan with one instruction left out."""
    shorter = copy.deepcopy(plan)
    for column in vars(shorter.instructions).values():
        del column[instruction]
    return replace(shorter, ranges={"step": (0, len(shorter))})


def line(length: int, floats: int = 16) -> Plan:
    """data doubled `length` times, between two places."""
    m = Maker()
    values = [m.value("data", floats, buffer_class="input")]
    places = [m.value("even", floats), m.value("odd", floats)]
    for k in range(length):
        name = "out" if k == length - 1 else f"x{k}"
        values.append(m.value(name, floats, at=m.buffers.offset[places[k % 2]]))
        m.run("t_unary", (values[-2],), (values[-1],))
    return m.plan(inputs=(values[0],), outputs=(values[-1],))
