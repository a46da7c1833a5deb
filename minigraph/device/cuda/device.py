"""The CUDA device: the context, the kernels, and the pools that all groups and programs of one GPU share."""
from __future__ import annotations

import contextlib
import threading
from collections import deque

import numpy as np

from ...base import MXNetError
from ...plan.plan import Plan
from ..device import Memory
from . import choices
from .allocator import Pool
from .context import PrimaryContext
from .driver import Driver, get_driver
from .families import import_families
from .graph import Graphs
from .memory import CudaMemory, SeparateMemory
from .modules import FatbinImages, Images, Kernels, SoftwareImages
from .paged import PagedArena
from .program import CudaProgram
from .resources import DeviceSource, HandlePool, Holdings, PinnedPool
from .virtual import VirtualMemory

NON_BLOCKING = 1
"""Stream flag: not ordered with the NULL stream."""


class CudaDevice:
    """The device `cuda`. There is one object for each GPU of a process: get it from `cuda_device`."""

    name = "cuda"
    algorithms = staticmethod(choices.algorithms)
    layouts = None
    host_caches = False
    fuses = staticmethod(choices.fuses)

    def __init__(self, driver: Driver, index: int) -> None:
        import_families()
        self.driver = driver
        self.index = index
        self.context = PrimaryContext(driver, index)
        cuda, settings = driver.cuda, driver.settings
        self.pool = Pool(DeviceSource(driver, self._settle), settings.capacity_bytes, settings.pooled)
        self.pinned = PinnedPool(driver, self._settle)
        self.streams = HandlePool(driver, lambda: cuda.Stream(NON_BLOCKING))
        self.events = HandlePool(driver, lambda: cuda.Event(cuda.event_flags.DISABLE_TIMING))
        self.graphs = Graphs(driver)
        self.dead_graphs: deque[int] = deque()
        with self.context:
            self.kernels = Kernels(driver, self._images())
            self.virtual = VirtualMemory(driver, index)
        driver.at_exit(self._shut_down)

    @property
    def page_bytes(self) -> int:
        """Bytes of the pages of which a transient arena can be made; 0 where the GPU maps none, or no pool is asked
        for: then every buffer has an allocation of its own."""
        return self.virtual.page_bytes if self.driver.settings.pooled else 0

    def paged_arena(self) -> PagedArena:
        """An empty arena of pages, with addresses for all memory of the device."""
        return PagedArena(self.pool, self.virtual, self.context.total_bytes)

    def memory(self) -> CudaMemory:
        """Empty arenas for a new group of programs."""
        return (CudaMemory if self.driver.settings.pooled else SeparateMemory)(self)

    def load(self, plan: Plan, memory: Memory, poison: bool = False, graph: bool = False) -> CudaProgram:
        """Prepare a plan over arenas that are large enough for it."""
        if not isinstance(memory, CudaMemory) or memory.device is not self:
            raise MXNetError(f"a program of {self.context.device_name} needs arenas of that device, got "
                             f"{type(memory).__name__}")
        self._destroy_dead_graphs()
        return CudaProgram(plan, memory, poison, graph)

    def synchronize(self) -> None:
        """Return when everything that was started has ended, on all streams; nothing to do after a fork."""
        if self.driver.unusable is None:
            self.context.synchronize()

    def trim(self) -> int:
        """Give back what no executor uses of device and page-locked memory; the bytes of device memory given back."""
        with self.context:
            self._destroy_dead_graphs()
            self.pinned.trim()
            return self.pool.trim()

    def holdings(self, owner: object) -> Holdings:
        """What `owner` holds of the pools; it goes back when the owner dies."""
        return Holdings(owner, self.pool, self.pinned, self.streams, self.events)

    def touch(self, array: np.ndarray, nbytes: int) -> None:
        """For the race detector: the host is about to write page-locked memory."""
        if self.driver.touch is not None:
            self.driver.touch(array.ctypes.data, nbytes, 1)

    def _images(self) -> Images:
        if self.driver.is_software:
            return SoftwareImages(self.driver)
        return FatbinImages.installed(self.driver, self.context)

    def _settle(self) -> None:
        self.driver.cuda.Context.synchronize()

    def _destroy_dead_graphs(self) -> None:
        while self.dead_graphs:
            self.graphs.destroy(self.dead_graphs.popleft())

    def _shut_down(self) -> None:
        """At exit: free the device's memory if it still answers; the context's end takes the rest."""
        with contextlib.suppress(Exception):
            with self.context:
                self._settle()
                self.pinned.trim()
                self.pool.release_all()
                self.virtual.free_all()
        with contextlib.suppress(Exception):
            self.context.detach()


_lock = threading.Lock()
_devices: dict[int, CudaDevice] = {}


def cuda_device(index: int) -> CudaDevice:
    """The GPU of that number; MXNetError with the reason when it cannot be used."""
    with _lock:
        device = _devices.get(index)
        if device is None:
            driver = get_driver()
            driver.check()
            if index >= driver.device_count:
                raise MXNetError(f"there is no gpu({index}): this machine has {driver.device_count} "
                                 f"(gpu(0){f' to gpu({driver.device_count - 1})' if driver.device_count > 1 else ''})")
            device = _devices[index] = CudaDevice(driver, index)
        return device
