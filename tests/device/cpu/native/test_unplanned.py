"""What kernels take beside the planned bytes: stacks and scratch of their threads, as reports say."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minigraph.device.cpu import CpuDevice
from minigraph.plan.report import report
from minigraph.planning import plan, unplanned_bytes
from tests.test_use_plan import SHAPES, network, optimizer

from .harness import the_library, threads

ROOT = Path(__file__).resolve().parents[4]
_GROWTH = """
import numpy as np
from benchmarks.watch import peak_bytes
from tests.device.cpu.native.harness import run, the_library, threads
rng = np.random.default_rng(0)
square = rng.standard_normal((700, 700), np.float32)
images, weights = rng.standard_normal((8, 64, 32, 32), np.float32), rng.standard_normal((64, 64, 3, 3), np.float32)

def work():
    run("dot", {}, [square, square])
    run("Convolution", {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64, "no_bias": True}, [images, weights])
with threads(1):
    for _ in range(5):
        work()
before = peak_bytes()
with threads(9):
    for _ in range(5):
        work()
print(peak_bytes() - before, 8 * the_library().thread_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak of resident memory")
def test_eight_more_threads_take_no_more_than_is_reported_for_each() -> None:
    the_library()
    done = subprocess.run([sys.executable, "-c", _GROWTH], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, reported = map(int, done.stdout.split())
    assert 0 < grown <= reported


def test_a_plan_with_kernels_reports_what_their_threads_take_and_one_without_nothing() -> None:
    library, made = the_library(), plan(network(), SHAPES, optimizer())
    with threads(3):
        assert unplanned_bytes(made) == 3 * library.thread_bytes
        assert CpuDevice(kernels="numpy").unplanned_bytes(made) == 0
    assert unplanned_bytes(made, "V100") is None
    told = report(made, unplanned_bytes=3 * 2**20)
    assert "not planned" in told.text() and told.json()["unplanned_bytes"] == 3 * 2**20
    assert "not planned" not in report(made).text()
