"""The kernels in programs without Python: under sanitizers, which then see all memory and threads, by another compiler,
and by an emulator of another architecture. No access out of bounds, no undefined behaviour, no data race, and the same
results.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from minigraph.device.checkout import CHECKOUT, checkout_script
from minigraph.device.cpu.native.settings import Settings

from .harness import the_library

HERE = Path(__file__).parent
KERNELS = CHECKOUT / "kernels" / "cpu"
FULL = os.environ.get("MINIGRAPH_TEST_FULL") == "1"
SAMPLES = [str(HERE / "test_samples.py")]
RUNNING = [str(path) for path in sorted(HERE.glob("test_*.py"))
           if path.stem not in ("test_levels", "test_library", "test_pool", "test_sanitizers", "test_unplanned")]
"""Files whose tests run the kernels."""
BENCHMARKED = {"peak"}
"""Kernels that no operator calls."""
ADDRESS = ("-fsanitize=address", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-O1", "-g")
THREAD = ("-fsanitize=thread", "-O1", "-g")
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"}
"""The pool's memory is kept until the process ends."""
OTHER_COMPILER = "clang++"
CROSS_COMPILER, EMULATOR, CROSS_ROOT = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"


def build_library(compiler: str, flags: Sequence[str], level: str) -> Path:
    """The kernels with these flags added; made unless it is there."""
    builder = checkout_script("minigraph_cpu_build", "kernels", "cpu", "build.py")
    assert builder is not None
    return builder.build(Settings.read().build_cache, compiler, flags, [level]) / f"cpu-{level}.so"


def build_program(compiler: str, flags: Sequence[str], folder: Path, *sources: Path) -> Path:
    """A program of some sources that sees the kernels' headers."""
    program = folder / sources[0].stem
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", *flags, f"-I{KERNELS}", *sources, "-pthread",
                    "-ldl", "-o", program], check=True)
    return program


def own_compiler(runtime: str) -> str:
    """This machine's compiler; skips the test where it has no library of this name."""
    the_library()
    compiler = Settings.read().compiler
    found = subprocess.run([compiler, f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
    if not Path(found.stdout.strip()).is_file():
        pytest.skip(f"the compiler has no {runtime}")
    return compiler


def succeeds(command: Sequence[str | Path]) -> str:
    """What a command prints; the test fails with its errors when its status is not 0."""
    done = subprocess.run(command, env={**os.environ, **OPTIONS}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """What tests run by kernels, and the names of these."""
    the_library()
    path = tmp_path_factory.mktemp("recording") / "calls"
    done = subprocess.run([sys.executable, "-m", "tests.device.cpu.native.recording", path,
                           *(RUNNING if FULL else SAMPLES)], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return path, set(done.stdout.splitlines()[-1].split()[1:])


def test_the_pool_does_each_task_once_and_has_no_data_race(tmp_path: Path) -> None:
    compiler = own_compiler("libtsan.so")
    succeeds([build_program(compiler, THREAD, tmp_path, HERE / "pool_check.cpp", KERNELS / "pool.cpp")])


@pytest.mark.skipif(not FULL, reason="takes minutes; set MINIGRAPH_TEST_FULL=1")
@pytest.mark.parametrize(("runtime", "flags", "callers"), [("libasan.so", ADDRESS, 1), ("libtsan.so", THREAD, 2)],
                         ids=["address", "thread"])
def test_kernels_are_clean(recording: tuple[Path, set[str]], tmp_path: Path, runtime: str, flags: tuple[str, ...],
                           callers: int) -> None:
    compiler = own_compiler(runtime)
    library = build_library(compiler, flags, the_library().level)
    program = build_program(compiler, flags, tmp_path, HERE / "replay.cpp")
    assert "cases" in succeeds([program, library, recording[0], "3", str(callers)])


@pytest.mark.skipif(not FULL, reason="takes minutes; set MINIGRAPH_TEST_FULL=1")
@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm to list kernels with")
def test_every_kernel_is_among_those_run(recording: tuple[Path, set[str]]) -> None:
    symbols = succeeds(["nm", "-D", "--defined-only", the_library().path])
    kernels = set(re.findall(r" [DR] minigraph_(\w+)", symbols))
    assert len(kernels) > 100 and kernels == recording[1] | BENCHMARKED


@pytest.mark.skipif(shutil.which(CROSS_COMPILER) is None, reason=f"there is no {CROSS_COMPILER}")
def test_kernels_compile_for_aarch64_and_compute_there_what_they_compute_here(recording: tuple[Path, set[str]],
                                                                              tmp_path: Path) -> None:
    library = build_library(CROSS_COMPILER, ["-O1", "-Werror"], "aarch64")
    program = build_program(CROSS_COMPILER, ["-O1"], tmp_path, HERE / "replay.cpp")
    if shutil.which(EMULATOR) is None:
        pytest.skip(f"compiled; there is no {EMULATOR} to run it")
    assert "cases" in succeeds([EMULATOR, "-L", CROSS_ROOT, program, library, recording[0], "3", "1"])


@pytest.mark.skipif(not FULL, reason="takes minutes; set MINIGRAPH_TEST_FULL=1")
@pytest.mark.skipif(shutil.which(OTHER_COMPILER) is None, reason=f"there is no {OTHER_COMPILER}")
def test_kernels_compile_by_clang_and_compute_what_they_compute_by_gcc(recording: tuple[Path, set[str]],
                                                                       tmp_path: Path) -> None:
    library = build_library(OTHER_COMPILER, ["-Werror"], the_library().level)
    program = build_program(OTHER_COMPILER, ["-O1"], tmp_path, HERE / "replay.cpp")
    assert "cases" in succeeds([program, library, recording[0], "3", "1"])
