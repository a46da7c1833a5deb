"""Finding and loading the CUDA driver, once a process: the machine's own, or the project's software driver.

This is the one place that reads settings from the environment:

    MINIGRAPH_CUDA_DRIVER   real (default), software, or the path of a libcuda.so.1
    MINIGRAPH_CUDA_POOL     on (default); off gives every buffer an allocation of its own, so that the software driver's
                            guard pages catch a kernel that leaves its buffer
    MINIGRAPH_CUDA_MEMORY   the most device memory to take, such as 8GiB (default: all there is)
    MINIGRAPH_BUILD_CACHE   where the software driver and kernels for it are kept (default ~/.cache/minigraph)
    CXX                     the compiler of kernels for the software driver (default g++)
    SOFTCUDA_RACE           1 when the software driver looks for races: then it is told which bytes a launch uses

PyCUDA is imported here and nowhere else, and only when a GPU is asked for.
"""
from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ...base import MXNetError, parse_bytes
from ..checkout import checkout_script

FORKED = ("this process was forked from one that had used the GPU, and CUDA does not survive a fork; start it with "
          "multiprocessing's \"spawn\" method, or leave the GPU to the parent")


class CudaUnavailableError(MXNetError):
    """There is no GPU to use here; the text says what is missing and what to do."""


@dataclass(frozen=True)
class Settings:
    """What the environment asks for; see the module's docstring."""

    driver: str = "real"
    pooled: bool = True
    capacity_bytes: int | None = None
    detects_races: bool = False
    build_cache: Path = Path.home() / ".cache" / "minigraph"
    compiler: str = "g++"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """The settings of an environment; MXNetError for a word that means nothing."""
        pool = environment.get("MINIGRAPH_CUDA_POOL") or "on"
        if pool not in ("on", "off"):
            raise MXNetError(f"MINIGRAPH_CUDA_POOL is {pool!r}; it must be on or off")
        capacity = environment.get("MINIGRAPH_CUDA_MEMORY")
        cache = environment.get("MINIGRAPH_BUILD_CACHE")
        return cls(environment.get("MINIGRAPH_CUDA_DRIVER") or "real", pool == "on",
                   None if not capacity else _parse_capacity(capacity), environment.get("SOFTCUDA_RACE") == "1",
                   Path(cache) if cache else cls.build_cache, environment.get("CXX") or "g++")


def _parse_capacity(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise MXNetError(f"MINIGRAPH_CUDA_MEMORY: {error}") from error


class Driver:
    """The loaded driver: `cuda` is `pycuda.driver`, and `library` the same libcuda through ctypes.

    `unusable` is None, or the sentence that whoever still touches the GPU is told: after a fork, and at exit.
    Objects of PyCUDA are noted with `keep` until they are freed, for a child of a fork must not destroy them.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.library = load_library(settings)
        self.version = _library_version(self.library)
        self.is_software = hasattr(self.library, "softcuda_counter")
        self.cuda: Any = import_pycuda(self.version)
        self.device_count = initialise(self.cuda)
        self.unusable: str | None = None
        self._kept: dict[int, object] = {}
        self._at_exit: list[Callable[[], None]] = []
        self._declare_extras()
        os.register_at_fork(after_in_child=self._disown)
        atexit.register(self._exit)

    def keep(self, thing: Any) -> Any:
        """Note an object of PyCUDA that owns something of the driver's; the object itself."""
        self._kept[id(thing)] = thing
        return thing

    def drop(self, thing: object) -> None:
        """Forget an object that has been freed."""
        self._kept.pop(id(thing), None)

    def at_exit(self, callback: Callable[[], None]) -> None:
        """Call back when the interpreter ends, in the process that loaded the driver only."""
        self._at_exit.append(callback)

    def check(self) -> None:
        """MXNetError when the GPU can no longer be used in this process."""
        if self.unusable is not None:
            raise MXNetError(self.unusable)

    def _declare_extras(self) -> None:
        """The software driver's own functions: `region`, `touch` and `poison`, None where they mean nothing."""
        races = self.is_software and self.settings.detects_races
        self.region: Callable[[int, int], None] | None = None
        self.touch: Callable[[int, int, int], None] | None = None
        self.poison: Callable[[int, int], None] | None = None
        if races:
            self.region = _extra(self.library.softcuda_region, ctypes.c_uint64, ctypes.c_size_t)
            self.touch = _extra(self.library.softcuda_touch, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if self.is_software:
            self.poison = _extra(self.library.softcuda_poison, ctypes.c_uint64, ctypes.c_size_t)

    def _disown(self) -> None:
        """In a child of a fork: PyCUDA's objects are made immortal, so that none calls the driver when it dies."""
        self.unusable = FORKED
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kept))

    def _exit(self) -> None:
        if self.unusable is None:
            for callback in self._at_exit:
                callback()
            self.unusable = "the interpreter is ending, and the GPU has been given back"


