"""The kernels' library: which file suits the running CPU, and kernels in it by name.

Nothing is loaded before it is used. Where there is no library, and no compiler to make one in a checkout, NumPy
computes instead; a warning says so once.
"""
from __future__ import annotations

import ctypes
import threading
import warnings
from pathlib import Path

from ....base import MXNetError
from ...checkout import checkout_script
from .settings import Settings

PACKAGE = Path(__file__).resolve().parents[3]
NUMPY = "numpy"
"""The choice of no library."""


class _Info(ctypes.Structure):
    """`KernelInfo` of kernels/cpu/kernel.h."""

    _fields_ = (("run", ctypes.c_void_p), ("args_bytes", ctypes.c_int64))


class Library:
    """One loaded library; `level` is the instruction set that it is compiled for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.level = path.stem.removeprefix("cpu-")
        try:
            self._library = ctypes.CDLL(str(path))
            self.run = self._library.minigraph_run
            self._library.minigraph_thread_bytes.restype = ctypes.c_int64
        except (OSError, AttributeError) as error:
            raise MXNetError(f"the CPU kernels in {path} cannot be loaded ({error}); install minigraph again, or set "
                             f"MINIGRAPH_CPU_KERNELS=numpy") from error
        self.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double)
        self.run.restype = ctypes.c_int64
        self._kernels: dict[str, tuple[int, int]] = {}

    def kernel(self, name: str) -> tuple[int, int]:
        """Address of a kernel's function, and size in bytes of its arguments; MXNetError when there is none."""
        found = self._kernels.get(name)
        if found is None:
            try:
                info = _Info.in_dll(self._library, f"minigraph_{name}")
            except ValueError as error:
                raise MXNetError(f"there is no kernel {name} in {self.path}, which is older than the Python part: "
                                 f"install minigraph again") from error
            found = self._kernels[name] = info.run, info.args_bytes
        return found

    @property
    def threads(self) -> int:
        """Threads that a kernel may use."""
        return self._library.minigraph_threads()

    @threads.setter
    def threads(self, count: int) -> None:
        self._library.minigraph_set_threads(count)

    @property
    def thread_bytes(self) -> int:
        """What each of its threads takes beside the planned bytes, at most: stack and scratch."""
        return self._library.minigraph_thread_bytes()

    @property
    def newest_level(self) -> int:
        """The newest x86-64 level, 2 to 4, that the running CPU has; 0 for less and elsewhere."""
        return self._library.minigraph_level()


_lock = threading.Lock()
_libraries: dict[Path, Library] = {}
_chosen: dict[tuple[str, Settings], Library | None] = {}
_threads: int | None = None
_warned = False


def set_num_threads(count: int) -> None:
    """Let kernels on the CPU use so many threads from now on, the caller's among them; results do not depend on it."""
    global _threads
    if count < 1:
        raise MXNetError(f"kernels need one thread or more, got {count}")
    with _lock:
        _threads = count
        for library in _libraries.values():
            library.threads = count


def get_num_threads() -> int:
    """Threads that kernels on the CPU may use."""
    return _threads or Settings.read().threads


def find_library(choice: str | None = None) -> Library | None:
    """The library of a choice: "auto", a level, "numpy" (None), or None for what the environment says.

    `auto` takes the newest level that the CPU has, and None, after a warning, where there is no library. MXNetError
    for a level that is unknown, was not built, or that the CPU lacks.
    """
    settings = Settings.read()
    choice = choice or settings.kernels
    if choice == NUMPY:
        return None
    with _lock:
        if (choice, settings) not in _chosen:
            _chosen[choice, settings] = _choose(choice, settings)
        return _chosen[choice, settings]


def _choose(choice: str, settings: Settings) -> Library | None:
    files, reason = _files(settings)
    if choice == "auto":
        return _newest(files, reason)
    if choice not in files:
        raise MXNetError(f"there are no CPU kernels {choice!r}; choose from auto, numpy"
                         f"{''.join(f', {name}' for name in files)}{f' ({reason})' if reason else ''}")
    if _number(choice) > _load(next(iter(files.values()))).newest_level:
        raise MXNetError(f"this CPU cannot run kernels for {choice}; choose auto")
    return _load(files[choice])


def _number(level: str) -> int:
    """4 for x86-64-v4; 0 for an architecture without levels."""
    _, mark, number = level.partition("-v")
    return int(number) if mark else 0


def _newest(files: dict[str, Path], reason: str) -> Library | None:
    if files:
        lowest = _load(next(iter(files.values())))
        fit = [path for level, path in files.items() if _number(level) <= lowest.newest_level]
        if fit:
            return _load(fit[-1])
        reason = f"this CPU lacks what {lowest.level} needs"
    _warn_once(reason)
    return None


def _load(path: Path) -> Library:
    library = _libraries.get(path)
    if library is None:
        library = _libraries[path] = Library(path)
        library.threads = get_num_threads()
    return library


def _warn_once(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"minigraph computes in NumPy, which is slower than its own CPU kernels: {reason}; install "
                      f"minigraph where g++ is for those, or ask for NumPy with MINIGRAPH_CPU_KERNELS=numpy",
                      RuntimeWarning, stacklevel=4)


def _files(settings: Settings) -> tuple[dict[str, Path], str]:
    """Libraries by level, the lowest first, and why there are none."""
    folder, reason = PACKAGE / "_kernels", "this installation was made without a C++ compiler"
    builder = checkout_script("minigraph_cpu_build", "kernels", "cpu", "build.py")
    if builder is not None:
        try:
            folder = builder.build(settings.build_cache, settings.compiler)
        except builder.BuildError as error:
            return {}, str(error)
    files = {path.stem.removeprefix("cpu-"): path for path in sorted(folder.glob("cpu-*.so"))}
    return files, "" if files else reason
