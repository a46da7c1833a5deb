"""The kernels' own tests under sanitizers: no access out of bounds, no undefined behaviour, no data race."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minigraph.device.checkout import CHECKOUT
from minigraph.device.cpu.native.settings import Settings

from .harness import the_library
from .sanitized import build

HERE = Path(__file__).parent
FULL = os.environ.get("MINIGRAPH_TEST_FULL") == "1"
KERNELS = sorted(str(path) for path in HERE.glob("test_*.py")
                 if path.stem not in ("test_library", "test_pool", "test_sanitizers", "test_unplanned"))
"""Files whose tests run the kernels; one of those left out measures memory, of which sanitizers take more."""


@pytest.mark.skipif(not FULL, reason="takes minutes; set MINIGRAPH_TEST_FULL=1")
@pytest.mark.parametrize(("runtime", "flags", "files"), [
    ("libasan.so", "-fsanitize=address,-fsanitize=undefined,-fno-sanitize-recover=all,-O1,-g", KERNELS),
    ("libtsan.so", "-fsanitize=thread,-O1,-g", [str(HERE / "test_pool.py"), *KERNELS])], ids=["address", "thread"])
def test_kernels_are_clean(runtime: str, flags: str, files: list[str]) -> None:
    the_library()
    path = subprocess.run([Settings.read().compiler, f"-print-file-name={runtime}"], capture_output=True, text=True)
    if not Path(path.stdout.strip()).is_file():
        pytest.skip(f"the compiler has no {runtime}")
    build(flags)
    environment = {**os.environ, "LD_PRELOAD": path.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0",
                   "TSAN_OPTIONS": "report_thread_leaks=0 halt_on_error=1 die_after_fork=0",
                   "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "tests.device.cpu.native.sanitized", flags, *files], cwd=CHECKOUT,
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
