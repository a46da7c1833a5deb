"""Stream capture and graph launch. Run by child.py."""
from __future__ import annotations

import ctypes
from typing import Any


class Graphs:
    """CUDA's graph calls, which PyCUDA lacks, on its stream handles."""

    def __init__(self, gpu: Any) -> None:
        self.library = gpu.library
        pointer = ctypes.c_void_p
        self.library.cuStreamBeginCapture_v2.argtypes = (pointer, ctypes.c_int)
        self.library.cuStreamEndCapture.argtypes = (pointer, pointer)
        self.library.cuGraphInstantiateWithFlags.argtypes = (pointer, pointer, ctypes.c_ulonglong)
        self.library.cuGraphLaunch.argtypes = (pointer, pointer)
        self.library.cuGraphGetNodes.argtypes = (pointer, pointer, pointer)

    def begin(self, stream: Any, mode: int = 1) -> int:
        """Begin a capture (mode 1: thread local)."""
        return int(self.library.cuStreamBeginCapture_v2(stream.handle, mode))

    def end(self, stream: Any) -> tuple[int, Any]:
        """End it: CUDA's result and the graph."""
        graph = ctypes.c_void_p()
        return int(self.library.cuStreamEndCapture(stream.handle, ctypes.byref(graph))), graph

    def instantiate(self, graph: Any) -> Any:
        """An executable graph."""
        executable = ctypes.c_void_p()
        assert self.library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, 0) == 0
        return executable

    def launch(self, executable: Any, stream: Any) -> int:
        """Launch it."""
        return int(self.library.cuGraphLaunch(executable, stream.handle))

    def node_count(self, graph: Any) -> int:
        """How many nodes the graph has."""
        count = ctypes.c_size_t()
        self.library.cuGraphGetNodes(graph, None, ctypes.byref(count))
        return count.value


def graph_fork_and_join(gpu: Any, wait_before_use: bool = True, launches: int = 3) -> Any:
    """y += x ten times on stream a beside a copy into z on b; then y += z, behind b's event or, planted, not.

    The sums after each launch. Stream a waits for b at the end in any case, so the capture itself is legal.
    """
    n, graphs = 64, Graphs(gpu)
    x, y, z = gpu.drv.to_device(gpu.np.ones(n, "float32")), gpu.zeros(n), gpu.zeros(n)
    host, a, b = gpu.pinned(gpu.np.full(n, 3)), gpu.stream(), gpu.stream()
    forked, copied = gpu.event(), gpu.event()
    graphs.begin(a)
    forked.record(a)
    b.wait_for_event(forked)
    gpu.drv.memcpy_htod_async(z, host, b)
    copied.record(b)
    for _ in range(10):
        gpu.launch("axpy", "fPPi", (1.0, x, y, n), block=n, stream=a)
    if wait_before_use:
        a.wait_for_event(copied)
    gpu.launch("axpy", "fPPi", (1.0, z, y, n), block=n, stream=a)
    a.wait_for_event(copied)
    gpu.launch("axpy", "fPPi", (0.0, x, y, n), block=n, stream=a)
    result, graph = graphs.end(a)
    assert result == 0, result
    executable, sums = graphs.instantiate(graph), [float(gpu.read(y, n)[0])]
    for _ in range(launches):
        graphs.launch(executable, a)
        sums.append(float(gpu.read(y, n)[0]))
    return [graphs.node_count(graph), sums]


def graph_beside_unordered_work(gpu: Any, ordered: bool) -> Any:
    """A graph that writes y is launched on a; stream b reads y behind an event of a, or behind nothing."""
    n, graphs = 64, Graphs(gpu)
    x, y, z = gpu.zeros(n), gpu.zeros(n), gpu.zeros(n)
    a, b, done = gpu.stream(), gpu.stream(), gpu.event()
    graphs.begin(a)
    gpu.launch("axpy", "fPPi", (1.0, x, y, n), block=n, stream=a)
    _, graph = graphs.end(a)
    graphs.launch(graphs.instantiate(graph), a)
    done.record(a)
    if ordered:
        b.wait_for_event(done)
    gpu.launch("axpy", "fPPi", (1.0, y, z, n), block=n, stream=b)
    gpu.context.synchronize()


def graph_launched_on_two_streams(gpu: Any) -> Any:
    """Launches of one executable graph follow each other on whatever streams. What b sees after ten."""
    x, y, graphs = gpu.drv.to_device(gpu.np.ones(1, "float32")), gpu.zeros(1), Graphs(gpu)
    a, b = gpu.stream(), gpu.stream()
    graphs.begin(a)
    gpu.launch("axpy", "fPPi", (1.0, x, y, 1), stream=a)
    _, graph = graphs.end(a)
    executable = graphs.instantiate(graph)
    for i in range(10):
        graphs.launch(executable, (a, b)[i % 2])
    back = gpu.pinned([0.0])
    gpu.drv.memcpy_dtoh_async(back, y, b)
    b.synchronize()
    return float(back[0])


def capture_not_joined(gpu: Any) -> Any:
    """The result of ending a capture whose fork was never joined."""
    graphs, a, b, forked, y = Graphs(gpu), gpu.stream(), gpu.stream(), gpu.event(), gpu.zeros(4)
    graphs.begin(a)
    forked.record(a)
    b.wait_for_event(forked)
    gpu.drv.memset_d32_async(y, 0, 4, b)
    return graphs.end(a)[0]


def capture_ends_elsewhere(gpu: Any) -> Any:
    """The result of ending a capture on the stream that was forked from it."""
    graphs, a, b, forked = Graphs(gpu), gpu.stream(), gpu.stream(), gpu.event()
    graphs.begin(a)
    forked.record(a)
    b.wait_for_event(forked)
    return graphs.end(b)[0]


def capture_waits_for_outside(gpu: Any) -> Any:
    """A capturing stream waits for an event that was recorded before the capture."""
    graphs, a, b, outside = Graphs(gpu), gpu.stream(), gpu.stream(), gpu.event()
    outside.record(b)
    graphs.begin(a)
    a.wait_for_event(outside)


def capture_forbidden(gpu: Any, what: str) -> Any:
    """Call during a capture what no graph can hold; its error, and the result of ending the capture."""
    graphs, a = Graphs(gpu), gpu.stream()
    y, pageable = gpu.zeros(4), gpu.np.zeros(4, "float32")
    calls = {
        "alloc": lambda: gpu.drv.mem_alloc(16),
        "synchronous copy": lambda: gpu.drv.memcpy_htod(y, pageable),
        "pageable copy": lambda: gpu.drv.memcpy_htod_async(y, pageable, a),
        "stream sync": a.synchronize,
        "context sync": gpu.context.synchronize,
    }
    graphs.begin(a)
    try:
        calls[what]()
        error = "none"
    except gpu.drv.LogicError as caught:
        error = str(caught)
    return [error, graphs.end(a)[0]]
