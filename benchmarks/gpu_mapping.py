"""Cases of the GPU suite about mapped pages: kernels that use them by two addresses, and what making them costs."""
from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .gpu_cases import Absent, Case, Options, milliseconds, open_device

ONE = int(np.float32(1).view(np.uint32))
ROUNDS = 50
"""Doublings by either address; 2 to the power of twice as many is still a float32."""


def cases(options: Options) -> list[Case]:
    """Whether two addresses show the same bytes, and times beside those of memory in one allocation."""
    return [Case("two addresses", partial(_two_addresses, options)), Case("times", partial(_times, options))]


def _two_addresses(options: Options) -> dict[str, Any]:
    """Kernels on one stream double all floats, by the arena's addresses and by those of its pages in reverse."""
    device = _device(options)
    with device.context:
        stream, (arena, mapped) = device.streams.take(), _pages(device, 2 if options.quick else 64)
        order = np.arange(arena.nbytes // 4, dtype=np.float32).reshape(-1, device.page_bytes // 4)
        device.driver.cuda.memcpy_htod(arena.address, order)
        seen = np.empty_like(order)
        device.driver.cuda.memcpy_dtoh(seen, mapped.address)
        assert (seen == order[::-1]).all(), "the mapped addresses do not show the pages in their order"
        device.driver.cuda.memset_d32_async(arena.address, ONE, arena.nbytes // 4, stream)
        for address in [mapped.address, arena.address] * ROUNDS:
            _double(device, address, arena.nbytes, stream)
        stream.synchronize()
        device.driver.cuda.memcpy_dtoh(seen, arena.address)
        wrong = int((seen != np.float32(2) ** (2 * ROUNDS)).sum())
        _give_back(device, arena, mapped, stream)
    assert wrong == 0, f"{wrong} of {seen.size} floats missed a kernel that wrote them by another address"
    return {"page_bytes": device.page_bytes, "bytes": seen.nbytes, "kernels": 2 * ROUNDS}


def _times(options: Options) -> dict[str, Any]:
    """Milliseconds to make an arena of pages, to map all of them in reverse, and to give both back; and of a kernel
    over the bytes of an allocation, of the arena, and of what is mapped."""
    device, count = _device(options), 4 if options.quick else 1024
    cuda, found = device.driver.cuda, {"page_bytes": device.page_bytes, "pages": count}
    with device.context:
        stream, block = device.streams.take(), device.pool.allocate(count * device.page_bytes)
        arena, found["make_ms"] = _timed(lambda: _arena(device, count))
        mapped, found["map_ms"] = _timed(lambda: _reversed(device, arena))
        for name, address in (("allocated", block.address), ("arena", arena.address), ("mapped", mapped.address)):
            cuda.memset_d8(address, 0, arena.nbytes)
            found[f"{name}_kernel_ms"] = milliseconds(cuda, partial(_double, device, address, arena.nbytes, stream))
        _, found["give_back_ms"] = _timed(lambda: _give_back(device, arena, mapped, stream))
        device.pool.free(block)
    return found


def _device(options: Options) -> Any:
    device = open_device(options)
    if not device.page_bytes:
        raise Absent("virtual memory management on this GPU")
    return device


def _pages(device: Any, count: int) -> tuple[Any, Any]:
    arena = _arena(device, count)
    return arena, _reversed(device, arena)


def _arena(device: Any, count: int) -> Any:
    arena = device.paged_arena()
    arena.grow(count * device.page_bytes)
    return arena


def _reversed(device: Any, arena: Any) -> Any:
    from minigraph.plan.plan import Arena, Extent
    page_bytes = device.page_bytes
    extents = tuple(Extent(offset, page_bytes) for offset in range(arena.nbytes - page_bytes, -1, -page_bytes))
    return arena.mapped(Arena("reversed", "mapped", arena.nbytes, page_bytes, extents))


def _double(device: Any, at: int, nbytes: int, stream: Any) -> None:
    from minigraph.device.cuda.launch import Launch, address, int64
    args = (address(at), address(at), address(at), int64(nbytes // 4))
    launch = Launch("elemwise_add_forward_float32", (min(4096, -(-nbytes // 4096)), 1, 1), (256, 1, 1), args)
    function, arguments = device.kernels.call(launch, stream, "elemwise")
    function(*arguments)


def _give_back(device: Any, arena: Any, mapped: Any, stream: Any) -> None:
    mapped.free()
    arena.free()
    device.pool.collect()
    device.streams.give_back(stream)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, 1e3 * (time.perf_counter() - start)
