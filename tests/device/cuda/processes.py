"""Run a function of a test module in a process of its own, on the real PyCUDA and the software driver.

A process is what a driver's settings belong to, and its end is part of what is tested: `run` asserts that it exits
with 0 and says nothing on stderr, where PyCUDA complains about contexts, and the software driver about races, leaks
and overruns.
"""
from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.softcuda.build import BuildError, build_dir, build_driver, find_compiler, find_cuda_include

ROOT = Path(__file__).resolve().parents[3]
SCHEDULES = ("eager", "lazy", "random", "threads")
COUNTERS = ("allocations", "frees", "bytes_live", "bytes_peak", "pinned_allocations", "pinned_bytes_live", "launches",
            "copies", "memsets", "graph_launches", "races", "overruns")


@dataclass
class Outcome:
    """What the function returned or raised, the driver's counters at its end, and how the process ended."""

    result: Any
    error: list[str] | None
    counters: dict[str, int]
    returncode: int
    stderr: str


@cache
def software_driver() -> Path:
    """The software driver's library; skips the test where it or PyCUDA cannot be had."""
    if importlib.util.find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed; tests/softcuda/build_pycuda.py --install builds it")
    try:
        find_compiler()
        find_cuda_include()
    except BuildError as missing:
        pytest.skip(str(missing))
    return build_driver(build_dir())


def environment(**settings: Any) -> dict[str, str]:
    """This process's environment, with these settings and no others of the driver's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTCUDA_", "MINIGRAPH_CUDA_"))}
    default = {"MINIGRAPH_CUDA_DRIVER": software_driver(), "SOFTCUDA_LEAKS": 1, "PYTHONPATH": ROOT}
    return kept | {name: str(value) for name, value in (default | settings).items()}


def spawn(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Outcome:
    """Run `function(*arguments)` in a process with these environment variables; arguments and result are JSON."""
    command = [sys.executable, "-m", __name__, function.__module__, function.__qualname__, json.dumps(arguments)]
    done = subprocess.run(command, env=environment(**settings), cwd=ROOT, capture_output=True, text=True, timeout=900)
    lines = done.stdout.splitlines()
    said = json.loads(lines[-1]) if lines else {"result": None, "error": None, "counters": {}}
    return Outcome(**said, returncode=done.returncode, stderr=done.stderr)


def run(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """The result of a function that must end well: no error, exit status 0, nothing on stderr."""
    outcome = spawn(function, *arguments, **settings)
    clean = (outcome.error, outcome.returncode, outcome.stderr) == (None, 0, "")
    assert clean, f"{outcome.error}, exit status {outcome.returncode}, stderr:\n{outcome.stderr}"
    return outcome.result


def counters() -> dict[str, int]:
    """The software driver's counters."""
    import ctypes

    from minigraph.device.cuda import driver
    if driver._driver is None or not driver._driver.is_software:
        return {}
    count = driver._driver.library.softcuda_counter
    count.restype = ctypes.c_uint64
    return {name: int(count(name.encode())) for name in COUNTERS}


def main() -> None:
    """The child's side: one line of JSON, then an ordinary end of the interpreter."""
    module, function, arguments = sys.argv[1:]
    outcome: dict[str, Any] = {"result": None, "error": None}
    try:
        outcome["result"] = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    except Exception as error:  # the test judges it
        outcome["error"] = [type(error).__name__, str(error)]
    outcome["counters"] = counters()
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
