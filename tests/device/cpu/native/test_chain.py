"""Chains of elementwise kernels: what the kernels give one by one, in blocks that stay in the cache."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import PLAIN, Layouts, TensorType
from minigraph.device.cpu.native.call import native_op
from minigraph.ops.pointwise import CHAIN
from minigraph.ops.registry import get_op
from tests.ops.harness import parsed

from .harness import check, run, the_library

PROGRAMS: list[tuple[int, list[list[Any]]]] = [
    (1, [["_mul_scalar", [0], {"scalar": 0.5}], ["tanh", [1], {}]]),
    (2, [["elemwise_add", [0, 1], {}], ["relu", [2], {}]]),
    (2, [["elemwise_sub", [0, 1], {}], ["square", [2], {}], ["elemwise_mul", [3, 0], {}],
         ["elemwise_add", [4, 2], {}]]),
    (8, [["elemwise_add", [0, 1], {}], *(["elemwise_mul", [k + 6, k], {}] for k in range(2, 8)),
         ["_minimum_scalar", [14], {"scalar": 1.0}]]),
    (2, [["Activation", [0], {"act_type": "softrelu"}], ["_activation_backward", [1, 2], {"act_type": "tanh"}],
         ["_accumulate", [3, 3], {}]]),
]
SHAPES = [(12_289,), (5, 7), (2, 3, 41, 83), (3, 32, 6, 6), (0, 5, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count, steps", PROGRAMS, ids=lambda value: str(len(value)) if isinstance(value, list) else "")
def test_chains_agree_with_numpy_in_any_layout_and_in_place(count: int, steps: list[Any], shape: tuple[int, ...],
                                                            ) -> None:
    rng = np.random.default_rng(2)
    check(CHAIN, {"num_args": count, "program": json.dumps(steps)}, [rng.normal(0, 1, shape) for _ in range(count)],
          rtol=2e-6)


@pytest.mark.parametrize("count, steps", PROGRAMS, ids=lambda value: str(len(value)) if isinstance(value, list) else "")
def test_a_chain_has_the_bits_of_its_kernels_one_by_one(count: int, steps: list[Any]) -> None:
    rng = np.random.default_rng(3)
    registers = [rng.normal(0, 1, 9001).astype(np.float32) for _ in range(count)]
    found, = run(CHAIN, {"num_args": count, "program": json.dumps(steps)}, registers, Layouts.plain(count, 1))
    for name, reads, params in steps:
        registers += run(name, params, [registers[r] for r in reads], Layouts.plain(len(reads), 1))
    np.testing.assert_array_equal(found, registers[-1])


def test_a_step_without_a_kernel_is_left_to_numpy() -> None:
    op = get_op(CHAIN)
    p = parsed(op, {"num_args": 1, "program": json.dumps([["sin", [0], {}], ["tanh", [1], {}]])})
    native = native_op(CHAIN)
    assert native is not None and not native.fuses(p)


def test_padding_that_a_step_would_fill_forbids_the_blocked_layout() -> None:
    op = get_op(CHAIN)
    p = parsed(op, {"num_args": 1, "program": json.dumps([["exp", [0], {}], ["_minus_scalar", [1], {"scalar": 1.0}]])})
    native = native_op(CHAIN)
    assert native is not None
    tensor = TensorType((2, 3, 4, 4), np.dtype(np.float32))
    assert [offer.outs for offer in native.layouts(p, [tensor], [tensor])] == [(PLAIN,)]


def test_fused_elementwise_operators_run_as_one_call() -> None:
    the_library()
    data = mx.sym.Variable("data")
    symbol = mx.sym.sqrt(mx.sym.abs(data) * 2.0 + 1.0)
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=(3, 50_000))
    value = np.linspace(-2, 2, 150_000, dtype=np.float32).reshape(3, -1)
    executor.arg_dict["data"][:] = value
    out, = executor.forward()
    np.testing.assert_allclose(out.asnumpy(), np.sqrt(np.abs(value) * 2 + 1), rtol=1e-6)
    assert [executor.plan.instructions.op[i] for i in range(len(executor.plan))] == [CHAIN]
