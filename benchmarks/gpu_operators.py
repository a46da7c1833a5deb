"""One operator's sample on a GPU against its NumPy definition, through the device's own kernels."""
from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from minigraph.base import TensorType, align
from minigraph.device.cuda.launch import Operand, kernel_op
from minigraph.ops import Op, Sample, Workspace, get_op
from minigraph.ops.control import set_key
from minigraph.ops.params import parse_params

Arrays = Sequence[np.ndarray]
CONTROL_INPUTS = ("control", "key")


def check_sample(device: Any, name: str, sample: Sample) -> float:
    """The largest difference from NumPy as a share of the sample's tolerance; the device's context is current.

    AssertionError above 1, when a second run or one in place gives other bits, and for NaN that NumPy does not have.
    """
    op = get_op(name)
    p = parse_params(op.Params, sample.params, name)
    arrays = sample_arrays(op, p, sample)
    with np.errstate(all="ignore"):
        expected = on_host(op, p, arrays)
    found = on_device(device, op, p, arrays)
    worst = 0.0
    for output, a, b in zip(op.outputs(p), found, expected, strict=True):
        np.testing.assert_allclose(a, b, sample.rtol, sample.atol, err_msg=f"{name}: {output} of {sample.params}")
        close = np.abs(np.subtract(a, b, dtype=np.float64)) / (sample.atol + sample.rtol * np.abs(b))
        worst = max(worst, float(np.nanmax(close, initial=0.0)))
    _same_bits(found, on_device(device, op, p, arrays), f"{name}: a second run")
    for i, j in op.inplace(p):
        if arrays[i].nbytes == found[j].nbytes and found[j].nbytes:
            again = on_device(device, op, p, arrays, {j: i})
            _same_bits(found, again, f"{name}: output {j} in place over input {i}")
    return worst


def _same_bits(found: Arrays, again: Arrays, what: str) -> None:
    if any(a.tobytes() != b.tobytes() for a, b in zip(found, again, strict=True)):
        raise AssertionError(f"{what} gives other bits")


def sample_arrays(op: Op, p: Any, sample: Sample) -> list[np.ndarray]:
    """Random inputs of an op as its sample asks, the same ones each time."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {sample.params} {sample.shapes}".encode()))
    arrays = []
    for name, shape in zip(op.inputs(p), sample.shapes, strict=True):
        if name in sample.integer:
            arrays.append(rng.integers(0, sample.integer[name], shape).astype(np.float32))
        else:
            arrays.append(rng.uniform(sample.low, sample.high, shape).astype(np.float32))
        if name in CONTROL_INPUTS:
            set_key(arrays[-1], 7, 1)
    return arrays


def output_types(op: Op, p: Any, arrays: Arrays) -> list[TensorType]:
    """Types of an op's outputs."""
    unknown: list[Any] = [None] * len(op.outputs(p))
    _, shapes = op.infer_shape(p, [a.shape for a in arrays], unknown)
    _, dtypes = op.infer_dtype(p, [a.dtype for a in arrays], list(unknown))
    return [TensorType(tuple(s or ()), np.dtype(t)) for s, t in zip(shapes, dtypes, strict=True)]  # type: ignore[arg-type]


def on_host(op: Op, p: Any, arrays: Arrays) -> list[np.ndarray]:
    """Outputs by NumPy, of copies of the inputs."""
    ins, types = [a.copy() for a in arrays], output_types(op, p, arrays)
    shared = {j: i for i, j in (*op.mutates(p), *(((0, 0),) if op.view(p) else ()))}
    outs = [ins[shared[j]].view(t.dtype).reshape(t.shape) if j in shared else np.empty(t.shape, t.dtype)
            for j, t in enumerate(types)]
    nbytes = op.algorithms(p, [TensorType(a.shape, a.dtype) for a in arrays], types)[0].workspace_bytes
    op.compute(p, ins, outs, Workspace(np.empty(align(nbytes), np.uint8)))
    return outs


def on_device(device: Any, op: Op, p: Any, arrays: Arrays, share: dict[int, int] | None = None) -> list[np.ndarray]:
    """Outputs by the device's kernels; `share` lays outputs on inputs. Outputs and workspace begin as NaN."""
    cuda, types, form = device.driver.cuda, output_types(op, p, arrays), kernel_op(op.name)
    shared = {**{j: i for i, j in op.mutates(p)}, **(share or {})}
    in_types = [TensorType(a.shape, a.dtype) for a in arrays]
    owner = type("Owner", (), {})()
    holdings = device.holdings(owner)

    def memory(nbytes: int, value: np.ndarray | None = None) -> int:
        address = holdings.memory(max(nbytes, 64)).address
        cuda.memset_d8(address, 0xFF, max(nbytes, 64))
        if value is not None and nbytes:
            cuda.memcpy_htod(address, np.ascontiguousarray(value))
        return int(address)

    ins = [memory(a.nbytes, a) for a in arrays]
    outs = [ins[shared[j]] if j in shared else memory(t.nbytes) for j, t in enumerate(types)]
    workspace_bytes = form.algorithm(p, in_types, types).workspace_bytes
    work = memory(workspace_bytes) if workspace_bytes else 0
    reads = [Operand(0 if i in op.unread(p) else ins[i], a.shape, a.dtype) for i, a in enumerate(arrays)]
    writes = [Operand(at, t.shape, t.dtype) for at, t in zip(outs, types, strict=True)]
    family = type(form).__module__.rpartition(".")[2]
    for launch in form.launches(p, reads, writes, work):
        function, arguments = device.kernels.call(launch, None, family)
        function(*arguments)
    cuda.Context.synchronize()
    found = []
    for at, t in zip(outs, types, strict=True):
        value = np.empty(t.shape, t.dtype)
        if prod(t.shape):
            cuda.memcpy_dtoh(value, at)
        found.append(value)
    return found
