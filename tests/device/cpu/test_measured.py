"""Planned bytes are measured bytes: arenas on the device and on the host, and no more than 64 KiB besides."""
from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from minigraph.device.cpu import CpuDevice

from .plans import chain, feeds, in_file, load, run

FLOATS = 300_000


@pytest.mark.parametrize("space", ["host", "file"])
def test_a_swapping_run_takes_the_planned_bytes_and_at_most_64_kib(space: str) -> None:
    plan = chain(8, 1, FLOATS) if space == "host" else in_file(chain(8, 1, FLOATS))
    planned = plan.planned_bytes + plan.arena_bytes("host")
    given = feeds(plan)
    for _ in range(2):  # what is imported and cached on first use is no part of a program
        tracemalloc.start()
        program = load(plan)
        for name in plan.inputs:
            program.feed(name, given[name])
        program.run("step")
        program.run("step")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert planned <= peak <= planned + 64 * 1024


def test_swapping_to_a_file_takes_less_memory_than_to_the_host() -> None:
    plan = chain(8, 1, FLOATS)
    assert in_file(plan).arena_bytes("host") == 0
    assert in_file(plan).planned_bytes == plan.planned_bytes
    assert plan.arena_bytes("host") == 8 * 4 * FLOATS


def test_twenty_loads_and_runs_leave_no_memory_behind() -> None:
    plan = in_file(chain(4, 1, 10_000))
    given = feeds(plan)
    run(load(plan), given)
    tracemalloc.start()
    run(load(plan), given)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        assert np.isfinite(run(load(plan, CpuDevice()), given)["out"]).all()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 16 * 1024
