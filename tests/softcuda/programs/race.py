"""Ordered work about which the race detector must be silent, and its unordered twin. Run by child.py."""
from __future__ import annotations

from typing import Any


def disjoint_regions(gpu: Any, declared: bool) -> Any:
    """Two streams write the two halves of one allocation."""
    n = 64
    x, arena = gpu.zeros(n), gpu.zeros(2 * n)
    halves = (int(arena), int(arena) + 4 * n)
    for address in halves:
        if declared:
            gpu.library.softcuda_region(address, 4 * n)
    for address in halves:
        gpu.launch("axpy", "fPPi", (1.0, x, address, n), block=n, stream=gpu.stream())
    gpu.context.synchronize()


def declare_region_again(gpu: Any) -> Any:
    """A later plan cuts the arena elsewhere: the middle is declared anew, the rest of the old ones stays."""
    n = 64
    x, arena, streams = gpu.zeros(n), gpu.zeros(4 * n), [gpu.stream() for _ in range(3)]
    base, quarter = int(arena), 4 * n
    gpu.library.softcuda_region(base, 2 * quarter)
    gpu.library.softcuda_region(base + 2 * quarter, 2 * quarter)
    gpu.library.softcuda_region(base + quarter, 2 * quarter)
    for stream, address in zip(streams, (base, base + quarter, base + 3 * quarter), strict=True):
        gpu.launch("axpy", "fPPi", (1.0, x, address, n), block=n, stream=stream)
    gpu.context.synchronize()


def concurrent_reads(gpu: Any) -> Any:
    """Two streams read one buffer through `const float *`."""
    n = 64
    x, y, z = gpu.zeros(n), gpu.zeros(n), gpu.zeros(n)
    for target in (y, z):
        gpu.launch("axpy", "fPPi", (1.0, x, target, n), block=n, stream=gpu.stream())
    gpu.context.synchronize()


def ordered_by_host(gpu: Any, how: str) -> Any:
    """Stream b writes what stream a wrote, after the host has waited for a in one of some ways, or not."""
    n = 64
    x, y, a, b, event = gpu.zeros(n), gpu.zeros(n), gpu.stream(), gpu.stream(), gpu.event()
    gpu.launch("axpy", "fPPi", (1.0, x, y, n), block=n, stream=a)
    event.record(a)
    if how == "stream":
        a.synchronize()
    elif how == "event":
        event.synchronize()
    elif how == "query":
        while not a.is_done():
            pass
    elif how == "context":
        gpu.context.synchronize()
    gpu.launch("axpy", "fPPi", (1.0, x, y, n), block=n, stream=b)
    gpu.context.synchronize()


def pinned_buffer_shared_by_copies(gpu: Any, ordered: bool) -> Any:
    """One pinned buffer is the target of a copy on a and the source of one on b."""
    n = 64
    x, y, host = gpu.zeros(n), gpu.zeros(n), gpu.pinned([0.0] * n)
    a, b, done = gpu.stream(), gpu.stream(), gpu.event()
    gpu.drv.memcpy_dtoh_async(host, x, a)
    done.record(a)
    if ordered:
        b.wait_for_event(done)
    gpu.drv.memcpy_htod_async(y, host, b)
    gpu.context.synchronize()


def touch_after_sync(gpu: Any) -> Any:
    """The host reads a pinned target after it has waited for the copy, and writes a source before it."""
    n = 64
    x, host, a = gpu.zeros(n), gpu.pinned([0.0] * n), gpu.stream()
    gpu.library.softcuda_touch(host.ctypes.data, host.nbytes, 1)
    gpu.drv.memcpy_htod_async(x, host, a)
    gpu.drv.memcpy_dtoh_async(host, x, a)
    a.synchronize()
    gpu.library.softcuda_touch(host.ctypes.data, host.nbytes, 0)
