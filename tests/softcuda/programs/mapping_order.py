"""The order of work on memory that has several addresses: streams, unmapping, graphs. Run by child.py."""
from __future__ import annotations

from typing import Any

from .graph import Graphs
from .mapping import FLOATS, PAGE, Memory


def add_on_two_streams(gpu: Any, first: int, second: int, ordered: bool = False) -> None:
    """Two kernels that change 64 floats at these addresses, on two streams, by an event or not."""
    for address in (first, second):
        gpu.library.softcuda_region(address, 256)
    x, streams, done = gpu.zeros(64), (gpu.stream(), gpu.stream()), gpu.event()
    gpu.launch("axpy", "fPPi", (1.0, x, first, 64), block=64, stream=streams[0])
    done.record(streams[0])
    if ordered:
        streams[1].wait_for_event(done)
    gpu.launch("axpy", "fPPi", (1.0, x, second, 64), block=64, stream=streams[1])
    gpu.context.synchronize()


def write_one_page_by_two_addresses(gpu: Any, ordered: bool) -> Any:
    """One page, two addresses, two streams."""
    memory = Memory(gpu)
    handle = memory.create()
    add_on_two_streams(gpu, memory.show([handle]) + 512, memory.show([handle]) + 512, ordered)


def write_two_parts_of_a_page(gpu: Any, distance: int) -> Any:
    """One page, two addresses, and bytes that begin so far apart."""
    memory = Memory(gpu)
    handle = memory.create()
    add_on_two_streams(gpu, memory.show([handle]), memory.show([handle]) + distance)


def write_two_pages(gpu: Any) -> Any:
    """Two pages, each at the other's place in a second view."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area, swapped = memory.show(handles), memory.show(handles[::-1])
    add_on_two_streams(gpu, area, swapped)
    add_on_two_streams(gpu, area + PAGE, swapped + PAGE)


def write_one_address_twice(gpu: Any) -> Any:
    """Unordered work at one address that shows another page in between, as far as the host has waited."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area, kept, x, stream = memory.show(handles[:1]), memory.show(handles[:1]), gpu.zeros(64), gpu.stream()
    gpu.launch("axpy", "fPPi", (1.0, x, area, 64), block=64, stream=stream)
    stream.synchronize()
    memory.must(memory.unmap(area))
    memory.must(memory.map(area, handles[1]))
    memory.must(memory.set_access(area))
    add_on_two_streams(gpu, area, kept)


def copy_over_a_page_in_use(gpu: Any) -> Any:
    """A copy to two pages in one piece, while a kernel changes the second by another address."""
    memory = Memory(gpu)
    handles = [memory.create(), memory.create()]
    area, second = memory.show(handles), memory.show(handles[1:])
    x, zeroes = gpu.zeros(64), gpu.pinned(gpu.np.zeros(2 * FLOATS))
    gpu.library.softcuda_region(second, 256)
    gpu.launch("axpy", "fPPi", (1.0, x, second, 64), block=64, stream=gpu.stream())
    gpu.drv.memcpy_htod_async(area, zeroes, gpu.stream())
    gpu.context.synchronize()


def read_and_write_in_one_launch(gpu: Any, addresses: int, distance: int) -> Any:
    """A kernel reads 64 floats of a page and writes 64 that begin so far behind them, by one address or two."""
    memory = Memory(gpu)
    handle = memory.create()
    shown = [memory.show([handle]) for _ in range(addresses)]
    x, y = shown[0], shown[-1] + distance
    for address in (x, y):
        gpu.library.softcuda_region(address, 256)
    gpu.launch("axpy", "fPPi", (1.0, x, y, 64), block=64)
    gpu.context.synchronize()


def unmap_in_use(gpu: Any, waited: bool) -> Any:
    """A page is unmapped while a kernel uses it, or after it; the sum that the kernel leaves in another."""
    memory = Memory(gpu)
    handle = memory.create()
    area, alias, ones, stream = memory.show([handle]), memory.show([handle]), gpu.pinned([1.0] * 64), gpu.stream()
    gpu.drv.memset_d32(area, 0, FLOATS)
    gpu.context.synchronize()
    gpu.drv.memcpy_htod_async(area, ones, stream)
    if waited:
        stream.synchronize()
    memory.must(memory.unmap(area))
    gpu.context.synchronize()
    return float(gpu.read(alias, 64).sum())


def capture(gpu: Any, work: Any) -> Any:
    """What `work(stream)` asks for, as an executable graph."""
    graphs, stream = Graphs(gpu), gpu.stream()
    assert graphs.begin(stream, mode=0) == 0
    work(stream)
    result, graph = graphs.end(stream)
    assert result == 0
    return graphs.instantiate(graph)


def replay_after_remapping(gpu: Any) -> Any:
    """A graph captured while a page is mapped, launched before and twice after its address shows another page."""
    memory, graphs, stream = Memory(gpu), Graphs(gpu), gpu.stream()
    handles = [memory.create(), memory.create()]
    area, both, x = memory.show(handles[:1]), memory.show(handles), gpu.drv.to_device(gpu.np.ones(64, "float32"))
    gpu.drv.memset_d32(both, 0, 2 * FLOATS)
    gpu.context.synchronize()

    def work(stream: Any) -> None:
        gpu.launch("axpy", "fPPi", (1.0, x, area, 64), block=64, stream=stream)
        memory.show([memory.create()])
        gpu.launch("axpy", "fPPi", (2.0, x, area, 64), block=64, stream=stream)

    executable = capture(gpu, work)
    assert graphs.launch(executable, stream) == 0
    stream.synchronize()
    memory.must(memory.unmap(area))
    memory.must(memory.map(area, handles[1]))
    memory.must(memory.set_access(area))
    for _ in range(2):
        assert graphs.launch(executable, stream) == 0
    return gpu.read(both, 2 * FLOATS)[[0, FLOATS]]


def replay_copy_after_unmapping(gpu: Any) -> Any:
    """A graph with a copy is launched when the copy's page has gone."""
    memory, host, stream = Memory(gpu), gpu.pinned([1.0] * 64), gpu.stream()
    area = memory.show([memory.create()])
    executable = capture(gpu, lambda stream: gpu.drv.memcpy_htod_async(area, host, stream))
    memory.must(memory.unmap(area))
    assert Graphs(gpu).launch(executable, stream) == 0
    gpu.context.synchronize()


def share_a_page_in_a_graph(gpu: Any) -> Any:
    """Two branches of a graph change one page by two addresses."""
    memory = Memory(gpu)
    handle = memory.create()
    addresses, x = [memory.show([handle]) for _ in range(2)], gpu.zeros(64)
    fork, join, branch = gpu.event(), gpu.event(), gpu.stream()

    def work(stream: Any) -> None:
        fork.record(stream)
        branch.wait_for_event(fork)
        for address, where in zip(addresses, (stream, branch), strict=True):
            gpu.launch("axpy", "fPPi", (1.0, x, address, 64), block=64, stream=where)
        join.record(branch)
        stream.wait_for_event(join)

    assert Graphs(gpu).launch(capture(gpu, work), gpu.stream()) == 0
    gpu.context.synchronize()
