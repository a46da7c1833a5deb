"""The tensor-core, ldmatrix and cp.async wrappers against numpy. Run by child.py."""
from __future__ import annotations

from typing import Any


def _tf32(np: Any, x: Any) -> Any:
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def _to_bf16(np: Any, x: Any) -> Any:
    bits = x.astype("float32").view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _from_bf16(np: Any, x: Any) -> Any:
    return (x.astype(np.uint32) << 16).view(np.float32)


def mma_tf32(gpu: Any) -> Any:
    """The largest differences from a product of rounded, and of plain float32 operands."""
    np, rng = gpu.np, gpu.np.random.default_rng(0)
    a, b, d = rng.standard_normal((16, 8), "float32"), rng.standard_normal((8, 8), "float32"), gpu.zeros(128)
    gpu.launch("mma_tf32", "PPP", (gpu.drv.to_device(a), gpu.drv.to_device(b), d), block=32)
    got = gpu.read(d, 128).reshape(16, 8)
    rounded = _tf32(np, a).astype("float64") @ _tf32(np, b).astype("float64")
    return [float(abs(got - rounded).max()), float(abs(got - a.astype("float64") @ b).max())]


def mma_tf32_nan(gpu: Any) -> Any:
    """Poison survives the rounding to tf32: how many of 128 outputs are NaN when a's first row is poison."""
    a, b, d = gpu.np.ones((16, 8), "float32"), gpu.np.ones((8, 8), "float32"), gpu.zeros(128)
    a[0] = gpu.np.array(0xFFFFFFFF, "uint32").view("float32")
    gpu.launch("mma_tf32", "PPP", (gpu.drv.to_device(a), gpu.drv.to_device(b), d), block=32)
    return int(gpu.np.isnan(gpu.read(d, 128)).sum())


def mma_16_bit(gpu: Any, kernel: str) -> Any:
    """The largest difference of d + a b^T from float64."""
    np, rng = gpu.np, gpu.np.random.default_rng(1)
    a, b, d = (rng.standard_normal(shape).astype("float32") for shape in ((16, 16), (8, 16), (16, 8)))
    if kernel == "mma_bf16":
        a, b = _to_bf16(np, a), _to_bf16(np, b)
        exact = _from_bf16(np, a).astype("float64") @ _from_bf16(np, b).astype("float64").T + d
    else:
        a, b = a.astype("float16"), b.astype("float16")
        exact = a.astype("float64") @ b.astype("float64").T + d
    memory = gpu.drv.to_device(d)
    gpu.launch(kernel, "PPP", (gpu.drv.to_device(a), gpu.drv.to_device(b), memory), block=32)
    return float(abs(gpu.read(memory, 128).reshape(16, 8) - exact).max())


def ldmatrix(gpu: Any, tiles: int, transposed: bool) -> Any:
    """Does each lane get the two elements that the PTX ISA names?"""
    np = gpu.np
    x = np.arange(tiles * 64, dtype="uint16").reshape(tiles, 8, 8)
    r = gpu.zeros(tiles * 32)
    gpu.launch(f"load_x{tiles}" + "_trans" * transposed, "PP", (gpu.drv.to_device(x), r), block=32)
    got = gpu.read(r, tiles * 32, "uint32").reshape(tiles, 32)
    wanted = x.transpose(0, 2, 1) if transposed else x
    return bool((np.ascontiguousarray(wanted).view("uint32").reshape(tiles, 32) == got).all())


def gemm_bf16(gpu: Any) -> Any:
    """ldmatrix, mma and cp.async together: the largest difference from float64, and the largest element."""
    np, rng, m, n, k = gpu.np, gpu.np.random.default_rng(2), 64, 64, 48
    a, b = (_to_bf16(np, rng.standard_normal(shape)) for shape in ((m, k), (n, k)))
    c = gpu.zeros(m * n)
    operands = (gpu.drv.to_device(a), gpu.drv.to_device(b), c, m, n, k)
    gpu.launch("gemm_bf16", "PPPiii", operands, block=128, grid=(n // 32, m // 64))
    exact = _from_bf16(np, a).astype("float64") @ _from_bf16(np, b).astype("float64").T
    return [float(abs(gpu.read(c, m * n).reshape(m, n) - exact).max()), float(abs(exact).max())]


def copy_edge(gpu: Any, count: int) -> Any:
    """cp.async with zero fill: the first `count` elements, then zeroes, in 16 and in 4 byte pieces."""
    x, y = gpu.np.arange(1, 33, dtype="float32"), gpu.zeros(64)
    gpu.launch("copy_edge", "PPi", (gpu.drv.to_device(x), y, count), block=32)
    wanted = gpu.np.zeros((2, 32), "float32")
    wanted[:, :count] = x[:count]
    return bool((gpu.read(y, 64).reshape(2, 32) == wanted).all())
