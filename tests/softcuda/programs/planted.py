"""Programs with one planted bug each. The tests say how the driver shows it. Run by child.py."""
from __future__ import annotations

import ctypes
from typing import Any

TILE = (8, 8, 1)


def kernel_does_not_wait_for_copy(gpu: Any) -> Any:
    """A matmul of ones on stream b reads what stream a copies; nothing makes b wait. 32.0 is right."""
    n = 32
    ones, product = gpu.pinned(gpu.np.ones((n, n))), gpu.pinned(gpu.np.zeros((n, n)))
    x, y = gpu.drv.mem_alloc(ones.nbytes), gpu.drv.mem_alloc(ones.nbytes)
    a, b = gpu.stream(), gpu.stream()
    gpu.drv.memcpy_htod_async(x, ones, a)
    gpu.launch("matmul_8", "PPPiii", (x, x, y, n, n, n), block=TILE, grid=(4, 4), stream=b)
    gpu.drv.memcpy_dtoh_async(product, y, b)
    b.synchronize()
    wrong = int((product != n).sum())
    gpu.context.synchronize()
    return wrong


def pool_reuses_block_across_streams(gpu: Any) -> Any:
    """Stream b reads a block; the pool gives it out again, stream a writes it. The number of wrong sums."""
    n = 64
    first, second = gpu.pinned(gpu.np.ones(n)), gpu.pinned(gpu.np.full(n, 2))
    out = gpu.pinned(gpu.np.zeros(n))
    arena = gpu.zeros(2 * n)
    block, total = int(arena), int(arena) + 4 * n
    for address in (block, total):
        gpu.library.softcuda_region(address, 4 * n)
    a, b = gpu.stream(), gpu.stream()
    gpu.drv.memcpy_htod_async(block, first, b)
    gpu.launch("axpy", "fPPi", (1.0, block, total, n), block=n, stream=b)
    gpu.drv.memcpy_htod_async(block, second, a)
    gpu.drv.memcpy_dtoh_async(out, total, b)
    gpu.context.synchronize()
    return int((out != 1).sum())


def pinned_source_overwritten(gpu: Any) -> Any:
    """The host overwrites a pinned buffer while its copy is in flight. The number of wrong elements."""
    host, back = gpu.pinned(gpu.np.ones(64)), gpu.pinned(gpu.np.zeros(64))
    memory, a = gpu.drv.mem_alloc(host.nbytes), gpu.stream()
    gpu.drv.memcpy_htod_async(memory, host, a)
    gpu.library.softcuda_touch(host.ctypes.data, host.nbytes, 1)
    host[...] = 7
    gpu.drv.memcpy_dtoh_async(back, memory, a)
    a.synchronize()
    return int((back != 1).sum())


def pinned_target_read_before_sync(gpu: Any) -> Any:
    """The host reads a pinned buffer before the copy into it is done. 5.0 is right."""
    memory, back, a = gpu.zeros(64), gpu.pinned(gpu.np.full(64, 3)), gpu.stream()
    ones = gpu.drv.to_device(gpu.np.ones(64, "float32"))
    gpu.launch("axpy", "fPPi", (5.0, ones, memory, 64), block=64, stream=a)
    gpu.drv.memcpy_dtoh_async(back, memory, a)
    gpu.library.softcuda_touch(back.ctypes.data, back.nbytes, 0)
    seen = float(back[0])
    a.synchronize()
    return seen


def write_out_of_bounds(gpu: Any) -> Any:
    """1000 elements, 1280 threads, no test."""
    x, y = gpu.zeros(1000), gpu.zeros(1000)
    gpu.launch("no_bounds_test", "PP", (x, y), block=256, grid=5)
    gpu.context.synchronize()


def use_after_fault(gpu: Any) -> Any:
    """What calls return once a kernel has faulted."""
    try:
        write_out_of_bounds(gpu)
    except gpu.drv.LogicError:
        pass
    gpu.drv.mem_alloc(16)


