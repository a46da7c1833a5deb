"""Run test files over a library built with sanitizers: `python -m tests.device.cpu.native.sanitized FLAGS FILES`.

FLAGS are compiler flags, separated by commas; the sanitizers' runtime must have been preloaded.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from minigraph.device.checkout import checkout_script
from minigraph.device.cpu.native import library
from minigraph.device.cpu.native.settings import Settings


def main(flags: str, files: Sequence[str]) -> int:
    """pytest's exit status of the files, with kernels for the newest level that this CPU has."""
    found = library.find_library("auto")
    assert found is not None
    settings = Settings.read()
    builder = checkout_script("minigraph_cpu_build", "kernels", "cpu", "build.py")
    assert builder is not None
    folder = builder.build(settings.build_cache, settings.compiler, flags.split(","), [found.level])
    checked = library.Library(folder / found.path.name)
    library._libraries[checked.path] = checked
    for choice in ("auto", found.level):
        library._chosen[choice, settings] = checked
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
