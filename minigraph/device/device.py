"""What every device is: it makes arenas, and loads plans over them into programs that are ready to run.

All lookups, packing of arguments and creation of library objects happen in `load`; the loop that runs a step does
nothing but call what is ready. An executor uses its device from one thread.
"""
from __future__ import annotations

from typing import Protocol

import numpy as np

from ..base import Shape
from ..plan.plan import Plan


class Memory(Protocol):
    """The persistent and the transient arena that the programs of one group share."""

    def reserve(self, persistent_bytes: int, transient_bytes: int) -> None:
        """Make both arenas at least this large.

        Persistent contents are kept and new persistent bytes are zero. OutOfMemoryError when there is no room.
        """
        ...

    def read(self, arena: str, offset: int, shape: Shape, dtype: np.dtype) -> np.ndarray:
        """The tensor at a place of an arena, perhaps as a live view: not to be written to, nor kept past a run."""
        ...

    def write(self, arena: str, offset: int, value: np.ndarray) -> None:
        """Copy an array to a place of an arena."""
        ...

    def close(self) -> None:
        """Give the arenas back."""
        ...


class Program(Protocol):
    """A plan loaded on a device."""

    @property
    def plan(self) -> Plan:
        """The plan that was loaded."""
        ...

    def run(self, name: str) -> None:
        """Run one of the plan's ranges from beginning to end."""
        ...


class Device(Protocol):
    """A kind of machine that runs plans."""

    @property
    def name(self) -> str:
        """The device's name in messages: "cpu", "cuda", "null"."""
        ...

    def memory(self) -> Memory:
        """Empty arenas for a new group of programs."""
        ...

    def load(self, plan: Plan, memory: Memory, poison: bool = False) -> Program:
        """Prepare a plan over arenas that are large enough for it.

        `poison` asks for runs in which all bytes that nobody may read hold NaN, so that a wrong read shows.
        """
        ...

    def synchronize(self) -> None:
        """Return when everything that was started has ended, on all streams."""
        ...
