"""Fixtures: the driver, the tests' kernels, PyCUDA's wheel, built once per session; a way to run programs."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .build import BuildError, build_dir, build_driver, build_module, find_compiler, find_cuda_include
from .build_pycuda import build_wheel

HERE = Path(__file__).resolve().parent
KERNEL_FLAGS = (f"-I{HERE.parent.parent / 'kernels'}",)
KERNEL_FILES = [HERE / "kernels" / f"{name}.cu" for name in ("basic", "faulty", "tensor")]


@dataclass
class Outcome:
    """What a program did: its result, or the error it ended with; the driver's messages and counters."""

    result: Any
    error: list[str] | None
    counters: dict[str, int]
    messages: str

    @property
    def value(self) -> Any:
        """The result of a program that must not have failed."""
        assert self.error is None, f"{self.error}\n{self.messages}"
        return self.result


@pytest.fixture(scope="session")
def host_tools() -> None:
    """Skips where the driver cannot be built at all: without a C++ compiler or CUDA's headers."""
    try:
        find_compiler()
        find_cuda_include()
    except BuildError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def driver(host_tools: None) -> Path:
    """The software driver's libcuda.so.1."""
    return build_driver(build_dir())


@pytest.fixture(scope="session")
def kernels(host_tools: None) -> Path:
    """The module of the tests' kernels."""
    path = build_dir() / "test_kernels.so"
    build_module(KERNEL_FILES, path, flags=KERNEL_FLAGS)
    return path


@pytest.fixture(scope="session")
def sanitized_kernels(host_tools: None) -> Path:
    """The planted bugs, built with traps for misaligned accesses and wild indices."""
    path = build_dir() / "test_kernels_sanitized.so"
    build_module([HERE / "kernels" / "faulty.cu"], path, sanitize=True)
    return path


@pytest.fixture(scope="session")
def pycuda_wheel(host_tools: None) -> Path:
    """PyCUDA's wheel for this interpreter, from the cache or built now."""
    try:
        return build_wheel()
    except BuildError as error:
        if "No matching distribution" in str(error) or "connection" in str(error).lower():
            pytest.skip("no wheel of PyCUDA for this interpreter is cached, and no package index answers")
        raise


@pytest.fixture(scope="session")
def pycuda() -> None:
    """Skips where ``import pycuda`` is impossible."""
    if importlib.util.find_spec("pycuda") is None:
        command = f"{sys.executable} {HERE / 'build_pycuda.py'} --install"
        pytest.skip(f"pycuda is not installed; this builds and installs it in about two minutes: {command}")


def run_child(command: list[str], settings: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Run ``command`` with SOFTCUDA_* set to ``settings`` and nothing else of that name."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SOFTCUDA_")}
    environment |= {f"SOFTCUDA_{name}": str(value) for name, value in settings.items()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="session")
def run(driver: Path, kernels: Path, pycuda: None) -> Callable[..., Outcome]:
    """``run(program, *arguments, module=None, **settings)``: a program in its own process; an Outcome."""

    def run_program(
        program: Callable[..., Any], *arguments: Any, module: Path | None = None, **settings: object
    ) -> Outcome:
        programs = program.__module__.rpartition(".")[2]
        child = [sys.executable, HERE / "child.py", driver, module or kernels, programs, program.__name__]
        done = run_child([*map(str, child), json.dumps(arguments)], settings)
        assert done.returncode == 0 and done.stdout, f"exit status {done.returncode}:\n{done.stderr}"
        return Outcome(messages=done.stderr, **json.loads(done.stdout.splitlines()[-1]))

    return run_program
