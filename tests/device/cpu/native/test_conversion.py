"""Conversions between layouts move every element to its place, and zero the lanes beyond the channels."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.ops.registry import get_op

from .harness import check, run, the_library

SHAPES = [(2, 16, 3, 4), (3, 5, 70), (1, 40, 33, 40), (2, 17), (1, 32, 2, 1, 3), (0, 20, 4, 4), (2, 3, 64, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check("_to_blocked", {}, [data], rtol=0)
    blocked, = run("_to_blocked", {}, [data])
    blocked[..., shape[1] % 16 or 16:][:, -1:] = np.nan        # lanes beyond the channels are not read
    np.testing.assert_array_equal(run("_to_plain", {"channels": shape[1]}, [blocked])[0], data)


def test_samples() -> None:
    for name in ("_to_blocked", "_to_plain"):
        for sample in get_op(name).samples():
            check(name, sample.params, [np.random.default_rng(1).standard_normal(s) for s in sample.shapes], rtol=0)


def test_plans_convert_by_kernels_and_give_what_numpy_gives() -> None:
    the_library()
    data = mx.sym.Variable("data")
    convolved = mx.sym.Convolution(data, num_filter=20, kernel=(3, 3), name="c")
    pooled = mx.sym.Pooling(convolved, global_pool=True, pool_type="max", kernel=(1, 1))
    executor = mx.sym.transpose(pooled, axes=(1, 0, 2, 3)).simple_bind(mx.cpu(), data=(2, 32, 6, 6))
    code = executor.plan.instructions
    converting = [name for op, name in zip(code.op, code.algorithm, strict=True) if op in ("_to_blocked", "_to_plain")]
    assert len(converting) >= 2 and all(name.startswith("native.") for name in converting)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(array.shape) for name, array in executor.arg_dict.items()}
    for name, array in executor.arg_dict.items():
        array[:] = arrays[name]
    out = executor.forward()[0].asnumpy()
    windows = np.lib.stride_tricks.sliding_window_view(arrays["data"], (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, arrays["c_weight"]) + arrays["c_bias"][:, None, None]
    np.testing.assert_allclose(out[:, :, 0, 0].T, want.max(axis=(2, 3)), rtol=1e-4)
