"""What kernels compute, and how they are launched. Run by child.py."""
from __future__ import annotations

import ctypes
import struct
from typing import Any


def matmul(gpu: Any, m: int, n: int, k: int) -> Any:
    """The largest difference of matmul_16 from numpy."""
    rng = gpu.np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), "float32"), rng.standard_normal((k, n), "float32")
    c = gpu.zeros(m * n)
    operands = (gpu.drv.to_device(a), gpu.drv.to_device(b), c, m, n, k)
    gpu.launch("matmul_16", "PPPiii", operands, block=(16, 16, 1), grid=(-(-n // 16), -(-m // 16)))
    return float(abs(gpu.read(c, m * n).reshape(m, n) - a @ b).max())


def softmax(gpu: Any) -> Any:
    """The largest difference from numpy; the last block has warps without a row."""
    x = gpu.np.random.default_rng(0).standard_normal((10, 77), "float32")
    y = gpu.zeros(x.size)
    gpu.launch("softmax", "PPii", (gpu.drv.to_device(x), y, *x.shape), block=128, grid=3)
    e = gpu.np.exp(x - x.max(1, keepdims=True))
    return float(abs(gpu.read(y, x.size).reshape(x.shape) - e / e.sum(1, keepdims=True)).max())


def sum_all(gpu: Any) -> Any:
    """Shuffles, shared memory and atomics: the sum of 0 .. 4999."""
    x, out = gpu.np.arange(5000, dtype="float32"), gpu.zeros(1)
    gpu.launch("sum", "PPi", (gpu.drv.to_device(x), out, 5000), block=256, grid=4)
    return float(gpu.read(out, 1)[0])


def reverse(gpu: Any) -> Any:
    """Dynamic shared memory: 2 blocks of 100."""
    x, y = gpu.np.arange(200, dtype="float32"), gpu.zeros(200)
    gpu.launch("reverse", "PP", (gpu.drv.to_device(x), y), block=100, grid=2, shared=400)
    return bool((gpu.read(y, 200).reshape(2, 100) == x.reshape(2, 100)[:, ::-1]).all())


def warps(gpu: Any) -> Any:
    """half_warp's upper lanes, and warp_operations' four results."""
    half, all_lanes = gpu.zeros(32), gpu.zeros(128)
    gpu.launch("half_warp", "P", (half,), block=32)
    gpu.launch("warp_operations", "P", (all_lanes,), block=32)
    return [gpu.read(half, 32, "int32")[16:], gpu.read(all_lanes, 128, "int32").reshape(4, 32)]


def module_globals(gpu: Any) -> Any:
    """Constant and device variables; loading the module twice gives two sets."""
    other = gpu.drv.module_from_buffer(open(gpu.module_path, "rb").read())
    y, calls = gpu.zeros(4), []
    for module, scale in ((gpu.module, 1), (other, 10)):
        address, size = module.get_global("coefficients")
        gpu.drv.memcpy_htod(address, scale * gpu.np.arange(size // 4, dtype="float32"))
    for module, threads in ((gpu.module, 4), (other, 2)):
        module.get_function("use_globals")(y, block=(threads, 1, 1))
        calls.append(int(gpu.read(module.get_global("calls")[0], 1, "int32")[0]))
    return [gpu.read(y, 4), calls]


def packed_parameters(gpu: Any) -> Any:
    """affine's parameters through a buffer packed once, by PyCUDA's lowest call; the largest difference."""
    x, y = gpu.np.arange(10, dtype="float16"), gpu.zeros(10)
    memory = gpu.drv.to_device(x)
    buffer = struct.pack("@b3xffdPPi", -1, 2.0, 0.5, 0.25, int(memory), int(y), 10)
    gpu.module.get_function("affine")._launch_kernel((1, 1, 1), (16, 1, 1), buffer, 0, None)
    return float(abs(gpu.read(y, 10) - (2 * x.astype("float32") + 0.5 + 0.25 - 1)).max())


def ranks(gpu: Any) -> Any:
    """In which order 8 blocks ran, and 8 threads of a block began."""
    counter, blocks, threads = gpu.zeros(1), gpu.zeros(8), gpu.zeros(8)
    gpu.launch("block_ranks", "PP", (counter, blocks), grid=8)
    gpu.launch("thread_ranks", "P", (threads,), block=8)
    thread_ranks = gpu.read(threads, 8, "int32")
    return [gpu.read(blocks, 8, "int32"), thread_ranks - thread_ranks.min()]


def shared_is_poisoned(gpu: Any) -> Any:
    """How many of 32 never written shared floats are NaN: static, dynamic; for a second block of work too."""
    statics, dynamics, x, y = (gpu.zeros(32) for _ in range(4))
    counts = []
    for _ in range(2):
        gpu.launch("sum", "PPi", (x, y, 32), block=32)
        gpu.launch("reverse", "PP", (x, y), block=32, shared=128)
        gpu.launch("read_shared", "PP", (statics, dynamics), block=32, shared=128)
        counts.append([int(gpu.np.isnan(gpu.read(memory, 32)).sum()) for memory in (statics, dynamics)])
    return counts


def large_dynamic_shared(gpu: Any, shared_bytes: int = 100_000) -> Any:
    """More than 48 KiB after the attribute has been set."""
    kernel = gpu.module.get_function("reverse")
    kernel.set_attribute(gpu.drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
    x, y = gpu.np.arange(64, dtype="float32"), gpu.zeros(64)
    kernel(gpu.drv.to_device(x), y, block=(64, 1, 1), shared=shared_bytes)
    return bool((gpu.read(y, 64) == x[::-1]).all())


def unsupported_function(gpu: Any) -> Any:
    """A function of cuda.h that the driver does not have."""
    code = gpu.library.cuMemAllocAsync(None, ctypes.c_size_t(16), None)
    return [code, gpu.library.softcuda_message().decode()]


def error_texts(gpu: Any) -> Any:
    """The name and the text of result 700."""
    texts = []
    for function in (gpu.library.cuGetErrorName, gpu.library.cuGetErrorString):
        text = ctypes.c_char_p()
        function(700, ctypes.byref(text))
        texts.append(str(text.value, "utf-8") if text.value else "")
    return texts
