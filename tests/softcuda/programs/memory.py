"""Device and pinned memory, copies, fills, counters. Run by child.py."""
from __future__ import annotations

import ctypes
from typing import Any


def describe_device(gpu: Any) -> Any:
    """Name, compute capability, free and total memory."""
    device = gpu.drv.Device(0)
    return [device.name(), device.compute_capability(), *gpu.drv.mem_get_info(), device.total_memory()]


def fill_memory_and_recover(gpu: Any) -> Any:
    """Allocate 1 MiB pieces until there is no room, free one, and allocate once more."""
    pieces = []
    try:
        while True:
            pieces.append(gpu.drv.mem_alloc(1 << 20))
    except gpu.drv.MemoryError:
        count, free = len(pieces), gpu.drv.mem_get_info()[0]
    pieces.pop().free()
    pieces.append(gpu.drv.mem_alloc(1 << 20))
    gpu.drv.memset_d8(pieces[-1], 1, 1 << 20)
    return [count, free, int(gpu.read(pieces[-1], 1 << 20, "uint8").sum())]


def allocate_exactly(gpu: Any, bytes_wanted: int) -> Any:
    """One allocation of that size; the bytes that are free then."""
    memory = gpu.drv.mem_alloc(bytes_wanted)
    free = gpu.drv.mem_get_info()[0]
    memory.free()
    return free


def reuse_address(gpu: Any) -> Any:
    """Is the address of a freed block given out again? And is it poison again?"""
    first = gpu.zeros(1024)
    address = int(first)
    first.free()
    second = gpu.drv.mem_alloc(4096)
    return [int(second) == address, int(gpu.np.isnan(gpu.read(second, 1024)).sum())]


def round_trip(gpu: Any) -> Any:
    """Every kind of copy and fill, pinned and pageable."""
    np, drv = gpu.np, gpu.drv
    data = np.arange(1000, dtype="float32")
    a, b, stream = drv.mem_alloc(4000), drv.mem_alloc(4000), gpu.stream()
    back = [np.empty(1000, "float32"), gpu.pinned(np.zeros(1000))]
    drv.memcpy_htod_async(a, data, stream)
    drv.memcpy_dtod_async(b, a, 4000, stream)
    drv.memcpy_dtoh_async(back[0], b, stream)
    drv.memcpy_dtoh_async(back[1], b, stream)
    stream.synchronize()
    right = [bool((got == data).all()) for got in back]
    drv.memset_d32(b, 0x3F800000, 1000)
    drv.memset_d16(a, 7, 2000)
    return [*right, gpu.read(b, 1000).sum(), gpu.read(a, 2000, "uint16").sum()]


def pageable_source_is_staged(gpu: Any) -> Any:
    """The host may overwrite a pageable source once the call has returned. The number of wrong elements."""
    data, memory, stream = gpu.np.ones(1000, "float32"), gpu.drv.mem_alloc(4000), gpu.stream()
    gpu.drv.memcpy_htod_async(memory, data, stream)
    data[...] = 7
    return int((gpu.read(memory, 1000) != 1).sum())


def pageable_target_is_complete(gpu: Any) -> Any:
    """A copy to pageable memory is complete when the call returns. The number of wrong elements."""
    memory, stream, back = gpu.drv.mem_alloc(4000), gpu.stream(), gpu.np.zeros(1000, "float32")
    gpu.drv.memset_d32_async(memory, 0x3F800000, 1000, stream)
    gpu.drv.memcpy_dtoh_async(back, memory, stream)
    return int((back != 1).sum())


def poison_part(gpu: Any) -> Any:
    """An arena's part that was given back is poison again; its neighbours are not."""
    arena = gpu.zeros(300)
    gpu.library.softcuda_poison(int(arena) + 400, 400)
    nan = gpu.np.isnan(gpu.read(arena, 300))
    return [int(nan.sum()), bool(nan[100:200].all())]


def primary_context(gpu: Any) -> Any:
    """An allocation of the primary context is freed with its last reference, others are not. Bytes live."""
    own = gpu.zeros(100)
    primary = gpu.drv.Device(0).retain_primary_context()
    primary.push()
    address = ctypes.c_uint64()
    gpu.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000))
    live = [gpu.counter("bytes_live")]
    gpu.drv.Context.pop()
    primary.detach()
    live.append(gpu.counter("bytes_live"))
    return [*live, float(gpu.read(own, 100).sum())]


def count_things(gpu: Any) -> Any:
    """Some of everything, and it is all freed; what was live before that."""
    x, y = gpu.zeros(100), gpu.zeros(100)
    stream = gpu.stream()
    gpu.drv.memcpy_htod_async(x, gpu.np.ones(100, "float32"), stream)
    for _ in range(3):
        gpu.launch("axpy", "fPPi", (1.0, x, y, 100), block=128, stream=stream)
    gpu.drv.memcpy_dtoh_async(gpu.np.empty(100, "float32"), y, stream)
    live = gpu.counter("bytes_live")
    x.free()
    y.free()
    return live
