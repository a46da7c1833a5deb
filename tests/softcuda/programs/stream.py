"""Streams, events and schedules. Run by child.py."""
from __future__ import annotations

import ctypes
from typing import Any

TILE = (8, 8, 1)


def wait_for_copy(gpu: Any) -> Any:
    """kernel_does_not_wait_for_copy with the event it lacks. The number of wrong elements."""
    n = 32
    ones, product = gpu.pinned(gpu.np.ones((n, n))), gpu.pinned(gpu.np.zeros((n, n)))
    x, y = gpu.drv.mem_alloc(ones.nbytes), gpu.drv.mem_alloc(ones.nbytes)
    a, b, copied = gpu.stream(), gpu.stream(), gpu.event()
    gpu.drv.memcpy_htod_async(x, ones, a)
    copied.record(a)
    b.wait_for_event(copied)
    gpu.launch("matmul_8", "PPPiii", (x, x, y, n, n, n), block=TILE, grid=(4, 4), stream=b)
    gpu.drv.memcpy_dtoh_async(product, y, b)
    b.synchronize()
    return int((product != n).sum())


def ping_pong(gpu: Any, rounds: int) -> Any:
    """Two streams add 1 by turns, each waiting for the other's event: deep chains of dependencies."""
    one, total = gpu.drv.to_device(gpu.np.ones(1, "float32")), gpu.zeros(1)
    streams, events = [gpu.stream(), gpu.stream()], [gpu.event(), gpu.event()]
    for i in range(rounds):
        gpu.launch("axpy", "fPPi", (1.0, one, total, 1), stream=streams[i % 2])
        events[i % 2].record(streams[i % 2])
        streams[1 - i % 2].wait_for_event(events[i % 2])
    return float(gpu.read(total, 1)[0])


def null_stream_orders_blocking_streams(gpu: Any) -> Any:
    """Work of a blocking stream, of the NULL stream, and of the blocking stream again runs in this order."""
    total, stream = gpu.zeros(1), gpu.drv.Stream()
    one, ten = (gpu.drv.to_device(gpu.np.full(1, value, "float32")) for value in (1, 10))
    gpu.launch("copy", "PP", (one, total), stream=stream)
    gpu.launch("axpy", "fPPi", (2.0, total, total, 1))
    gpu.launch("axpy", "fPPi", (1.0, ten, total, 1), stream=stream)
    stream.synchronize()
    return float(gpu.drv.from_device(total, 1, gpu.np.float32)[0])


def query_until_done(gpu: Any) -> Any:
    """Polling a stream and an event comes to an end in every mode."""
    stream, event = gpu.stream(), gpu.event()
    x, y = gpu.zeros(32), gpu.zeros(32)
    for _ in range(3):
        gpu.launch("spin", "PPi", (x, y, 1000), block=32, stream=stream)
    event.record(stream)
    while not event.query():
        pass
    while not stream.is_done():
        pass
    return "done"


def time_between_events(gpu: Any) -> Any:
    """Milliseconds between two events around work are positive; without timing they are refused."""
    start, end, stream = gpu.drv.Event(), gpu.drv.Event(), gpu.stream()
    x, y = gpu.zeros(32), gpu.zeros(32)
    start.record(stream)
    gpu.launch("spin", "PPi", (x, y, 10000), block=32, stream=stream)
    end.record(stream)
    end.synchronize()
    try:
        gpu.event().time_since(start)
        refused = False
    except gpu.drv.LogicError:
        refused = True
    return [end.time_since(start) > 0, refused]


def event_recorded_twice(gpu: Any) -> Any:
    """A wait refers to the last record before it: a later one does not move it."""
    event, a, b = gpu.event(), gpu.stream(), gpu.stream()
    x, total = gpu.drv.to_device(gpu.np.ones(1, "float32")), gpu.zeros(1)
    event.record(a)
    b.wait_for_event(event)
    gpu.launch("axpy", "fPPi", (1.0, x, total, 1), stream=a)
    event.record(a)
    b.synchronize()
    done_early = a.is_done()
    event.synchronize()
    return [done_early, float(gpu.drv.from_device(total, 1, gpu.np.float32)[0])]


def stale_handles(gpu: Any) -> Any:
    """A destroyed stream and a destroyed event are refused as handles."""
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    library = gpu.library
    library.cuStreamCreate(ctypes.byref(stream), 1)
    library.cuEventCreate(ctypes.byref(event), 0)
    library.cuStreamDestroy_v2(stream)
    library.cuEventDestroy_v2(event)
    return [library.cuStreamSynchronize(stream), library.cuEventQuery(event)]


def lazy_copy_has_not_run(gpu: Any) -> Any:
    """What the first element of a pinned target is before and after the synchronisation."""
    memory, back, stream = gpu.zeros(8), gpu.pinned(gpu.np.full(8, 3)), gpu.stream()
    gpu.drv.memcpy_dtoh_async(back, memory, stream)
    before = float(back[0])
    stream.synchronize()
    return [before, float(back[0])]


def unordered_writes(gpu: Any) -> Any:
    """Three streams write one float, unordered: which one was last."""
    memory = gpu.zeros(1)
    values = [gpu.drv.to_device(gpu.np.full(1, value, "float32")) for value in (1, 2, 3)]
    streams = [gpu.stream() for _ in values]
    for value, stream in zip(values, streams, strict=True):
        gpu.launch("copy", "PP", (value, memory), stream=stream)
    return float(gpu.read(memory, 1)[0])
