"""Run an operator's CUDA kernels on the software driver and compare them with `Op.compute`.

Every tensor has device memory of its own that ends at a guard page; outputs, workspace and padding are filled
with poison before a run, and what a run may not write must still be so afterwards. Blocks and threads run
in random order. With MINIGRAPH_TEST_CUDA=gpu the same tests run on a GPU, from fatbins that nvcc builds.
"""
from __future__ import annotations

import atexit
import ctypes
import importlib
import importlib.util
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType, align
from minigraph.device.cuda.launch import Launch, Operand, implemented, kernel_op
from minigraph.ops.op import Op, Sample
from minigraph.ops.registry import get_op, names
from tests.ops.harness import execute, infer, parsed, sample_dtypes
from tests.softcuda.build import (
    BuildError,
    build_dir,
    build_driver,
    build_module,
    find_compiler,
    find_cuda_include,
)

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
NVCC_FLAGS = ("-O3", "-std=c++17", "-fatbin", "-gencode",
              "arch=compute_80,code=[sm_80,sm_90,compute_80]")
GRID_LIMITS = (2**31 - 1, 65535, 65535)
Arrays = Sequence[np.ndarray]


def on_gpu() -> bool:
    """Whether the tests run on a GPU rather than on the software driver."""
    return os.environ.get("MINIGRAPH_TEST_CUDA", "software") == "gpu"


# ---- the driver ----------------------------------------------------------------------------------


@cache
def cuda_driver() -> ModuleType:
    """`pycuda.driver` with a current context; skips where PyCUDA, a compiler or cuda.h are absent."""
    if importlib.util.find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed; tests/softcuda/build_pycuda.py --install builds it")
    if not on_gpu():
        _load_software_driver()
    driver = importlib.import_module("pycuda.driver")
    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    atexit.register(driver.Context.pop)
    return driver


def _load_software_driver() -> None:
    """Before pycuda: the dynamic linker then takes this library for its libcuda.so.1."""
    try:
        find_compiler()
        find_cuda_include()
    except BuildError as missing:
        pytest.skip(str(missing))
    os.environ.setdefault("SOFTCUDA_ORDER", "random")
    os.environ.setdefault("SOFTCUDA_ALIGN", "64")
    ctypes.CDLL(str(build_driver(build_dir())), ctypes.RTLD_GLOBAL)


