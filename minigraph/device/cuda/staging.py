"""Double-buffered inputs: the next batch travels to the device while a step still reads this one.

A batch goes from the caller's arrays into page-locked memory, and from there, on a stream of its own, into a staging
area of the device. The next run copies it from there into the plan's input buffers before its first instruction.
Events keep the three apart: the upload of a batch waits until the one before has left the staging area, the run waits
for the upload, and the host waits before it writes page-locked memory that still travels. The staging area is as large
as the inputs of one run, and comes on top of the planned bytes.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .allocator import Allocation
from .modules import Call

if TYPE_CHECKING:
    from .device import CudaDevice
    from .resources import Holdings

SLOTS = 2
"""Page-locked copies of a batch: one travels while the host writes the other."""


class Staging:
    """The staging area of one group. `owner` is whoever stages a batch, and `offset` a place within the batch."""

    def __init__(self, device: CudaDevice, holdings: Holdings, compute: Any) -> None:
        self._device, self._holdings, self._compute = device, holdings, compute
        self.stream = holdings.stream()
        self._area = Allocation(0, 0, None)
        self._slots: list[tuple[np.ndarray, Any]] = []
        self._slot = 0
        self._left = holdings.event(compute)
        self._owner: object = None
        self._staged: dict[int, int] = {}

    @property
    def device_bytes(self) -> int:
        """Device memory of the staging area."""
        return self._area.nbytes

    def put(self, owner: object, total_bytes: int, offset: int, value: np.ndarray) -> None:
        """Send one input of the owner's next run, whose inputs take `total_bytes`, on its way."""
        if self._owner is not owner:
            self._begin(owner, total_bytes)
        elif offset in self._staged:
            self.stream.synchronize()  # fed twice: what travels must arrive before it is overwritten
        data = value.reshape(-1).view(np.uint8)
        pinned = self._slots[self._slot][0][offset:offset + data.nbytes]
        self._device.touch(pinned, data.nbytes)
        pinned[:] = data
        self._device.driver.cuda.memcpy_htod_async(self._area.address + offset, pinned, self.stream)
        self._staged[offset] = data.nbytes

    def take(self, owner: object, targets: dict[int, int]) -> list[Call]:
        """The calls that copy the owner's batch to where its inputs lie: `targets` gives an address for each offset.

        They are for the beginning of a run, on the compute stream. Without a batch there are none.
        """
        if self._owner is not owner:
            return []
        arrived = self._slots[self._slot][1]
        arrived.record(self.stream)
        copy = self._device.driver.cuda.memcpy_dtod_async
        calls: list[Call] = [(self._compute.wait_for_event, (arrived,))]
        calls += [(copy, (targets[offset], self._area.address + offset, nbytes, self._compute))
                  for offset, nbytes in self._staged.items()]
        calls.append((self._left.record, (self._compute,)))
        self._owner = None
        self._staged.clear()
        return calls

    def _begin(self, owner: object, total_bytes: int) -> None:
        """Start a batch; what another owner staged and did not run is dropped."""
        if self._area.nbytes < total_bytes:
            self._grow(total_bytes)
        if self._owner is None:
            self._slot = (self._slot + 1) % SLOTS
        else:
            self.stream.synchronize()
        self._slots[self._slot][1].synchronize()
        self.stream.wait_for_event(self._left)
        self._owner = owner
        self._staged.clear()

    def _grow(self, total_bytes: int) -> None:
        self.stream.synchronize()
        self._compute.synchronize()
        for thing in (self._area, *(array for array, _ in self._slots)):
            self._holdings.drop(thing)
        events = [event for _, event in self._slots] or [self._holdings.event(self.stream) for _ in range(SLOTS)]
        self._slots = [(self._holdings.pinned(total_bytes), event) for event in events]
        self._area = self._holdings.memory(total_bytes)
