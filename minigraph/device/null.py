"""The null device: verifies and simulates a plan and computes nothing; for machines that one does not have."""
from __future__ import annotations

import numpy as np

from ..base import MXNetError, OutOfMemoryError, Shape, format_bytes
from ..memory.machine import Machine, get_machine
from ..plan.plan import Plan
from ..plan.simulate import Simulation, simulate
from ..plan.verify import Verification, verify
from .cuda import choices
from .device import Before, Clock, Memory, nothing


class NullMemory:
    """Arenas of which only the sizes exist: whatever is read is zero, and what is written is forgotten."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.persistent_bytes = 0
        self.transient_bytes = 0

    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Note the sizes; OutOfMemoryError when together they exceed the machine's memory."""
        persistent = max(self.persistent_bytes, persistent_bytes)
        transient = max(self.transient_bytes, transient_bytes)
        _check_room(self.machine, "these programs take", persistent + transient)
        self.persistent_bytes, self.transient_bytes = persistent, transient

    def reserve_space(self, name: str, space: str, nbytes: int) -> None:
        """Memory outside the device has no bounds here."""

    def forget(self) -> None:
        """Take the sizes back."""
        self.persistent_bytes = self.transient_bytes = 0

    def clear(self, arena: str, offset: int, nbytes: int) -> None:
        """Nothing is kept."""

    def read(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """Zeros."""
        return np.zeros(shape, dtype)

    def write(self, arena: str, offset: int, value: np.ndarray) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Take the sizes back."""
        self.persistent_bytes = self.transient_bytes = 0


class NullProgram:
    """A plan and its simulated time, by range; `seconds` is the simulated time of all runs so far."""

    def __init__(self, plan: Plan, machine: Machine, verification: Verification | None) -> None:
        self.plan = plan
        self.machine = machine
        self.verification = verification
        self.simulations: dict[str, Simulation] = {name: simulate(plan, machine, name) for name in plan.ranges}
        self.seconds = 0.0

    def feed(self, name: str, value: np.ndarray) -> None:
        """Nothing is kept."""

    def run(self, name: str) -> None:
        """Let a range's simulated time pass; MXNetError when there is no such range."""
        if name not in self.simulations:
            raise MXNetError(f"plan {self.plan.program} has no range {name!r}; it has {', '.join(self.simulations)}")
        self.seconds += self.simulations[name].seconds

    def times(self, clock: Clock, before: Before = nothing) -> list[float]:
        """The simulated seconds of each instruction, whatever the clock."""
        whole = simulate(self.plan, self.machine)
        seconds: list[float] = (whole.end - whole.start).tolist()
        return seconds


class NullDevice:
    """A machine as a model: it loads whatever fits its memory, and plans for it have the kernels of its kind.

    `machine` is a `Machine` or the name of one that ships with the project; `verify=False` skips the verifier.
    """

    name = "null"
    layouts = None
    host_caches = False

    def __init__(self, machine: Machine | str, verify: bool = True) -> None:
        self.machine = get_machine(machine) if isinstance(machine, str) else machine
        self.verifies = verify
        on_gpu = self.machine.device == "gpu"
        self.algorithms = choices.algorithms if on_gpu else None
        self.fuses = choices.fuses if on_gpu else None
        self.page_bytes = choices.PAGE_BYTES if on_gpu else 0

    def memory(self) -> NullMemory:
        """Empty arenas for a new group of programs."""
        return NullMemory(self.machine)

    def load(self, plan: Plan, memory: Memory | None = None, poison: bool = False,
             graph: bool = False) -> NullProgram:
        """Verify and simulate a plan; OutOfMemoryError when its device arenas exceed the machine's memory.

        A plan can be loaded without arenas; there is nothing to poison or to record.
        """
        _check_room(self.machine, f"plan {plan.program} takes", plan.planned_bytes)
        return NullProgram(plan, self.machine, verify(plan) if self.verifies else None)

    def synchronize(self) -> None:
        """Nothing ever runs behind the caller's back."""


def _check_room(machine: Machine, what: str, asked: int) -> None:
    if asked > machine.memory_bytes:
        raise OutOfMemoryError(f"{what} {format_bytes(asked)} of device memory, but {machine.name} has "
                               f"{format_bytes(machine.memory_bytes)}; plan under a budget",
                               asked, machine.memory_bytes)
