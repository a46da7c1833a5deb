"""Which library is taken, what is refused, and that NumPy takes over aloud."""
from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.device.checkout import CHECKOUT
from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.native import library
from minigraph.device.cpu.native.call import NativeCall, int64
from minigraph.device.cpu.native.settings import Settings, available_cores

from .harness import the_library, threads


def test_auto_takes_the_newest_level_that_the_cpu_has() -> None:
    found = the_library()
    files = [path.stem.removeprefix("cpu-") for path in sorted(found.path.parent.glob("cpu-*.so"))]
    fit = [level for level in files if library._number(level) <= found.newest_level]
    assert found.level == fit[-1] and library.find_library(found.level) is found


def test_every_level_that_the_cpu_has_can_be_chosen() -> None:
    newest = the_library()
    for path in newest.path.parent.glob("cpu-*.so"):
        level = path.stem.removeprefix("cpu-")
        if library._number(level) <= newest.newest_level:
            assert CpuDevice(kernels=level).library.level == level  # type: ignore[union-attr]


def test_numpy_is_a_choice_and_an_unknown_level_is_refused_with_those_there_are() -> None:
    assert CpuDevice(kernels="numpy").library is None and CpuDevice(kernels="numpy").algorithms is None
    level = the_library().level
    with pytest.raises(MXNetError, match=f"no CPU kernels 'x86-64-v9'; choose from auto, numpy.*{level}"):
        CpuDevice(kernels="x86-64-v9").library  # noqa: B018


def test_without_a_compiler_numpy_computes_and_a_warning_says_so_once(monkeypatch: pytest.MonkeyPatch,
                                                                        tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("MINIGRAPH_BUILD_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_warned", False)
    with pytest.warns(RuntimeWarning, match="computes in NumPy.*no-such-compiler is not on PATH"):
        assert CpuDevice().library is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CpuDevice().library is None
        out = mx.sym.Activation(mx.sym.Variable("x"), act_type="relu").simple_bind(mx.cpu(), x=(2, 2))
        assert "blocks" in out.plan.instructions.algorithm


def test_settings_come_from_the_environment_and_nonsense_is_refused() -> None:
    given = Settings.read({"MINIGRAPH_CPU_KERNELS": "numpy", "MINIGRAPH_CPU_THREADS": "3", "CXX": "clang++"})
    assert (given.kernels, given.threads, given.compiler) == ("numpy", 3, "clang++")
    assert Settings.read({}).threads == available_cores() and Settings.read({}).kernels == "auto"
    with pytest.raises(MXNetError, match="MINIGRAPH_CPU_THREADS is 'many'; give a number"):
        Settings.read({"MINIGRAPH_CPU_THREADS": "many"})


def test_threads_are_set_for_all_libraries_and_at_least_one_is_asked_for() -> None:
    found = the_library()
    with threads(5):
        assert found.threads == 5 == mx.get_num_threads()
    with pytest.raises(MXNetError, match="one thread or more, got 0"):
        mx.set_num_threads(0)


def test_a_kernel_with_other_arguments_and_one_that_is_missing_are_refused() -> None:
    found = the_library()
    with pytest.raises(MXNetError, match="relu_forward .* takes 24 bytes of arguments, got 8"):
        NativeCall("relu_forward", (int64(1),)).pack(found)
    with pytest.raises(MXNetError, match="no kernel relu_sideways"):
        NativeCall("relu_sideways", ()).pack(found)


def test_importing_minigraph_loads_no_library() -> None:
    code = "import sys, minigraph, minigraph.symbol; sys.exit('minigraph.device.cpu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT).returncode == 0


def test_a_plan_for_kernels_is_refused_by_a_device_without_them() -> None:
    the_library()
    x = mx.sym.Variable("x")
    plan = mx.sym.Activation(x, act_type="relu").simple_bind(mx.cpu(), x=(2, 2)).plan
    device = CpuDevice(kernels="numpy")
    memory = device.memory()
    memory.reserve(*(arena.bytes for arena in plan.arenas[:2]))
    program = device.load(plan, memory)
    with pytest.raises(MXNetError, match="native.direct.*compile the plan for this device"):
        program.run(next(iter(plan.ranges)))
