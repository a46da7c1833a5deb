"""Kernels by name: loaded from fatbins that CMake built, or for the software driver from modules that g++ built."""
from __future__ import annotations

import hashlib
import importlib
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ...base import MXNetError
from ..checkout import CHECKOUT
from .context import PrimaryContext
from .driver import Driver, software_builder
from .launch import Launch

STATIC_SHARED_BYTES = 48 << 10
"""Shared memory of a block that a kernel gets without asking for more."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""What the loop of a step calls: a function and its arguments."""


class Images(Protocol):
    """The kernel files of a device, one a family."""

    def stems(self) -> Sequence[str]:
        """Names of the families."""
        ...

    def load(self, stem: str) -> Any:
        """The PyCUDA module of a family."""
        ...

    def wrong_image(self, stem: str, reason: object) -> MXNetError:
        """The error for an image that the device refused."""
        ...


class Kernels:
    """All kernels of a device. A family's module is loaded when one of its kernels is first asked for."""

    def __init__(self, driver: Driver, images: Images) -> None:
        self._driver = driver
        self._images = images
        self._functions: dict[str, Any] = {}
        self._modules: dict[str, Any] = {}
        self._lock = threading.RLock()

    def function(self, name: str, family: str = "") -> Any:
        """The PyCUDA function of a kernel, sought in `family` first; MXNetError when no family has it."""
        found = self._functions.get(name)
        if found is None:
            with self._lock:
                found = self._functions[name] = self._find(name, family)
        return found

    def call(self, launch: Launch, stream: Any, family: str = "") -> Call:
        """A launch made ready: its arguments packed as the kernel takes them."""
        function = self.function(launch.kernel, family)
        if launch.shared_bytes > STATIC_SHARED_BYTES:
            limit = self._driver.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(limit, launch.shared_bytes)
        formats = [form for form, _ in launch.args]
        values = [v for _, value in launch.args for v in (value if isinstance(value, tuple) else (value,))]
        return ready(function, launch, stream, formats, values)

    def _find(self, name: str, family: str) -> Any:
        for module in self._all_modules(family):
            try:
                return module.get_function(name)
            except self._driver.cuda.LogicError:
                continue
        raise MXNetError(f"there is no CUDA kernel {name} in the families {', '.join(self._images.stems())}; the "
                         f"kernels are older than the Python part: install minigraph again")

    def _all_modules(self, first: str) -> Iterator[Any]:
        """The loaded modules, then the others, loaded one by one as they are looked at."""
        yield from list(self._modules.values())
        for stem in sorted(self._images.stems(), key=lambda stem: (stem != first, stem)):
            if stem not in self._modules:
                self._modules[stem] = self._load(stem)
                yield self._modules[stem]

    def _load(self, stem: str) -> Any:
        try:
            return self._driver.keep(self._images.load(stem))
        except self._driver.cuda.Error as error:
            raise self._images.wrong_image(stem, error) from error


def ready(function: Any, launch: Launch, stream: Any, formats: Sequence[str], values: Sequence[Any]) -> Call:
    """One launch as a call: PyCUDA's own inner call, or its public one where a version lacks that."""
    direct = getattr(function, "_launch_kernel", None)
    if direct is not None:
        packed = struct.pack("@" + "".join(formats), *values)
        return direct, (launch.grid, launch.block, packed, launch.shared_bytes, stream)
    prepared = function.prepare("".join(formats))
    return partial(prepared.prepared_async_call, shared_size=launch.shared_bytes), (launch.grid, launch.block, stream,
                                                                                    *values)


