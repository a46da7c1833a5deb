"""A plan on the GPU: loading makes every call ready, and a run walks the list."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base import MXNetError, align
from ...plan.plan import Plan
from ..device import Before, Clock, nothing
from .checking import IdChecks
from .loading import Loading, PoisonedLoading
from .memory import Binding, CudaMemory
from .modules import Call

if TYPE_CHECKING:
    from .device import CudaDevice


class CudaProgram:
    """A plan bound to arenas, and bound again by itself when an arena has moved.

    A run returns as soon as everything is queued; reading an output waits for it. With `graph=True` each range is
    captured at its first run and replayed as one CUDA graph. With `poison=True` a run waits for its end where it reads
    ids, and raises for those out of range. Device memory that the program takes beyond its plan: the staging area of
    its inputs, and with poison 16 bytes for each check of ids.
    """

    def __init__(self, plan: Plan, memory: CudaMemory, poison: bool = False, graph: bool = False) -> None:
        self.plan = plan
        self.memory = memory
        self._device: CudaDevice = memory.device
        self._graph = graph
        self._holdings = self._device.holdings(self)
        self._events: dict[Any, Any] = {}
        self._ready: dict[str, list[Call]] = {}
        self._binding: Binding | None = None
        self._staged_at, self._staged_bytes = _staging_layout(plan)
        with self._device.context:
            self._checks = IdChecks(plan, memory, self._holdings) if poison else None
            self._bind()

    def feed(self, name: str, value: np.ndarray) -> None:
        """Send an input of the next run on its way, while an earlier run may still be at work.

        `value` is copied before the call returns; it has the input's shape, and is cast to its dtype.
        """
        buffer = self.plan.inputs[name]
        columns = self.plan.buffers
        if value.shape != columns.shape[buffer]:
            raise MXNetError(f"input {name} has shape {columns.shape[buffer]}, and was given {value.shape}")
        array = np.ascontiguousarray(value, columns.dtype[buffer])
        if array.nbytes:
            with self._device.context:
                self.memory.staging.put(self, self._staged_bytes, self._staged_at[buffer], array)

    def run(self, name: str) -> None:
        """Queue one of the plan's ranges; MXNetError when there is no such range.

        When a call fails or is broken off, the group's streams are drained before the error goes on.
        """
        if name not in self.plan.ranges:
            raise MXNetError(f"the plan of `{self.plan.program}` has no range {name!r}; it has "
                             f"{', '.join(self.plan.ranges)}")
        with self._running():
            for function, arguments in self._ready.get(name) or self._make_ready(name):
                function(*arguments)

    def times(self, clock: Clock, before: Before = nothing) -> list[float]:
        """Run the whole plan once, each instruction to its end before the next; the seconds of each by `clock`, from
        its launch until the device is idle again; `before` is called with its number before it."""
        with self._running() as binding:
            loading = self._loading(binding)
            return [self._seconds(i, loading, clock, before) for i in range(len(self.plan))]

    @contextmanager
    def _running(self) -> Iterator[Binding]:
        """Bound to the memory as it is now, with the inputs in it; drains the group's streams when a call fails."""
        with self._device.context:
            try:
                if self._binding is None or self._binding.generation != self.memory.generation:
                    self._bind()
                assert self._binding is not None
                self._take_inputs(self._binding)
                yield self._binding
                if self._checks is not None:
                    self._checks.check()
            except BaseException:
                self.memory.drain()
                raise
            self.memory.ran(self.plan, self._binding)

    def _seconds(self, i: int, loading: Loading, clock: Clock, before: Before) -> float:
        calls = loading.calls(i, i + 1)
        before(i)
        self._device.synchronize()
        start = clock()
        for function, arguments in calls:
            function(*arguments)
        self._device.synchronize()
        return clock() - start

    def _take_inputs(self, binding: Binding) -> None:
        targets = {at: binding.addresses[buffer] for buffer, at in self._staged_at.items()}
        for function, arguments in self.memory.staging.take(self, targets):
            function(*arguments)

    def _bind(self) -> None:
        """Look everything up. Done again in full when an arena has moved, for every address is packed in the calls."""
        self._binding = self.memory.bind(self.plan)
        self._ready.clear()
        loading = self._loading(self._binding)
        self._calls = {name: loading.calls(first, last) for name, (first, last) in self.plan.ranges.items()}
        if not self._graph:
            self._ready = dict(self._calls)

    def _loading(self, binding: Binding) -> Loading:
        parts = self.plan, self.memory, binding, self._holdings, self._events
        return Loading(*parts) if self._checks is None else PoisonedLoading(*parts, self._checks)

    def _make_ready(self, name: str) -> list[Call]:
        """Capture a range as a graph; an empty range has none."""
        calls = self._calls[name]
        if self._graph and calls:
            stream = self.memory.streams[0]
            executable = self._device.graphs.capture(calls, stream)
            self._holdings.add(self._device.dead_graphs.append, executable)
            calls = self._ready[name] = [self._device.graphs.replay(executable, stream)]
        return calls


def _staging_layout(plan: Plan) -> tuple[dict[int, int], int]:
    """The offset of each input buffer in a staged batch, and the bytes of all."""
    offsets, total = {}, 0
    for buffer in plan.inputs.values():
        offsets[buffer] = total
        total += align(plan.buffers.bytes[buffer])
    return offsets, total
