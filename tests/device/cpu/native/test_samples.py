"""Registry x samples: every operator with kernels gives its NumPy definition on each of its samples."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import implemented, native_op
from minigraph.ops.registry import get_op
from tests.ops import test_registry as registry
from tests.ops.harness import execute, infer, parsed

from .harness import run, threads

CASES = [pytest.param(name, k, id=f"{name}-{k}") for name in sorted(implemented())
         for k in range(len(get_op(name).samples()))]


@pytest.mark.parametrize(("name", "k"), CASES)
def test_kernels_agree_with_the_definition_on_every_sample(name: str, k: int) -> None:
    op, native, sample = get_op(name), native_op(name), get_op(name).samples()[k]
    assert native is not None
    p = parsed(op, sample.params)
    arrays = registry.draw(op, sample, np.float32)
    types = [TensorType(a.shape, a.dtype) for a in arrays], infer(op, p, arrays)
    if not native.takes(p, *types):
        pytest.skip("NumPy computes this")
    expected = execute(op, p, arrays)
    for layouts in native.layouts(p, *types):
        with threads(3):
            found = run(name, sample.params, arrays, layouts)
        for array, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, want, sample.rtol, sample.atol, err_msg=f"{name} {layouts}")
