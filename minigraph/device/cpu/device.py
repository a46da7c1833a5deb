"""The CPU as a device: what makes its arenas and loads plans over them."""
from __future__ import annotations

import os

from ...base import MXNetError
from ...plan.plan import Kind, Plan
from ..device import Memory
from .memory import CpuMemory
from .program import CpuProgram, PoisonedCpuProgram
from .streamed import StreamedCpuProgram
from .streams import Delay


class CpuDevice:
    """The device `cpu`.

    `disk` is the folder of swap files, by default that for temporary files: name another where that one lies in memory.
    `delay` makes programs of several streams sleep at random, so that a race in a plan shows.
    """

    name = "cpu"
    algorithms = None

    def __init__(self, disk: str | os.PathLike[str] | None = None, delay: Delay | None = None) -> None:
        self.disk = disk
        self.delay = delay

    def memory(self) -> CpuMemory:
        """Empty arenas for a new group of programs."""
        return CpuMemory(self.disk)

    def load(self, plan: Plan, memory: Memory, poison: bool = False, graph: bool = False) -> CpuProgram:
        """Prepare a plan over arenas that are large enough for it.

        OutOfMemoryError when there is no room for what it swaps out.
        """
        if graph:
            raise MXNetError("the CPU has no graphs to replay; use graph=True on a GPU")
        if not isinstance(memory, CpuMemory):
            raise MXNetError(f"a CPU program needs arenas of the CPU device, got {type(memory).__name__}")
        if any(kind != Kind.COMPUTE for kind in plan.instructions.kind):
            return StreamedCpuProgram(plan, memory, poison, self.delay)
        return (PoisonedCpuProgram if poison else CpuProgram)(plan, memory)

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back: a run ends when its last stream does."""
