"""Loading and running plans on the CPU. Binding does every look-up once; the loop of a step only calls what is ready.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base import MXNetError
from ...ops.op import Workspace
from ...ops.registry import get_op
from ...plan.plan import Kind, Plan
from ..device import Memory
from ..storages import storages_by_death
from .memory import CpuMemory

BUFFER_ELEMENTS = 2048
"""Elements of NumPy's hidden buffers for strided operands while a plan runs. They come on top of the planned bytes:
NumPy's own 8192 would take up to 200 KB for one ufunc call."""

Call = tuple[Callable[..., None], Any, list[np.ndarray], list[np.ndarray], Workspace]


class CpuDevice:
    """The device `cpu`."""

    name = "cpu"
    algorithms = None

    def memory(self) -> CpuMemory:
        """Empty arenas for a new group of programs."""
        return CpuMemory()

    def load(self, plan: Plan, memory: Memory, poison: bool = False, graph: bool = False) -> CpuProgram:
        """Prepare a plan over arenas that are large enough for it."""
        if graph:
            raise MXNetError("the CPU has no graphs to replay; use graph=True on a GPU")
        if not isinstance(memory, CpuMemory):
            raise MXNetError(f"a CPU program needs arenas of the CPU device, got {type(memory).__name__}")
        return (PoisonedCpuProgram if poison else CpuProgram)(plan, memory)

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back."""


class CpuProgram:
    """A plan bound to arenas; bound again by itself when an arena has moved."""

    def __init__(self, plan: Plan, memory: CpuMemory) -> None:
        self.plan = plan
        self.memory = memory
        self._generation = -1
        self._calls: list[Call] = []
        unsupported = {Kind(kind).name for kind in plan.instructions.kind} - {"COMPUTE"}
        if unsupported:
            raise MXNetError(f"the CPU device runs plans of one stream; this plan has {', '.join(sorted(unsupported))}")

    def feed(self, name: str, value: np.ndarray) -> None:
        """Give an input its value for the next run."""
        np.copyto(self.array(self.plan.inputs[name]), value)

    def run(self, name: str) -> None:
        """Run one of the plan's ranges."""
        if self._generation != self.memory.generation:
            self._bind()
        first, last = self.plan.ranges[name]
        before = np.setbufsize(BUFFER_ELEMENTS)
        try:
            with np.errstate(all="ignore"):
                self._run(first, last)
        finally:
            np.setbufsize(before)

    def array(self, buffer: int) -> np.ndarray:
        """A live array over a buffer."""
        columns = self.plan.buffers
        return self.memory.view(self.plan.arenas[columns.arena[buffer]].name, columns.offset[buffer],
                                columns.shape[buffer], columns.dtype[buffer])

    def _run(self, first: int, last: int) -> None:
        for compute, params, ins, outs, work in self._calls[first:last]:
            compute(params, ins, outs, work.reset())

    def _bind(self) -> None:
        code = self.plan.instructions
        arrays = [self.array(b) for b in range(len(self.plan.buffers))]
        nothing = Workspace(np.empty(0, np.uint8))
        self._calls = []
        for i in range(len(code)):
            ins = [_shape_only(arrays[b]) if k in code.unread[i] else arrays[b] for k, b in enumerate(code.reads[i])]
            work = nothing if code.workspace[i] < 0 else Workspace(arrays[code.workspace[i]])
            outs = [arrays[b] for b in code.writes[i]]
            self._calls.append((get_op(code.op[i]).compute, code.params[i], ins, outs, work))
        self._generation = self.memory.generation


class PoisonedCpuProgram(CpuProgram):
    """Runs a plan with NaN in all bytes that nobody may read: before the program, in outputs and scratch before each
    instruction, and in every storage after its last reader. A stale or missing read then shows in the results."""

    def _bind(self) -> None:
        super()._bind()
        self._dying = storages_by_death(self.plan)
        self._fresh = [[self.array(b) for b in self.plan.instructions.writes[i] if self.plan.buffers.shares[b] < 0]
                       for i in range(len(self.plan))]

    def _run(self, first: int, last: int) -> None:
        if first == 0:
            self._poison_unwritten()
        for i in range(first, last):
            compute, params, ins, outs, work = self._calls[i]
            for out in self._fresh[i]:
                poison(out)
            scratch = self.plan.instructions.workspace[i]
            if scratch >= 0:
                poison(self.array(scratch))
            compute(params, ins, outs, work.reset())
            for buffer in self._dying.get(i + 1, ()):
                poison(self.array(buffer))

    def _poison_unwritten(self) -> None:
        """Fill the transient arena, except for the inputs, which were written before.

        Bytes below the plan's own belong to the program before it, whose outputs may still be read.
        """
        inputs = {b: self.array(b).copy() for b in self.plan.inputs.values()}
        columns = self.plan.buffers
        own = min((offset for offset, arena in zip(columns.offset, columns.arena, strict=True)
                   if self.plan.arenas[arena].name == "transient"), default=0)
        poison(self.memory.arenas["transient"][own:])
        for buffer, value in inputs.items():
            np.copyto(self.array(buffer), value)


def poison(array: np.ndarray) -> None:
    """Fill with 0xFF bytes: NaN in every float type, -1 or the largest number in integers."""
    if array.size:
        array.reshape(-1).view(np.uint8).fill(0xFF)


def _shape_only(array: np.ndarray) -> np.ndarray:
    """An array of the shape and dtype without bytes of its own, for inputs that are read for their shape."""
    filler = np.full((), np.nan if array.dtype.kind == "f" else 0, dtype=array.dtype)
    return np.broadcast_to(filler, array.shape)


__all__: Sequence[str] = ("CpuDevice", "CpuProgram", "poison")
