"""One program of the tests in a process of its own, on the real PyCUDA and the software driver.

``python child.py DRIVER MODULE PROGRAMS FUNCTION JSON_ARGUMENTS`` loads the driver, then PyCUDA, makes a
context, loads the kernel module, calls ``FUNCTION(gpu, *arguments)`` of programs/PROGRAMS.py, and prints one
line of JSON: ``result``, or ``error`` as [type, text]; and the driver's ``counters``.
"""
from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

COUNTERS = (
    "allocations", "frees", "bytes_live", "bytes_peak", "reservations_live", "mappings_live", "pinned_allocations",
    "pinned_bytes_live", "launches", "dropped_launches", "copies", "memsets", "graph_launches", "bytes_to_device",
    "bytes_to_host", "races", "overruns",
)


class Gpu:
    """What a program gets: PyCUDA's driver module, a context, the kernels; short ways to the usual steps."""

    def __init__(self, driver_path: str, module_path: str) -> None:
        # Before pycuda: the dynamic linker then takes this library for its libcuda.so.1.
        self.library = ctypes.CDLL(driver_path, ctypes.RTLD_GLOBAL)
        self.library.softcuda_counter.restype = ctypes.c_uint64
        self.library.softcuda_message.restype = ctypes.c_char_p
        self.library.softcuda_region.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
        self.library.softcuda_poison.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
        self.library.softcuda_touch.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        import numpy
        import pycuda.driver

        self.np, self.drv, self.module_path = numpy, pycuda.driver, module_path
        self.drv.init()
        self.context = self.drv.Device(0).make_context()
        self.module = self.drv.module_from_file(module_path)

    def stream(self) -> Any:
        """A stream that is not ordered with the NULL stream."""
        return self.drv.Stream(1)

    def event(self) -> Any:
        """An event for ordering only."""
        return self.drv.Event(self.drv.event_flags.DISABLE_TIMING)

    def pinned(self, values: Any) -> Any:
        """A page-locked float32 copy of ``values``."""
        values = self.np.asarray(values, self.np.float32)
        array = self.drv.pagelocked_empty(values.shape, values.dtype)
        array[...] = values
        return array

    def zeros(self, count: int) -> Any:
        """Device memory of ``count`` float32 zeroes, ready."""
        memory = self.drv.mem_alloc(4 * count)
        self.drv.memset_d32(memory, 0, count)
        self.context.synchronize()
        return memory

    def launch(
        self, name: str, types: str, arguments: Sequence[Any], block: int | tuple[int, ...] = 1,
        grid: int | tuple[int, ...] = 1, stream: Any = None, shared: int = 0,
    ) -> None:
        """Launch a kernel; ``types`` are struct's characters of its parameters."""
        blocks = block if isinstance(block, tuple) else (block, 1, 1)
        grids = grid if isinstance(grid, tuple) else (grid, 1)
        kernel = self.module.get_function(name).prepare(types)
        kernel.prepared_async_call(grids, blocks, stream, *arguments, shared_size=shared)

    def read(self, memory: Any, count: int, dtype: str = "float32") -> Any:
        """``count`` numbers of device memory, after everything else has run."""
        self.context.synchronize()
        return self.drv.from_device(memory, count, self.np.dtype(dtype))

    def counter(self, name: str) -> int:
        """One of the driver's counters."""
        return int(self.library.softcuda_counter(name.encode()))


def main() -> None:
    """Run the program that the command line names."""
    driver_path, module_path, programs_name, function, arguments = sys.argv[1:]
    gpu = Gpu(driver_path, module_path)
    programs = importlib.import_module(f"programs.{programs_name}")
    outcome: dict[str, Any] = {"result": None, "error": None}
    try:
        outcome["result"] = getattr(programs, function)(gpu, *json.loads(arguments))
    except Exception as error:  # every failure is an outcome that the test judges
        outcome["error"] = [type(error).__name__, str(error)]
    outcome["counters"] = {name: gpu.counter(name) for name in COUNTERS}
    print(json.dumps(outcome, default=lambda value: value.tolist()), flush=True)
    os._exit(0)  # a context that died cannot be taken down in order


if __name__ == "__main__":
    main()
