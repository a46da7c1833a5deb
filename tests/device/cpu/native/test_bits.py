"""Kernels that read bits and winners have the bits of those that read whole values, in any layout."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import BLOCKED, PLAIN, TensorType
from minigraph.device.cpu.native.layout import Layouts
from minigraph.ops.pointwise import CHAIN
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed
from tests.ops.test_bits import BACKWARD, GRADIENTS, POOLED, SPECIAL

from .harness import run, the_library, threads

SHAPES = [(1,), (9,), (16,), (17,), (20_001,), (3, 5), (0, 8), (2, 3, 41, 83), (3, 40, 1100)]
EVERY = [np.resize(values, SPECIAL.size * GRADIENTS.size) for values in (np.repeat(GRADIENTS, SPECIAL.size), SPECIAL)]


def by_bits(name: str, params: dict[str, Any], grad: np.ndarray, data: np.ndarray) -> np.ndarray:
    """The gradient by way of the bits that an op declares; the kernels' bits are NumPy's."""
    op, kind = get_op(name), TensorType(data.shape, data.dtype)
    form = op.encoding(parsed(op, params), [kind, kind])
    assert form is not None
    bits, = run(form.encoder, vars(form.encoder_params), [data])
    assert bits.tobytes() == execute(get_op(form.encoder), form.encoder_params, [data])[0].tobytes()
    found, = run(form.reader, vars(form.reader_params), [grad, bits])
    again, = run(form.reader, vars(form.reader_params), [grad, bits], share=[(0, 0)])
    assert found.tobytes() == again.tobytes()
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name, params", BACKWARD, ids=str)
def test_gradients_by_bits_have_the_bits_of_those_by_values(name: str, params: dict[str, Any],
                                                            shape: tuple[int, ...]) -> None:
    plain = Layouts.plain(2, 1)
    grad, data = (np.resize(values, shape) for values in EVERY)
    with threads(3):
        found = by_bits(name, params, grad, data)
    assert found.tobytes() == run(name, params, [grad, data], plain)[0].tobytes()


@pytest.mark.parametrize("layout", (PLAIN, BLOCKED))
@pytest.mark.parametrize("special", (False, True))
@pytest.mark.parametrize("params, shape", [*POOLED[:5], ({"kernel": (2, 2), "stride": (2, 2)}, (2, 33, 8, 8))], ids=str)
def test_gradients_by_winners_have_the_bits_of_those_by_values(params: dict[str, Any], shape: tuple[int, ...],
                                                               special: bool, layout: str) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-2, 3, shape).astype(np.float32)     # with ties
    if special:
        data = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), data)
    out, = run("Pooling", params, [data])
    grad = rng.choice(GRADIENTS, out.shape) if special else rng.standard_normal(out.shape).astype(np.float32)
    one, two, three = (Layouts((layout,) * count, (layout,)) for count in (1, 2, 3))
    with threads(3):
        winners, = run("_pooling_winners", params, [data, out], two)
        found, = run("_pooling_by_winners", {**params, "size": shape[2:]}, [grad, winners], two)
    p = parsed(get_op("_pooling_winners"), params)
    assert winners.tobytes() == execute(get_op("_pooling_winners"), p, [data, out])[0].tobytes()
    assert found.tobytes() == run("_pooling_backward", params, [grad, data, out], three)[0].tobytes()
    assert run("Pooling", params, [data], one)[0].tobytes() == out.tobytes()
    both = run("_pooling_with_winners", params, [data], Layouts((layout,), (layout, layout)))
    assert [a.tobytes() for a in both] == [out.tobytes(), winners.tobytes()]


def test_a_chain_that_reads_bits_has_the_bits_of_its_kernels_one_by_one() -> None:
    rng = np.random.default_rng(3)
    first, second = (rng.standard_normal((3, 41, 83)).astype(np.float32) for _ in range(2))
    bits = rng.integers(0, 256, -(-first.size // 8)).astype(np.uint8)
    steps = [["_accumulate", [0, 1], {}], ["_relu_backward_bits", [3, 2], {}], ["_slope_bits", [4, 2], {"slope": 0.5}]]
    found, = run(CHAIN, {"num_args": 3, "program": json.dumps(steps)}, [first, second, bits], Layouts.plain(3, 1))
    value, = run("_accumulate", {}, [first, second], Layouts.plain(2, 1))
    value, = run("_relu_backward_bits", {}, [value, bits])
    value, = run("_slope_bits", {"slope": 0.5}, [value, bits])
    assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize("channels", (16, 17))
def test_blocked_layers_are_encoded_and_have_the_bits_of_others(channels: int) -> None:
    the_library()
    body = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=channels, name="c")
    body = mx.sym.Activation(body, act_type="relu", name="relu")
    symbol = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(mx.sym.Pooling(body, kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                                                                     pool_type="max"))))
    rng, found = np.random.default_rng(1), {}
    values = {"data": rng.standard_normal((2, 3, 12, 13)), "c_weight": rng.standard_normal((channels, 3, 3, 3)),
              "c_bias": rng.standard_normal(channels)}
    for encode in (False, True):
        executor = symbol.simple_bind(mx.cpu(), encode=encode, poison=True, data=(2, 3, 12, 13))
        for name, value in values.items():
            executor.arg_dict[name][:] = value
        executor.forward(is_train=True)
        executor.backward()
        found[encode] = [g.asnumpy().tobytes() for g in executor.grad_arrays]
        plan = executor.program("train").plan
        layouts = {plan.buffers.layout[plan.instructions.reads[i][0]] for i, op in enumerate(plan.instructions.op)
                   if op in ("_positive_bits", "_pooling_with_winners")}
        assert layouts == ({BLOCKED} if encode else set())
    assert found[True] == found[False]