@cache
def load_module(stem: str) -> Any:
    """The module of kernels/<stem>.cu, built where the build cache has none of this source."""
    driver = cuda_driver()
    source = KERNELS / f"{stem}.cu"
    if not on_gpu():
        path = build_dir() / f"kernels_{stem}.so"
        build_module([source], path, flags=[f"-I{KERNELS}"])
        return driver.module_from_file(str(path))
    path = build_dir() / f"kernels_{stem}.fatbin"
    inputs = (source, *KERNELS.glob("*.h"))
    if not path.exists() or path.stat().st_mtime < max(file.stat().st_mtime for file in inputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        nvcc = shutil.which("nvcc") or pytest.skip("nvcc is not on PATH, and there are no fatbins")
        subprocess.run([nvcc, *NVCC_FLAGS, f"-I{KERNELS}", "-o", path, source], check=True)
    return driver.module_from_buffer(path.read_bytes())


class Memory:
    """One tensor in device memory, padded to a multiple of 64 bytes.

    An input's padding is 0xFF, which shows in what is computed from it; that of other tensors is 0xA5, so
    that a NaN written there shows too. Elements are 0xFF until they are written.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, value: np.ndarray | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        image = np.full(max(align(self.nbytes), 64), 0xFF, np.uint8)
        if value is None:
            image[self.nbytes:] = 0xA5
        else:
            image[:self.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._allocation = cuda_driver().mem_alloc(image.nbytes)
        self._image = image
        cuda_driver().memcpy_htod(self._allocation, image)

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self._allocation)

    def read(self) -> np.ndarray:
        """The tensor's value now; asserts that nothing was written behind its end."""
        now = np.empty_like(self._image)
        cuda_driver().memcpy_dtoh(now, self._allocation)
        padding = self._image[self.nbytes:]
        assert (now[self.nbytes:] == padding).all(), f"a kernel wrote behind a tensor of shape {self.shape}"
        return now[:self.nbytes].view(self.dtype).reshape(self.shape)

    def changed(self) -> bool:
        """Whether any byte is another than before the run."""
        return self.read().tobytes() != self._image[:self.nbytes].tobytes()


# ---- kernels -------------------------------------------------------------------------------------


class Kernels:
    """The kernels of some families, and ways to run operators with them."""

    def __init__(self, stems: Sequence[str]) -> None:
        self._modules = [load_module(stem) for stem in stems]
        self._functions: dict[str, Any] = {}
        self.stems = tuple(stems)

    def function(self, name: str) -> Any:
        """A kernel by its name."""
        if name not in self._functions:
            self._functions[name] = self._find(name)
        return self._functions[name]

    def _find(self, name: str) -> Any:
        for module in self._modules:
            try:
                return module.get_function(name)
            except cuda_driver().LogicError:
                continue
        raise AssertionError(f"no kernel {name} in {', '.join(f'{stem}.cu' for stem in self.stems)}")

    def launch(self, launch: Launch) -> None:
        """Launch one kernel and wait for it."""
        assert all(1 <= n <= most for n, most in zip(launch.grid, GRID_LIMITS, strict=True)), launch
        assert launch.shared_bytes <= 48 * 1024 and np.prod(launch.block) <= 1024, launch
        values = [v for _, value in launch.args for v in (value if isinstance(value, tuple) else (value,))]
        packed = struct.pack("@" + "".join(form for form, _ in launch.args), *values)
        function = self.function(launch.kernel)
        function._launch_kernel(launch.grid, launch.block, packed, launch.shared_bytes, None)
        cuda_driver().Context.synchronize()

    def run(self, op_name: str, params: Mapping[str, Any], arrays: Arrays,
            share: Sequence[tuple[int, int]] = ()) -> list[np.ndarray]:
        """Outputs of an op on given inputs; `share` lists (input, output) pairs of one memory."""
        op = get_op(op_name)
        return self.execute(op, parsed(op, params), [np.asarray(a) for a in arrays], share)

    def execute(self, op: Op, p: Any, arrays: Arrays,
                share: Sequence[tuple[int, int]] = ()) -> list[np.ndarray]:
        """As `run`, with typed parameters; asserts that only declared bytes were written."""
        types = infer(op, p, arrays)
        ins = [Memory(a.shape, a.dtype, a) for a in arrays]
        shared = {j: i for i, j in (*op.mutates(p), *share)}
        outs = [ins[shared[j]] if j in shared else Memory(t.shape, t.dtype) for j, t in enumerate(types)]
        in_types = [TensorType(a.shape, a.dtype) for a in arrays]
        form = kernel_op(op.name)
        work = Memory((form.algorithm(p, in_types, types).workspace_bytes,), np.uint8)
        reads = [Operand(0 if i in op.unread(p) else m.address, m.shape, m.dtype) for i, m in enumerate(ins)]
        writes = [Operand(m.address, t.shape, t.dtype) for m, t in zip(outs, types, strict=True)]
        for launch in form.launches(p, reads, writes, work.address if work.nbytes else 0):
            self.launch(launch)
        for i, memory in enumerate(ins):
            name = op.inputs(p)[i]
            assert i in shared.values() or not memory.changed(), f"{op.name} changed its input {name}"
        work.read()
        return [m.read().view(t.dtype).reshape(t.shape) for m, t in zip(outs, types, strict=True)]

    def check(self, op_name: str, params: Mapping[str, Any], arrays: Arrays, rtol: float = 1e-4,
              atol: float = 1e-5) -> list[np.ndarray]:
        """Outputs of an op; asserts that `compute` agrees, and that in-place and second runs give the bits."""
        op = get_op(op_name)
        p = parsed(op, params)
        arrays = [np.asarray(a) for a in arrays]
        found = self.execute(op, p, arrays)
        with np.errstate(all="ignore"):
            expected = execute(op, p, arrays)
        for name, a, e in zip(op.outputs(p), found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol, atol, err_msg=f"{op_name}: {name} of {params}")
        self._same_bits(op, p, arrays, found, (), "in a second run")
        for i, j in op.inplace(p):
            if arrays[i].nbytes == found[j].nbytes and found[j].nbytes:
                self._same_bits(op, p, arrays, found, [(i, j)], f"with output {j} in place over input {i}")
        return found

    def _same_bits(self, op: Op, p: Any, arrays: Arrays, found: Arrays, share: Sequence[tuple[int, int]],
                   how: str) -> None:
        again = self.execute(op, p, arrays, share)
        for name, a, b in zip(op.outputs(p), found, again, strict=True):
            assert a.tobytes() == b.tobytes(), f"{op.name}: {name} differs {how}"

    def check_sample(self, op_name: str, sample: Sample) -> None:
        """`check` on an op's sample, within the sample's tolerances."""
        op = get_op(op_name)
        arrays = sample_arrays(op, parsed(op, sample.params), sample)
        self.check(op_name, sample.params, arrays, sample.rtol, sample.atol)


# ---- cases ---------------------------------------------------------------------------------------


def random_arrays(*shapes: Sequence[int], low: float = -1.0, high: float = 1.0,
                  seed: int = 0) -> list[np.ndarray]:
    """Uniform float32 arrays of these shapes."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, tuple(shape)).astype(np.float32) for shape in shapes]


def sample_arrays(op: Op, p: Any, sample: Sample) -> list[np.ndarray]:
    """Random inputs of an op as its sample asks; the same ones each time."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {sample.params} {sample.shapes}".encode()))
    arrays = []
    for name, shape, kind in zip(op.inputs(p), sample.shapes, sample_dtypes(op, p, np.float32), strict=True):
        if name in sample.integer:
            arrays.append(rng.integers(0, sample.integer[name], shape).astype(kind))
        else:
            arrays.append(rng.uniform(sample.low, sample.high, shape).astype(np.float32))
    return arrays


def family_ops(family: str) -> list[str]:
    """Names of the ops that minigraph/ops/<family>.py declares."""
    module = importlib.import_module(f"minigraph.ops.{family}")
    return [name for name in names() if type(get_op(name)).__module__ == module.__name__]


def stands_for_others(name: str) -> bool:
    """Whether an operator never runs: it becomes other nodes, whose operators are in the registry, too."""
    op = type(get_op(name))
    return op.expand is not Op.expand and op.compute is Op.compute


def ops_without_kernel(family: str) -> set[str]:
    """Those of a family's ops that have no CUDA form, those among them that stand for others."""
    importlib.import_module(f"minigraph.device.cuda.{family}")
    return set(family_ops(family)) - implemented()


def every_sample(family: str) -> list[Any]:
    """pytest parameters (op_name, sample): each sample of each op of a family that has a CUDA form."""
    importlib.import_module(f"minigraph.device.cuda.{family}")
    formed = implemented()
    return [pytest.param(name, sample, id=f"{name}-{i}") for name in family_ops(family) if name in formed
            for i, sample in enumerate(get_op(name).samples())]
