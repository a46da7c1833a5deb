"""Build PyCUDA's wheel for the running interpreter, without a GPU driver and without a toolkit on PATH.

PyCUDA has no wheels on PyPI. Its build wants ``cuda.h`` and a libcuda to link with, and reads its settings
from one file only, ``$HOME/.aksetup-defaults.py``; so it gets a home of its own that names the headers that
``build.py`` finds and the software driver. The wheel runs with any libcuda of CUDA 13. It takes one to two
minutes to build, so it is kept in the cache folder (``MINIGRAPH_BUILD_CACHE``, else ``~/.cache/minigraph``).

Command line: ``python build_pycuda.py [--install]`` prints the wheel's path; ``--install`` installs it too.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__:
    from .build import BuildError, build_dir, build_driver, cache_dir, find_cuda_include, locked
else:  # run as a script: this folder is the first in sys.path
    from build import (  # type: ignore[no-redef]
        BuildError,
        build_dir,
        build_driver,
        cache_dir,
        find_cuda_include,
        locked,
    )

VERSION = "2026.1"


def find_wheel() -> Path | None:
    """The cached wheel for the running interpreter, or None."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next((cache_dir() / "wheels").glob(f"pycuda-{VERSION}-{tag}-{tag}-*.whl"), None)


def build_wheel() -> Path:
    """The wheel for the running interpreter: the cached one, or else built now (1 to 2 minutes).

    Raises BuildError with the end of pip's output if the build fails, as it does without a package index.
    """
    folder = cache_dir() / "wheels"
    with locked(folder / f"pycuda-{VERSION}"):
        if wheel := find_wheel():
            return wheel
        with tempfile.TemporaryDirectory() as home:
            _write_settings(Path(home))
            source = ["--no-deps", "--no-binary", "pycuda", f"pycuda=={VERSION}"]
            _pip("wheel", *source, "-w", str(folder), home=home)
    if wheel := find_wheel():
        return wheel
    raise BuildError(f"pip built no wheel of pycuda {VERSION} for this interpreter in {folder}")


def install() -> Path:
    """Install numpy and the wheel into the running interpreter; the wheel's path."""
    wheel = build_wheel()
    _pip("install", "numpy")
    _pip("install", "--no-deps", str(wheel))
    return wheel


def _write_settings(home: Path) -> None:
    driver = build_driver(build_dir())
    settings = {
        "CUDA_ROOT": None,
        "CUDA_INC_DIR": [str(find_cuda_include())],
        "CUDADRV_LIB_DIR": [str(driver.parent)],
        "CUDA_ENABLE_CURAND": False,
        "CXXFLAGS": ["-g0", "-O1", "-w"],       # templates take the time; nothing in it is hot
        "LDFLAGS": ["-Wl,-s"],
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (home / ".aksetup-defaults.py").write_text("".join(lines))


def _pip(*arguments: str, home: str | None = None) -> None:
    environment = dict(os.environ)
    if home:  # pip's own cache would move with HOME
        environment.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
        environment["HOME"] = home
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-6000:]}")


def main() -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Build PyCUDA's wheel for this interpreter.")
    parser.add_argument("--install", action="store_true", help="install the wheel and numpy too")
    given = parser.parse_args()
    try:
        print(install() if given.install else build_wheel())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
