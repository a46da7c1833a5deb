"""What a step of many launches costs the host: Python, PyCUDA and the driver's own call, without the kernels.

A plan of small elementwise instructions is loaded on gpu(0) and run. On the software driver launches are dropped
(SOFTCUDA_DROP=1), so that only Python and PyCUDA are timed; on a real driver the queue of launches is filled and the
time until `run` returns is taken. The bound is 10 ms for 10,000 launches on the software driver.

    MINIGRAPH_CUDA_DRIVER=software python -m benchmarks.launch_overhead [--quick] [--json FILE]
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

BOUND_MS = 10.0
"""Milliseconds that 10,000 launches may take."""


def measure(launches: int, repeats: int, graph: bool) -> dict[str, Any]:
    """Milliseconds of loading a plan of so many launches, and of the quickest of some runs."""
    import numpy as np

    from minigraph.device.cuda import cuda_device
    device = cuda_device(0)
    plan = chain(launches)
    memory = device.memory()
    memory.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes)
    start = time.perf_counter()
    program = device.load(plan, memory, graph=graph)
    loading = time.perf_counter() - start
    best = float("inf")
    for _ in range(repeats + 1):
        program.feed("data", np.ones(64, np.float32))
        device.synchronize()
        start = time.perf_counter()
        program.run("step")
        best = min(best, time.perf_counter() - start)
    return {"launches": launches, "graph": graph, "load_ms": 1e3 * loading, "run_ms": 1e3 * best,
            "launch_us": 1e6 * best / launches, "driver": "software" if device.driver.is_software else "real"}


def chain(launches: int) -> Any:
    """A plan that adds a vector of 64 floats to itself so many times."""
    import numpy as np

    from minigraph.ops.registry import get_op
    from minigraph.plan.plan import Arena, BufferColumns, Figures, InstructionColumns, Kind, Output, Plan
    buffers, code, float32 = BufferColumns(), InstructionColumns(), np.dtype(np.float32)
    value = buffers.add("data", 1, 0, 256, (64,), float32, born=-1, dies=1, buffer_class="input")
    params = get_op("elemwise_add").Params()
    for k in range(launches):
        out = buffers.add(f"x{k}", 1, 256 * (1 + k % 2), 256, (64,), float32, born=k, dies=k + 2)
        code.add(Kind.COMPUTE, name=f"x{k}", op="elemwise_add", params=params, algorithm="kernel",
                 reads=(value, value), writes=(out,))
        value = out
    arenas = (Arena("persistent", "device", 0), Arena("transient", "device", 768))
    figures = Figures(launches, 0, 0, "", 0.0, {})
    return Plan("step", "plain", arenas, buffers, code, (), {"data": 0}, (Output("out", value),),
                {"step": (0, launches)}, "", figures)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 when the bound is not kept, 2 without a driver."""
    parser = argparse.ArgumentParser(description="Time the launches of a step on the host.")
    parser.add_argument("--quick", action="store_true", help="fewer launches and repeats")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(arguments)
    os.environ.setdefault("SOFTCUDA_DROP", "1")
    launches, repeats = (2_000, 3) if given.quick else (10_000, 20)
    from minigraph.device.cuda import CudaUnavailableError
    try:
        results = [measure(launches, repeats, graph=False)]
    except CudaUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    if results[0]["driver"] == "real":
        results.append(measure(launches, repeats, graph=True))
    for row in results:
        print(f"{row['launches']} launches{' as a graph' if row['graph'] else ''}: {row['run_ms']:.2f} ms a run, "
              f"{row['launch_us']:.2f} us a launch, loaded in {row['load_ms']:.0f} ms ({row['driver']} driver)")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"benchmark": "launch_overhead", "results": results}, file, indent=1)
    kept = results[0]["launch_us"] * 1e4 <= BOUND_MS * 1e3 or results[0]["driver"] == "real"
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
