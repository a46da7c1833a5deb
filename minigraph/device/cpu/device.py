"""The CPU as a device: what makes its arenas and loads plans over them."""
from __future__ import annotations

import os

from ...base import MXNetError
from ...ops.choices import AlgorithmChoices, FusionChoices, LayoutChoices
from ...plan.plan import Kind, Plan
from ..device import Memory
from .memory import CpuMemory
from .native import call
from .native.bind import is_native
from .native.families import import_families
from .native.library import Library, find_library
from .pages import least_page_bytes
from .program import CpuProgram, PoisonedCpuProgram
from .streamed import StreamedCpuProgram
from .streams import Delay


class CpuDevice:
    """The device `cpu`.

    `disk` is the folder of swap files, by default that for temporary files: name another where that one lies in memory.
    `delay` makes programs of several streams sleep at random, so that a race in a plan shows. `kernels` is "auto" (the
    C++ kernels for the newest instruction set that this CPU has), a level such as "x86-64-v3", or "numpy"; None is
    what the environment says (native/settings.py), else "auto". What has no kernel is computed in NumPy.
    """

    name = "cpu"
    host_caches = True

    def __init__(self, disk: str | os.PathLike[str] | None = None, delay: Delay | None = None,
                 kernels: str | None = None) -> None:
        self.disk = disk
        self.delay = delay
        self.kernels = kernels

    @property
    def library(self) -> Library | None:
        """The kernels, loaded when first asked for; None where NumPy computes everything."""
        library = find_library(self.kernels)
        if library is not None:
            import_families()
        return library

    @property
    def algorithms(self) -> AlgorithmChoices | None:
        """The ways to compute an op by kernels or in NumPy, fastest first."""
        return None if self.library is None else call.algorithms

    @property
    def fuses(self) -> FusionChoices | None:
        """Which ops that do what two did have kernels where the two had; all, where NumPy computes everything."""
        return None if self.library is None else call.fuses

    @property
    def layouts(self) -> LayoutChoices | None:
        """Combinations of layouts in which an op takes its operands, best first; all of them plain is always one."""
        return None if self.library is None else call.layouts

    @property
    def page_bytes(self) -> int:
        """Those of the system, which maps them at further addresses on Linux alone."""
        return least_page_bytes()

    def memory(self) -> CpuMemory:
        """Empty arenas for a new group of programs."""
        return CpuMemory(self.disk)

    def unplanned_bytes(self, plan: Plan) -> int:
        """Bytes that running a plan takes beside its arenas, at most: stacks and scratch of the kernels' threads.

        They depend on the number of threads, not on the plan, so no budget covers them. NumPy takes up to 64 KiB more.
        """
        library = self.library
        if library is None or not any(is_native(plan, i) for i in range(len(plan))):
            return 0
        return library.threads * library.thread_bytes

    def load(self, plan: Plan, memory: Memory, poison: bool = False, graph: bool = False) -> CpuProgram:
        """Prepare a plan over arenas that are large enough for it.

        OutOfMemoryError when there is no room for what it swaps out; MXNetError when its mapped arenas show pages that
        the transient one does not have.
        """
        if graph:
            raise MXNetError("the CPU has no graphs to replay; use graph=True on a GPU")
        if not isinstance(memory, CpuMemory):
            raise MXNetError(f"a CPU program needs arenas of the CPU device, got {type(memory).__name__}")
        if any(kind != Kind.COMPUTE for kind in plan.instructions.kind):
            return StreamedCpuProgram(plan, memory, self.library, poison, self.delay)
        return (PoisonedCpuProgram if poison else CpuProgram)(plan, memory, self.library)

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back: a run ends when its last stream does."""
