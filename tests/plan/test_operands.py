"""The verifier refuses operands that do not fit their operators: shapes, dtypes, layouts, scratch and algorithms."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import BLOCKED, TRANSPOSED, Algorithm
from minigraph.ops.params import NoParams
from minigraph.plan.plan import Plan
from minigraph.plan.verify import VerificationError, verify
from minigraph.planning import plan

from .build import Maker, TunedParams, chain, corrupt, swap
from .failing import failure


@cache
def network_plan(**options: Any) -> Plan:
    body = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=6, name="conv")
    body = mx.sym.Pooling(mx.sym.Activation(body, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=5, name="fc"), name="softmax")
    return plan(net, {"data": (4, 3, 8, 8)}, "sgd", **options)


def row_of(made: Plan, op: str) -> int:
    return next(i for i, name in enumerate(made.instructions.op) if op in name.lower())


def with_shape(made: Plan, b: int, shape: Sequence[int]) -> Plan:
    return corrupt(made, b_shape=(b, tuple(shape)))


def test_an_output_of_another_shape_is_refused_with_what_its_op_makes() -> None:
    error = failure(with_shape(chain(), 4, (8, 2)))
    assert "instruction 1 'b' (t_unary) has output 0, buffer 4 'b' of float32 (8, 2)" in str(error)
    assert "has the shape (16,) there" in str(error)
    assert error.instructions == (1,)


def test_an_operand_of_which_one_dimension_is_zero_is_refused() -> None:
    made = network_plan()
    conv = row_of(made, "convolution")
    weight = made.instructions.reads[conv][1]
    for axis in range(4):
        shape = list(made.buffers.shape[weight])
        shape[axis] = 0
        assert f"instruction {conv} " in str(failure(with_shape(made, weight, shape)))


def test_an_operand_that_is_swapped_for_a_live_one_of_another_shape_is_refused() -> None:
    m = Maker()
    data, wide = m.value("data"), m.value("wide", 32)
    a, b, out = m.value("a"), m.value("b"), m.value("out")
    m.run("t_unary", (data,), (a,))
    m.run("t_binary", (data, a), (b,))
    m.run("t_dense", (b, wide), (out,))
    made = m.plan(inputs=(data, wide), outputs=(out,))
    verify(made)
    error = failure(corrupt(made, i_reads=(1, (wide, a))))
    assert "buffer 1 'wide' of float32 (32,)" in str(error) and "shapes (32,) and (16,) differ" in str(error)


def test_another_dtype_of_an_output_or_of_bits_is_refused() -> None:
    error = failure(corrupt(chain(), b_dtype=(2, np.dtype(np.int32))))
    assert "has output 0, buffer 2 'a' of int32 (16,)" in str(error) and "the dtype float32 there" in str(error)
    made = network_plan()
    bits = [b for b, dtype in enumerate(made.buffers.dtype) if dtype == np.uint8
            and made.buffers.buffer_class[b] != "workspace"]
    assert bits
    for b in bits:
        assert "dtype uint8" in str(failure(corrupt(made, b_dtype=(b, np.dtype(np.int8)))))


def test_params_that_do_not_fit_the_shapes_are_refused() -> None:
    made = network_plan()
    conv = row_of(made, "convolution")
    params = made.instructions.params[conv]
    for change in ({"kernel": (2, 2)}, {"num_filter": 7}, {"stride": (2, 1)}, {"pad": (1, 0)}, {"num_group": 5}):
        error = failure(corrupt(made, i_params=(conv, dataclasses.replace(params, **change))))
        assert error.instructions == (conv,)


def test_params_of_another_operator_are_refused() -> None:
    made = network_plan()
    conv = row_of(made, "convolution")
    for params in (None, NoParams(), TunedParams()):
        assert "parameters" in str(failure(corrupt(made, i_params=(conv, params))))


def test_an_operator_that_fails_at_its_operands_refuses_them() -> None:
    made = network_plan()
    conv = row_of(made, "convolution")
    params = dataclasses.replace(made.instructions.params[conv], num_group=0)
    assert f"instruction {conv} " in str(failure(corrupt(made, i_params=(conv, params))))


def test_copies_keep_the_type() -> None:
    assert "shape, dtype and layout must be the same" in str(failure(with_shape(swap(), 2, (4, 4))))
    assert "of int32 (16,)" in str(failure(corrupt(swap(), b_dtype=(5, np.dtype(np.int32)))))


def test_a_persistent_tensor_keeps_its_type() -> None:
    m = Maker()
    weight, gradient = m.value("weight", arena="persistent"), m.value("gradient")
    after = m.value("after", over=weight)
    m.run("t_update", (weight, gradient), (after,))
    made = m.plan(inputs=(gradient,), persistent=((weight, after),))
    verify(made)
    assert "persistent tensor 'weight' begins as buffer 0" in str(failure(with_shape(made, after, (4, 4))))


def test_a_view_keeps_the_dtype_and_may_have_another_shape() -> None:
    verify(corrupt(chain(), b_shape=(5, (4, 4))))
    assert "is a view of buffer 4 'b'" in str(failure(corrupt(chain(), b_dtype=(5, np.dtype(np.int32)))))


@pytest.mark.parametrize("shape", [(-4, -4), (1.0, 16), ("16",), (2**62, 2**62)])
def test_a_shape_that_no_tensor_has_is_refused(shape: tuple[Any, ...]) -> None:
    assert "shape" in str(failure(corrupt(chain(), b_shape=(2, shape))))


def test_a_layout_that_a_shape_cannot_have_is_refused() -> None:
    for layout in ("nonsense", BLOCKED, TRANSPOSED):
        assert f"the layout {layout!r}" in str(failure(corrupt(chain(), b_layout=(2, layout))))


def test_scratch_that_is_smaller_than_the_algorithm_declares_is_refused() -> None:
    made = network_plan()
    i = next(i for i, b in enumerate(made.instructions.workspace) if b >= 0)
    b = made.instructions.workspace[i]
    device = mx.binding.device_of(mx.cpu()).algorithms
    verify(made, device)
    smaller = corrupt(made, b_bytes=(b, made.buffers.bytes[b] - 1), b_shape=(b, (made.buffers.bytes[b] - 1,)))
    with pytest.raises(VerificationError, match="bytes of workspace; .* takes"):
        verify(smaller, device)
    with pytest.raises(VerificationError, match="has 0 bytes of workspace"):
        verify(corrupt(made, i_workspace=(i, -1), b_born=(b, -1)), device)


def test_an_algorithm_that_the_device_does_not_have_is_refused_where_the_device_is_known() -> None:
    def ways(op: Any, params: Any, ins: Any, outs: Any) -> Sequence[Algorithm]:
        return [Algorithm("fast", 64), Algorithm("slow")]

    m = Maker()
    data, out = m.value("data"), m.value("out")
    m.run("t_unary", (data,), (out,), algorithm="slow")
    made = m.plan(inputs=(data,), outputs=(out,))
    verify(made, ways)
    with pytest.raises(VerificationError, match="computed by 'other', and .* the device has 'fast', 'slow'"):
        verify(corrupt(made, i_algorithm=(0, "other")), ways)
    with pytest.raises(VerificationError, match="0 bytes of workspace; 'fast' takes 64"):
        verify(corrupt(made, i_algorithm=(0, "fast")), ways)
    verify(corrupt(made, i_algorithm=(0, "other")))


def test_what_an_op_computes_itself_must_be_row_major() -> None:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (a,), (b,))
    made = m.plan(inputs=(data,), outputs=(b,))
    for each in (data, a, b):
        made.buffers.shape[each] = (1, 16)
        made.buffers.layout[each] = BLOCKED
    error = str(failure(made))
    assert "has input 0 in the layout 'nChw16c'" in error and "takes row-major tensors" in error
    for i in (0, 1):
        made.instructions.algorithm[i] = "kernel of some device"
    assert "buffer 0 'data' of float32 (1, 16) in the layout 'nChw16c' is an input" in str(failure(made))


def test_conversions_are_checked_by_what_lies_in_memory() -> None:
    m = Maker()
    data, blocks, back = m.value("data", 40), m.value("blocks", 64), m.value("back", 40)
    m.run("_to_blocked", (data,), (blocks,))
    m.run("_to_plain", (blocks,), (back,), params=mx.ops.get_op("_to_plain").Params(channels=20))
    made = m.plan(inputs=(data,), outputs=(back,))
    for each in (data, blocks, back):
        made.buffers.shape[each] = (2, 20)
    made.buffers.layout[blocks] = BLOCKED
    verify(made)
    assert "has output 0" in str(failure(with_shape(made, blocks, (1, 20))))
    assert "one logical shape" in str(failure(with_shape(made, blocks, (2, 17))))


def test_each_combination_is_asked_of_the_op_once(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Maker()
    value = data = m.value("data")
    for k in range(50):
        last, value = value, m.value(f"v{k}")
        m.run("t_tuned", (last,), (value,), params=TunedParams(count=k % 2))
    made = m.plan(inputs=(data,), outputs=(value,))
    op, asked = mx.ops.get_op("t_tuned"), []
    infer = op.infer_shape
    monkeypatch.setattr(op, "infer_shape", lambda p, ins, outs: asked.append(p) or infer(p, ins, outs))
    verify(made)
    assert len(asked) == 2
