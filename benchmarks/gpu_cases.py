"""The cases of the GPU suite but two sections: the machine, kernel files, wrappers, operators, launches, overlap."""
from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
KERNELS = CHECKOUT / "kernels"
WRAPPERS = CHECKOUT / "tests" / "softcuda" / "kernels" / "tensor.cu"
"""Kernels that use each wrapper of kernels/mma.h alone."""
NVCC_FLAGS = ("-O3", "-std=c++17", "-fatbin", "-gencode",
              "arch=compute_80,code=[sm_80,sm_90,compute_80]", f"-I{KERNELS}")
TOOLS = (("nvcc", "--version"),
         ("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,memory.total", "--format=csv,noheader"))
QUICK_OPS = ("exp", "FullyConnected", "softmax", "sum", "_sgd_mom_update")
QUICK_FAMILIES = ("unary", "dense")


@dataclass(frozen=True)
class Case:
    """One thing to check or time: `run` gives its figures, and raises when it is wrong."""

    name: str
    run: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    out: Path
    quick: bool
    fatbins: Path | None

    @property
    def built(self) -> Path:
        """The folder of the kernels that nvcc compiles for this run."""
        return self.fatbins or self.out / "_kernels"


class Absent(Exception):
    """What a case needs is not here; the text says what."""


# -- the device ----------------------------------------------------------------------------------------------

def open_device(options: Options) -> Any:
    """The device gpu(0), with the kernels of this run where the installation has none."""
    package = importlib.import_module("minigraph")
    if options.built.is_dir() and str(options.built.parent) not in package.__path__:
        package.__path__.insert(0, str(options.built.parent))
    from minigraph.device.cuda import cuda_device
    return cuda_device(0)


def context_answers() -> bool:
    """Whether the device, if it was opened, still works; a fault in a kernel ends its context."""
    from minigraph.device.cuda.device import _devices
    try:
        for device in _devices.values():
            device.context.synchronize()
    except Exception:
        return False
    return True


def is_software() -> bool:
    """Whether the software driver was asked for."""
    return (os.environ.get("MINIGRAPH_CUDA_DRIVER") or "real") != "real"


# -- kernels -------------------------------------------------------------------------------------------------

def build(options: Options) -> list[Case]:
    """Compile the kernels with nvcc, unless the run has them or needs none."""
    return [Case("nvcc", partial(_build, options))]


