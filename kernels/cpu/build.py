"""Compile the CPU kernels of a checkout, one shared library for each instruction-set level of this machine.

`build` keeps them in a folder named by a digest of sources, flags and compiler, builds only what is missing there, and
may be called from several processes at once. An installation has its libraries from CMake, by the same flags.json.
Command line: ``python build.py CACHE [extra compiler flags]`` prints the folder.
"""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent


class BuildError(RuntimeError):
    """A compiler is missing or fails; the text says which and what to do."""


def build(cache: Path, compiler: str = "g++", extra: Sequence[str] = (), levels: Sequence[str] | None = None) -> Path:
    """The folder with `cpu-LEVEL.so` for each level of this machine's architecture, built unless it is there.

    `extra` are further compiler flags; `levels` restricts to some. Raises BuildError.
    """
    found = shutil.which(compiler)
    if found is None:
        raise BuildError(f"the C++ compiler {compiler} is not on PATH: install g++ 9 or newer, or clang, and set CXX")
    files = {path.name: path.read_bytes() for path in sorted(HERE.iterdir())
             if path.suffix in (".cpp", ".h", ".json", ".py")}
    folder = cache / f"cpu-{_digest(found, extra, files)}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_missing(folder, found, files, extra, levels)
    return folder


def _digest(compiler: str, extra: Sequence[str], files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(f"{compiler} {list(extra)}".encode())
    for content in files.values():
        digest.update(content)
    return digest.hexdigest()[:16]


def _build_missing(folder: Path, compiler: str, files: Mapping[str, bytes], extra: Sequence[str],
                   levels: Sequence[str] | None) -> None:
    flags = json.loads(files["flags.json"])
    machine = _run([compiler, "-dumpmachine"]).split("-")[0]
    known = flags["levels"].get(machine)
    if known is None:
        raise BuildError(f"{compiler} compiles for {machine}; flags.json has {', '.join(flags['levels'])}")
    missing = {level: own for level, own in known.items()
               if not (folder / f"cpu-{level}.so").exists() and (levels is None or level in levels)}
    if not missing:
        return
    with tempfile.TemporaryDirectory(dir=folder) as work:
        # What is compiled is what the folder is named after, even if somebody edits a file meanwhile.
        for name, content in files.items():
            (Path(work) / name).write_bytes(content)
        sources = sorted(Path(work).glob("*.cpp"))
        objects = {level: [Path(work) / f"{level}-{source.stem}.o" for source in sources] for level in missing}
        _run_all([[compiler, *flags["compile"], *own, *extra, "-c", source, "-o", target]
                  for level, own in missing.items() for source, target in zip(sources, objects[level], strict=True)])
        for level in missing:
            built = Path(work) / f"cpu-{level}.so"
            _run([compiler, *objects[level], *flags["link"], *extra, "-o", built])
            built.replace(folder / built.name)


def _run(command: Sequence[object]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-6000:]}")
    return done.stdout


def _run_all(commands: Sequence[Sequence[object]]) -> None:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(_run, commands))


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), os.environ.get("CXX") or "g++", sys.argv[2:]))
