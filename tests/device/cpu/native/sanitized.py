"""Run test files over a library built with sanitizers: `python -m tests.device.cpu.native.sanitized FLAGS FILES`.

FLAGS are compiler flags, separated by commas. The sanitizers' runtime must have been preloaded, and the library built
before that (`build`), for with the runtime the compiler takes ten times as long.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from minigraph.device.checkout import checkout_script
from minigraph.device.cpu.native import library
from minigraph.device.cpu.native.settings import Settings

OTHERS = ("--deselect", "tests/device/cpu/native/test_pool.py::test_a_long_run_of_kernels_lets_python_look_at_signals")
"""Left out: a test in a process of its own, which has other kernels."""


def build(flags: str) -> Path:
    """The library with these flags, for the newest level that this CPU has; made unless it is there."""
    found, settings = library.find_library("auto"), Settings.read()
    builder = checkout_script("minigraph_cpu_build", "kernels", "cpu", "build.py")
    assert found is not None and builder is not None
    return builder.build(settings.build_cache, settings.compiler, flags.split(","), [found.level]) / found.path.name


def main(flags: str, files: Sequence[str]) -> int:
    """pytest's exit status of the files."""
    checked = library.Library(build(flags))
    library._libraries[checked.path] = checked
    for choice in ("auto", checked.level):
        library._chosen[choice, Settings.read()] = checked
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *OTHERS, *files]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