def write_one_behind(gpu: Any) -> Any:
    """One float behind an allocation of 100: within the slack before the guard page."""
    y = gpu.zeros(100)
    gpu.launch("one_behind", "Pi", (y, 100))
    gpu.context.synchronize()
    y.free()


def read_uninitialised(gpu: Any) -> Any:
    """y += x with a y that nobody has filled."""
    x, y = gpu.zeros(64), gpu.drv.mem_alloc(256)
    gpu.launch("axpy", "fPPi", (1.0, x, y, 64), block=64)
    return gpu.np.isnan(gpu.read(y, 64)).sum()


def use_freed_argument(gpu: Any) -> Any:
    """A launch with an address that has been freed."""
    x, y = gpu.zeros(64), gpu.zeros(64)
    stale = int(x)
    x.free()
    gpu.launch("axpy", "fPPi", (1.0, stale, y, 64), block=64)


def keep_only_the_address(gpu: Any) -> Any:
    """int(mem_alloc(n)): the allocation object goes at once, and its memory with it."""
    stale = int(gpu.drv.mem_alloc(256))
    gpu.drv.memset_d32(stale, 0, 64)


def free_twice(gpu: Any) -> Any:
    """cuMemFree of an address that is free already."""
    x = gpu.zeros(64)
    address = int(x)
    x.free()
    return gpu.library.cuMemFree_v2(ctypes.c_uint64(address))


def launch_too_many_threads(gpu: Any) -> Any:
    """matmul_8 has launch bounds of 64 threads."""
    x = gpu.zeros(64)
    gpu.launch("matmul_8", "PPPiii", (x, x, x, 8, 8, 8), block=(16, 8, 1))


def launch_too_much_shared(gpu: Any) -> Any:
    """60,000 bytes of dynamic shared memory without asking for them."""
    x = gpu.zeros(64)
    gpu.launch("reverse", "PP", (x, x), block=64, shared=60000)


def launch_wrong_parameter_bytes(gpu: Any) -> Any:
    """The last parameter is missing."""
    x = gpu.zeros(64)
    gpu.launch("axpy", "fPP", (1.0, x, x), block=64)


def missing_barrier(gpu: Any) -> Any:
    """How many of 256 elements are right without the barrier."""
    x = gpu.np.arange(256, dtype="float32")
    y = gpu.zeros(256)
    gpu.launch("missing_barrier", "PP", (gpu.drv.to_device(x), y), block=256)
    return int((gpu.read(y, 256) == x[::-1]).sum())


def launch_faulty(gpu: Any, name: str, types: str, threads: int, shared: int = 0) -> Any:
    """One block of a kernel of faulty.cu, each pointer with 4096 bytes of zeroes."""
    memory = [gpu.zeros(1024) if kind == "P" else 3 for kind in types]
    gpu.launch(name, types, memory, block=threads, shared=shared)
    gpu.context.synchronize()
    return "no fault"


def missing_copy_wait(gpu: Any, kernel: str) -> Any:
    """A cp.async pipeline; NaN where it read what had not landed."""
    x = gpu.np.arange(16 * 128, dtype="float32").reshape(16, 128)
    y = gpu.zeros(128)
    gpu.launch(kernel, "PPi", (gpu.drv.to_device(x), y, 16), block=128)
    got = gpu.read(y, 128)
    return [int(gpu.np.isnan(got).sum()), int((got == x.sum(0)).sum())]


def leave_allocations(gpu: Any) -> Any:
    """Two allocations are alive at the end of their context."""
    handles = [gpu.drv.mem_alloc(1000), gpu.drv.mem_alloc(24)]
    gpu.library.cuCtxDestroy_v2(ctypes.c_void_p(gpu.context.handle))
    return len(handles)


def load_file(gpu: Any, path: str) -> Any:
    """A module file that is no host object."""
    gpu.drv.module_from_file(path)


def load_foreign_image(gpu: Any, image: str) -> Any:
    """A module image that is no host object."""
    gpu.drv.module_from_buffer(image.encode().ljust(256, b"\0"))