def _extra(function: Any, *types: Any) -> Any:
    function.argtypes, function.restype = types, None
    return function


_lock = threading.RLock()
_driver: Driver | None = None


def get_driver() -> Driver:
    """The process's driver, loaded on first use; CudaUnavailableError tells what is missing."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = Driver(Settings.read(os.environ))
        return _driver


def device_count() -> int:
    """Number of GPUs that can be used: 0 without PyCUDA, a driver or a device."""
    try:
        return get_driver().device_count
    except CudaUnavailableError:
        return 0


# -- the library ---------------------------------------------------------------------------------------------------

def load_library(settings: Settings) -> ctypes.CDLL:
    """Load libcuda for the whole process: the dynamic linker then takes it for the one that PyCUDA asks for."""
    if settings.driver == "real":
        try:
            return ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise CudaUnavailableError(
                "there is no NVIDIA driver here (libcuda.so.1 was not found), so no GPU can be used; install the "
                "driver on a machine with an NVIDIA GPU, or run on mx.cpu()") from error
    path = software_library(settings) if settings.driver == "software" else Path(settings.driver)
    if not path.is_file():
        raise CudaUnavailableError(f"MINIGRAPH_CUDA_DRIVER names {path}, which is no file; set it to real, software, "
                                   f"or the path of a libcuda.so.1")
    return _load_path(path)


def _load_path(path: Path) -> ctypes.CDLL:
    try:
        before: ctypes.CDLL | None = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        before = None
    try:
        library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CudaUnavailableError(f"{path} cannot be loaded as a CUDA driver: {error}") from error
    if before is not None and before._handle != library._handle:
        raise MXNetError(f"another libcuda.so.1 was loaded into this process before {path}; ask for the GPU before "
                         f"importing what loads the other, or run without MINIGRAPH_CUDA_DRIVER")
    return library


def software_library(settings: Settings) -> Path:
    """The software driver's libcuda.so.1: built from the checkout when there is one, or else what the cache holds."""
    builder = software_builder()
    if builder is not None:
        try:
            return builder.build_driver(builder.build_dir())
        except builder.BuildError as error:
            raise CudaUnavailableError(f"the software CUDA driver cannot be built: {error}") from error
    built = sorted(settings.build_cache.glob("softcuda-*/libcuda.so.1"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise CudaUnavailableError(f"there is no software CUDA driver in {settings.build_cache}; run from a checkout "
                                   f"of minigraph, which has its source in tests/softcuda, or set "
                                   f"MINIGRAPH_CUDA_DRIVER to the path of one")
    return built[-1]


def software_builder() -> ModuleType | None:
    """The checkout's tests/softcuda/build.py, or None where minigraph does not run from a checkout."""
    return checkout_script("minigraph_softcuda_build", "tests", "softcuda", "build.py")


def _library_version(library: ctypes.CDLL) -> int:
    """The CUDA version that a driver library supports, as CUDA counts: 13020 is 13.2; 0 when it does not say."""
    version = ctypes.c_int(0)
    ask = getattr(library, "cuDriverGetVersion", None)
    return version.value if ask is not None and ask(ctypes.byref(version)) == 0 else 0


def format_version(version: int) -> str:
    """13020 -> '13.2'."""
    return f"{version // 1000}.{version % 1000 // 10}"


# -- PyCUDA --------------------------------------------------------------------------------------------------------

def import_pycuda(version: int) -> ModuleType:
    """`pycuda.driver`, checked against the driver's version; CudaUnavailableError when either will not do."""
    try:
        cuda = importlib.import_module("pycuda.driver")
    except ModuleNotFoundError as error:
        raise CudaUnavailableError("PyCUDA is not installed, so no GPU can be used; install it with pip install "
                                   "'minigraph[cuda]', or run on mx.cpu()") from error
    except ImportError as error:
        raise CudaUnavailableError(f"PyCUDA does not load with this NVIDIA driver, which supports CUDA "
                                   f"{format_version(version)} ({error}); update the driver, or build PyCUDA with the "
                                   f"headers of that CUDA version") from error
    built_with = cuda.get_version()
    if version // 1000 < built_with[0]:
        raise CudaUnavailableError(f"the NVIDIA driver is too old: it supports CUDA {format_version(version)}, and "
                                   f"PyCUDA was built with CUDA {built_with[0]}.{built_with[1]}; update the driver")
    return cuda


def initialise(cuda: Any) -> int:
    """Initialise the driver; the number of its devices. CudaUnavailableError when there is none."""
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise CudaUnavailableError(f"the NVIDIA driver finds no GPU that it can use ({error}); check nvidia-smi, or "
                                   f"run on mx.cpu()") from error
    if count == 0:
        raise CudaUnavailableError("the NVIDIA driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or run "
                                   "on mx.cpu()")
    return count