class FatbinImages:
    """Fatbins in `minigraph/_kernels`, for the GPU architectures that CMake was told; where the build does not say
    which file has a family, it is the one of its name."""

    def __init__(self, driver: Driver, context: PrimaryContext, folders: Sequence[Path],
                 build_info: ModuleType | None) -> None:
        self._driver, self._context, self._info = driver, context, build_info
        files = {file.stem: file for folder in folders for file in sorted(folder.glob("*.fatbin"))}
        units = getattr(build_info, "KERNELS", {})
        self._files = {stem: file for stem, file in files.items() if stem not in units.values()}
        self._files.update({stem: files[unit] for stem, unit in units.items() if unit in files})
        self._loaded: dict[Path, Any] = {}
        if not self._files:
            reason = getattr(build_info, "NO_KERNELS_BECAUSE", "") or "it was not built by CMake"
            raise MXNetError(f"this installation of minigraph has no CUDA kernels ({reason}), so {context.device_name} "
                             f"cannot be used; put nvcc of CUDA 13 on PATH and install minigraph again, or run on "
                             f"mx.cpu()")
        built = self._architectures()
        if built and capability(context) < min(built):
            raise self.wrong_image(next(iter(self._files)), "its architecture is older than all of these")

    @classmethod
    def installed(cls, driver: Driver, context: PrimaryContext) -> FatbinImages:
        """Those of this installation."""
        package = importlib.import_module("minigraph")
        try:
            info: ModuleType | None = importlib.import_module("minigraph._build_info")
        except ImportError:
            info = None
        return cls(driver, context, [Path(folder) / "_kernels" for folder in package.__path__], info)

    def stems(self) -> Sequence[str]:
        """Names of the families."""
        return list(self._files)

    def load(self, stem: str) -> Any:
        """The module of a family, which those of one file share; the driver picks the device's code from the file."""
        file = self._files[stem]
        if file not in self._loaded:
            self._loaded[file] = self._driver.cuda.module_from_buffer(file.read_bytes())
        return self._loaded[file]

    def wrong_image(self, stem: str, reason: object) -> MXNetError:
        """Names the card, its architecture, what was built, and the remedy."""
        mine = capability(self._context)
        built = ", ".join(f"sm_{arch}" for arch in self._architectures()) or "unknown architectures"
        return MXNetError(f"{self._context.device_name} (sm_{mine}) cannot run the kernels of "
                          f"{self._files[stem].name}, which nvcc built for {built} ({reason}); install minigraph "
                          f"again with pip install -C cmake.define.MINIGRAPH_CUDA_ARCHITECTURES={mine}, with an nvcc "
                          f"that knows sm_{mine}, or run on mx.cpu()")

    def _architectures(self) -> tuple[int, ...]:
        return tuple(getattr(self._info, "CUDA_ARCHITECTURES", ()))


class SoftwareImages:
    """Modules for the software driver, built from the checkout's kernels and kept by a digest of what made them."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sources = CHECKOUT / "kernels"
        self._builder = software_builder()
        if self._builder is None or not self._sources.is_dir():
            raise MXNetError(f"the software CUDA driver needs the kernels' sources, and there are none in "
                             f"{self._sources}; run from a checkout of minigraph")

    def stems(self) -> Sequence[str]:
        """Names of the families."""
        return sorted(file.stem for file in self._sources.glob("*.cu"))

    def load(self, stem: str) -> Any:
        """The module of a family, built now unless one of the same sources is kept."""
        assert self._builder is not None
        path = self._builder.build_dir() / "modules" / f"{stem}-{self._digest(stem)}.so"
        if not path.is_file():
            try:
                self._builder.build_module([self._sources / f"{stem}.cu"], path, flags=[f"-I{self._sources}"])
            except self._builder.BuildError as error:
                raise MXNetError(f"kernels/{stem}.cu does not build for the software driver: {error}") from error
        return self._driver.cuda.module_from_file(str(path))

    def wrong_image(self, stem: str, reason: object) -> MXNetError:
        """Names the file."""
        return MXNetError(f"the software CUDA driver refuses the module of kernels/{stem}.cu ({reason}); remove the "
                          f"build cache and try again")

    def _digest(self, stem: str) -> str:
        """Of sources, headers, the builder with its flags, and the compiler's name."""
        assert self._builder is not None and self._builder.__file__ is not None
        builder = Path(self._builder.__file__)
        files = [self._sources / f"{stem}.cu", *sorted(self._sources.glob("*.h")), builder,
                 *sorted(builder.parent.glob("*.h"))]
        digest = hashlib.sha256(self._driver.settings.compiler.encode())
        for file in files:
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


def capability(context: PrimaryContext) -> int:
    """The device's architecture as nvcc counts: 90 for compute capability 9.0."""
    major, minor = context.compute_capability
    return 10 * major + minor
