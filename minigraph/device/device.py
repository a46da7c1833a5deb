"""What every device is: it makes arenas, and loads plans over them into programs that are ready to run.

All lookups, packing of arguments and creation of library objects happen in `load`; the loop that runs a step does
nothing but call what is ready. An executor uses its device from one thread.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..base import Shape
from ..ops.choices import AlgorithmChoices, FusionChoices, LayoutChoices
from ..plan.plan import Plan

Clock = Callable[[], float]
"""Seconds from some moment on."""


Before = Callable[[int], object]
"""Called with an instruction's number."""


def nothing(i: int) -> None:
    """What is done before an instruction where nothing is to be done."""


class Memory(Protocol):
    """The persistent and the transient arena that the programs of one group share.

    Arenas of other spaces ("host", "file"), to which plans swap, and mapped ones are made by `Device.load`, from what
    the plan takes; the one that is home to parameters and states by `reserve_space`.
    """

    def reserve(self, persistent_bytes: int, transient_bytes: int, page_bytes: int = 0) -> None:
        """Make both arenas at least this large; with `page_bytes` the transient one of such pages as can be mapped.

        Persistent contents are kept and new persistent bytes are zero. Mapped arenas show the new transient one.
        OutOfMemoryError when there is no room; MXNetError where the device cannot map such pages.
        """
        ...

    def reserve_space(self, name: str, space: str, nbytes: int) -> None:
        """Make an arena of the space "host" or "file" at least this large; contents are kept and new bytes are zero.

        OutOfMemoryError when there is no room.
        """
        ...

    def forget(self) -> None:
        """Give all arenas back with what they hold, and begin anew; programs loaded before must not run any more."""
        ...

    def clear(self, arena: str, offset: int, nbytes: int) -> None:
        """Make bytes of an arena zero, where a tensor begins that is not the one that lay there before."""
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

    def feed(self, name: str, value: np.ndarray) -> None:
        """Give an input of the plan its value for the next run; `value` is copied before the call returns."""
        ...

    def run(self, name: str) -> None:
        """Run one of the plan's ranges from beginning to end; what it writes may be there only when it is read."""
        ...

    def times(self, clock: Clock, before: Before = nothing) -> list[float]:
        """Run the whole plan once, each instruction to its end before the next; the seconds of each by `clock`.

        Before each instruction, and outside of what is timed, `before` is called with its number.
        """
        ...


class Device(Protocol):
    """A kind of machine that runs plans."""

    @property
    def name(self) -> str:
        """The device's name in messages: "cpu", "cuda", "null"."""
        ...

    @property
    def host_caches(self) -> bool:
        """Whether the device's caches are those of the calling thread, so that what it touches is in them."""
        ...

    @property
    def algorithms(self) -> AlgorithmChoices | None:
        """The device's own ways to compute an op, with its own workspaces; None: those that the op declares."""
        ...

    @property
    def layouts(self) -> LayoutChoices | None:
        """The layouts in which the device takes operands; None: plain ones alone."""
        ...

    @property
    def fuses(self) -> FusionChoices | None:
        """Which ops that do what two did the device has a form for; None: all."""
        ...

    @property
    def page_bytes(self) -> int:
        """Bytes of the least pages of the transient arena that a mapped arena can show; 0: the device maps none."""
        ...

    def memory(self) -> Memory:
        """Empty arenas for a new group of programs."""
        ...

    def load(self, plan: Plan, memory: Memory, poison: bool = False, graph: bool = False) -> Program:
        """Prepare a plan over arenas that are large enough for it.

        Room for what the plan swaps out is made here too: OutOfMemoryError when there is none. `poison`
        asks for runs in which all bytes that nobody may read hold NaN, so that a wrong read shows, and which raise for
        an id out of range by their end, whatever the device does with one otherwise. `graph` asks for
        runs as one recorded graph; MXNetError from a device that has none.
        """
        ...

    def synchronize(self) -> None:
        """Return when everything that was started has ended, on all streams."""
        ...