def _build(options: Options) -> dict[str, Any]:
    if is_software():
        raise Absent("the software driver builds its own modules")
    if options.fatbins is not None:
        raise Absent(f"the kernels of {options.fatbins} are used")
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise Absent("nvcc is not on PATH; the installation's kernels are used")
    options.built.mkdir(parents=True, exist_ok=True)
    sources = {path.stem: path for path in sorted(KERNELS.glob("*.cu"))}

    def compile_one(stem: str, source: Path) -> tuple[str, float]:
        start = time.perf_counter()
        target = options.built / f"{stem}.fatbin" if stem in sources else options.out / f"{stem}.fatbin"
        done = subprocess.run([nvcc, *NVCC_FLAGS, "-o", target, source], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvcc {source.name} failed: {done.stderr[-1500:]}")
        return stem, time.perf_counter() - start

    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        each = dict(pool.map(lambda item: compile_one(*item), [*sources.items(), ("wrappers", WRAPPERS)]))
    slowest = max(each, key=lambda stem: each[stem])
    return {"files": len(each), "seconds": time.perf_counter() - start, "slowest": slowest,
            "slowest_seconds": each[slowest]}


def machine(options: Options) -> list[Case]:
    """Names and versions of all that takes part."""
    return [Case("card", partial(_card, options)), Case("versions", _versions)]


def _versions() -> dict[str, Any]:
    import minigraph
    found: dict[str, Any] = {"minigraph": minigraph.__version__, "python": platform.python_version(),
                             "numpy": np.__version__, "cpu_count": os.cpu_count()}
    for module in ("pycuda", "torch"):
        try:
            found[module] = metadata.version(module)
        except metadata.PackageNotFoundError:
            found[module] = "not installed"
    for tool, *options in TOOLS:
        if shutil.which(tool):
            said = subprocess.run([tool, *options], capture_output=True, text=True, timeout=60).stdout.strip()
            found[tool] = said.splitlines()[-1] if said else "says nothing"
    return found


def _card(options: Options) -> dict[str, Any]:
    device = open_device(options)
    context = device.context
    with context:
        free, total = device.driver.cuda.mem_get_info()
    return {"name": context.device_name, "capability": ".".join(map(str, context.compute_capability)),
            "cuda": device.driver.version, "software": device.driver.is_software, "total_bytes": int(total),
            "free_bytes": int(free)}


def fatbins(options: Options) -> list[Case]:
    """Load every kernel file of the device."""
    stems = [path.stem for path in sorted(KERNELS.glob("*.cu")) if not options.quick or path.stem in QUICK_FAMILIES]
    return [Case(stem, partial(_load, options, stem)) for stem in stems]


def _load(options: Options, stem: str) -> dict[str, Any]:
    device = open_device(options)
    with device.context:
        images = device.kernels._images
        start = time.perf_counter()
        device.driver.keep(images.load(stem))
        loaded = time.perf_counter() - start
    files = getattr(images, "_files", {})
    return {"load_ms": 1e3 * loaded, **({"bytes": files[stem].stat().st_size} if stem in files else {})}


# -- the wrappers of kernels/mma.h ---------------------------------------------------------------------------

class WrapperGpu:
    """What the programs of tests/softcuda/programs/tensor.py get: NumPy, PyCUDA, and ways to launch and read."""

    def __init__(self, options: Options) -> None:
        self.np, self._device = np, open_device(options)
        self.drv, self.context = self._device.driver.cuda, self._device.context
        self.module = self._device.driver.keep(self._load(options))

    def _load(self, options: Options) -> Any:
        if self._device.driver.is_software:
            from minigraph.device.cuda.driver import software_builder
            builder = software_builder()
            assert builder is not None
            path = builder.build_dir() / "gpu_suite_wrappers.so"
            builder.build_module([WRAPPERS], path, flags=[f"-I{KERNELS}"])
            return self.drv.module_from_file(str(path))
        path = next((folder / "wrappers.fatbin" for folder in (options.built, options.out)
                     if (folder / "wrappers.fatbin").is_file()), None)
        if path is None:
            raise Absent("there is no wrappers.fatbin; the section `build` makes it, with nvcc on PATH")
        return self.drv.module_from_buffer(path.read_bytes())

    def zeros(self, count: int) -> Any:
        """Device memory of `count` float32 zeros."""
        return self.drv.to_device(np.zeros(count, np.float32))

    def launch(self, name: str, types: str, arguments: Any, block: int = 1, grid: Any = 1) -> None:
        """Launch a kernel; `types` are struct's characters of its parameters."""
        grids = grid if isinstance(grid, tuple) else (grid, 1)
        self.module.get_function(name).prepare(types).prepared_call(grids, (block, 1, 1), *arguments)

    def read(self, memory: Any, count: int, dtype: str = "float32") -> Any:
        """`count` numbers of device memory, after everything else has run."""
        self.drv.Context.synchronize()
        return self.drv.from_device(memory, count, np.dtype(dtype))


@cache
def wrapper_gpu(options: Options) -> WrapperGpu:
    """The wrappers' kernels, loaded once."""
    return WrapperGpu(options)


def wrappers(options: Options) -> list[Case]:
    """Each tensor-core, ldmatrix and cp.async wrapper against NumPy; hardware adds with truncation."""
    def case(name: str, program: str, arguments: tuple[Any, ...], right: Callable[[Any], bool]) -> Case:
        return Case(name, partial(_wrapper, options, program, arguments, right))

    cases = [case("mma tf32", "mma_tf32", (), lambda found: found[0] < 1e-5 < found[1]),
             case("mma tf32 of NaN", "mma_tf32_nan", (), lambda found: found == 8),
             case("mma bf16", "mma_16_bit", ("mma_bf16",), lambda found: found < 2e-5),
             case("mma f16", "mma_16_bit", ("mma_f16",), lambda found: found < 2e-5),
             case("gemm bf16", "gemm_bf16", (), lambda found: found[0] < 5e-5 * found[1])]
    cases += [case(f"ldmatrix x{tiles}{' trans' * trans}", "ldmatrix", (tiles, trans), bool)
              for tiles in (2, 4) for trans in (False, True)]
    cases += [case(f"cp.async of {count}", "copy_edge", (count,), bool) for count in (0, 1, 4, 17, 32)]
    return [*cases, Case("cp.async pipeline", partial(_pipeline, options))]


def _wrapper(options: Options, program: str, arguments: tuple[Any, ...],
             right: Callable[[Any], bool]) -> dict[str, Any]:
    if not WRAPPERS.is_file():
        raise Absent(f"{WRAPPERS} is not here; run from a checkout")
    function = getattr(importlib.import_module("tests.softcuda.programs.tensor"), program)
    with open_device(options).context:
        found = function(wrapper_gpu(options), *arguments)
    if not right(found):
        raise AssertionError(f"NumPy differs: {found}")
    return {"found": found}


def _pipeline(options: Options) -> dict[str, Any]:
    with open_device(options).context:
        gpu = wrapper_gpu(options)
        x, y = np.arange(64 * 128, dtype=np.float32).reshape(64, 128) % 251, gpu.zeros(128)
        gpu.launch("sum_columns_waiting", "PPi", (gpu.drv.to_device(x), y, 64), block=128)
        found = gpu.read(y, 128)
    if found.tolist() != x.sum(axis=0).tolist():
        raise AssertionError("a cp.async pipeline of two stages gives wrong sums")
    return {"largest": float(found.max())}


# -- operators -----------------------------------------------------------------------------------------------

def operators(options: Options) -> list[Case]:
    """Each operator's samples on the device against its NumPy definition."""
    from minigraph.device.cuda import import_families
    from minigraph.device.cuda.launch import implemented
    from minigraph.ops import names
    import_families()
    chosen = [name for name in names() if name in implemented() and (not options.quick or name in QUICK_OPS)]
    without = sorted(set(names()) - implemented())
    return [Case(name, partial(_operator, options, name)) for name in chosen] + [
        Case("without a CUDA form", lambda: {"operators": " ".join(without)})]


def _operator(options: Options, name: str) -> dict[str, Any]:
    from minigraph.ops import get_op

    from .gpu_operators import check_sample
    device, worst = open_device(options), 0.0
    samples = get_op(name).samples()
    with device.context:
        for sample in samples:
            worst = max(worst, check_sample(device, name, sample))
    return {"samples": len(samples), "worst_of_tolerance": worst}


# -- times ---------------------------------------------------------------------------------------------------

def launches(options: Options) -> list[Case]:
    """What launching costs, in a loop and as a graph."""
    return [Case("graph" if graph else "loop", partial(_launches, options, graph)) for graph in (False, True)]


def _launches(options: Options, graph: bool) -> dict[str, Any]:
    from .launch_overhead import measure
    open_device(options)
    return measure(500 if options.quick else 10_000, 3 if options.quick else 20, graph)


def overlap(options: Options) -> list[Case]:
    """How much of a copy from or to page-locked memory hides behind kernels."""
    return [Case(direction, partial(_overlap, options, direction)) for direction in ("to device", "to host")]


def _overlap(options: Options, direction: str) -> dict[str, Any]:
    from minigraph.device.cuda.launch import Launch, address, int64
    device = open_device(options)
    cuda, nbytes = device.driver.cuda, (1 << 16) if options.quick else (256 << 20)
    owner = type("Owner", (), {})()
    holdings = device.holdings(owner)
    with device.context:
        memory, tensor = holdings.memory(nbytes), holdings.memory(nbytes // 4)
        host, copying, computing = holdings.pinned(nbytes), holdings.stream(), holdings.stream()
        cuda.memset_d8(tensor.address, 0, nbytes // 4)
        elements = nbytes // 16
        launch = Launch("exp_forward_float32", (min(4096, -(-elements // 1024)), 1, 1), (256, 1, 1),
                        (address(tensor.address), address(tensor.address), int64(elements)))
        function, arguments = device.kernels.call(launch, computing, "unary")

        def copy() -> None:
            if direction == "to device":
                cuda.memcpy_htod_async(memory.address, host[:nbytes], copying)
            else:
                cuda.memcpy_dtoh_async(host[:nbytes], memory.address, copying)

        def compute(count: int) -> None:
            for _ in range(count):
                function(*arguments)

        copy_ms, once_ms = milliseconds(cuda, copy), milliseconds(cuda, lambda: compute(10)) / 10
        count = max(1, round(copy_ms / once_ms))
        compute_ms = milliseconds(cuda, lambda: compute(count))

        def both() -> None:
            copy()
            compute(count)

        both_ms = milliseconds(cuda, both)
    hidden = (copy_ms + compute_ms - both_ms) / min(copy_ms, compute_ms)
    return {"bytes": nbytes, "copy_ms": copy_ms, "compute_ms": compute_ms, "both_ms": both_ms, "overlap": hidden,
            "gigabytes_a_second": nbytes / copy_ms / 1e6}


def milliseconds(cuda: Any, work: Callable[[], Any]) -> float:
    """The median of five runs, after one that is not counted."""
    times = []
    for _ in range(6):
        cuda.Context.synchronize()
        start = time.perf_counter()
        work()
        cuda.Context.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times[1:])[2]
