"""Layouts: chosen for chains, converted at their ends, and nothing that a user sees depends on them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph import binding
from minigraph.base import BLOCKED, PLAIN, TRANSPOSED, Algorithm, Layouts, MXNetError, TensorType, stored_shape
from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.program import PoisonedCpuProgram
from minigraph.ops.layout import logical, stored, to_blocked
from minigraph.ops.op import Workspace
from minigraph.ops.registry import get_op
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import run_passes
from minigraph.plan.plan import Plan
from minigraph.plan.printer import format_plan
from minigraph.plan.serialize import load, save
from minigraph.planning import prepare
from tests.random_graphs import random_case, results

SHAPES = {"data": (2, 20, 6, 6)}
CHAINED = {"Activation", "_activation_backward", "elemwise_add", "_accumulate", "Pooling", "_batchnorm_train",
           "_batchnorm_inference", "_batchnorm_backward", "relu", "tanh"}


def offer(op: Any, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[Layouts]:
    """What a device with blocked kernels might offer: convolutions in blocks and, slowly, plain; others both ways."""
    def blocked(types: Sequence[TensorType]) -> tuple[str, ...]:
        return tuple(BLOCKED if len(t.shape) == 4 else PLAIN for t in types)
    plain = Layouts.plain(len(ins), len(outs))
    if op.name in ("Convolution", "_convolution_activated"):
        return Layouts((BLOCKED, *(PLAIN,) * (len(ins) - 1)), (BLOCKED,)), replace(plain, slowdown=10.0)
    if op.name == "_convolution_backward_weight":
        return Layouts((BLOCKED, BLOCKED, PLAIN), (PLAIN,)), replace(plain, slowdown=10.0)
    if op.name == "_convolution_backward_data":
        return Layouts((BLOCKED, PLAIN, *(BLOCKED,) * (len(ins) - 2)), (BLOCKED,)), replace(plain, slowdown=10.0)
    if op.name in CHAINED:
        return Layouts(blocked(ins), blocked(outs)), plain
    return (plain,)


def ways(op: Any, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[Algorithm]:
    """The op's own algorithms, under other names where it takes blocks, which NumPy does not."""
    blocks = any(t.layout == BLOCKED for t in (*ins, *outs))
    return [replace(a, name=f"blocked {a.name}" if blocks else a.name) for a in op.algorithms(params, ins, outs)]


def compute_blocked(plan: Plan, i: int, arrays: list[np.ndarray]) -> None:
    """An instruction with blocked operands by way of plain ones; the lanes beyond the channels must be zero."""
    code, columns = plan.instructions, plan.buffers
    op, params = get_op(code.op[i]), code.params[i]
    ins = []
    for k, b in enumerate(code.reads[i]):
        shape = columns.shape[b]
        if k in code.unread[i]:
            ins.append(np.broadcast_to(np.float32(np.nan), shape))
            continue
        if columns.layout[b]:
            rest = shape[1] % 16
            assert not rest or not arrays[b][:, -1, ..., rest:].any(), f"lanes of {columns.name[b]} are not zero"
        ins.append(np.array(logical(arrays[b], shape, columns.layout[b])))
    outs = [np.full(columns.shape[b], np.nan, columns.dtype[b]) for b in code.writes[i]]
    types = [[TensorType(columns.shape[b], columns.dtype[b]) for b in bs] for bs in (code.reads[i], code.writes[i])]
    scratch = np.empty(op.algorithms(params, *types)[0].workspace_bytes + 4096, np.uint8)
    op.compute(params, ins, outs, Workspace(scratch))
    for b, out in zip(code.writes[i], outs, strict=True):
        np.copyto(arrays[b], stored(out, columns.layout[b]))


class BlockedProgram(PoisonedCpuProgram):
    """Runs instructions with blocked operands through plain copies."""

    def _bind(self) -> None:
        super()._bind()
        arrays, layouts = self._arrays(), self.plan.buffers.layout
        for i, op in enumerate(self.plan.instructions.op):
            operands = (*self.plan.instructions.reads[i], *self.plan.instructions.writes[i])
            if op not in ("_to_blocked", "_to_plain") and any(layouts[b] for b in operands):
                self._calls[i] = partial(compute_blocked, self.plan, i, arrays)


class BlockedDevice(CpuDevice):
    """The CPU with pretended kernels for blocks."""

    fuses = None
    algorithms = staticmethod(ways)  # type: ignore[assignment]
    layouts = staticmethod(offer)  # type: ignore[assignment]

    def load(self, plan: Plan, memory: Any, poison: bool = False, graph: bool = False) -> Any:
        return BlockedProgram(plan, memory)


@pytest.fixture(autouse=True)
def numpy_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors run on a BlockedDevice."""
    monkeypatch.setattr(binding, "device_of", lambda context, disk=None: BlockedDevice(disk))


def conv(data: mx.sym.Symbol, name: str, filters: int = 20) -> mx.sym.Symbol:
    return mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=name)


def block(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    body = mx.sym.BatchNorm(conv(data, f"{name}_conv"), fix_gamma=False, name=f"{name}_bn")
    return mx.sym.Activation(body + data, act_type="relu", name=f"{name}_relu")


def network() -> mx.sym.Symbol:
    body = block(block(conv(mx.sym.Variable("data"), "conv0"), "a"), "b")
    pooled = mx.sym.Pooling(body, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(pooled), num_hidden=3, name="fc"), name="softmax")


def compiled(symbol: mx.sym.Symbol, program: str = "eval", layouts: Any = offer, **options: Any) -> Compilation:
    prepared = prepare(symbol, SHAPES, program=program, **options)
    return run_passes(prepared.graph, replace(prepared.request, layouts=layouts, algorithms=ways), prepared.layout)


def ops(state: Compilation) -> list[str]:
    return state.plan.instructions.op


def test_a_chain_is_blocked_and_converted_at_its_ends_alone():
    state = compiled(network())
    assert ops(state).count("_to_blocked") == 1 and ops(state).count("_to_plain") == 1
    layouts = dict(zip(state.plan.buffers.name, state.plan.buffers.layout, strict=True))
    assert layouts["data"] == PLAIN and layouts["conv0_output"] == BLOCKED and layouts["pool_output"] == BLOCKED
    assert layouts["softmax_output"] == PLAIN


def test_what_lies_alone_between_plain_neighbours_stays_plain():
    data = mx.sym.Variable("data")
    state = compiled(mx.sym.transpose(mx.sym.Activation(mx.sym.transpose(data), act_type="relu")))
    assert not any(state.plan.buffers.layout)


def test_without_offers_nothing_changes():
    assert not any(compiled(network(), "train", layouts=None).plan.buffers.layout)


def test_an_output_is_plain_though_its_maker_is_not():
    state = compiled(conv(mx.sym.Variable("data"), "c"))
    assert ops(state) == ["_to_blocked", "Convolution", "_to_plain"]
    assert state.plan.buffers.layout[state.plan.outputs[0].buffer] == PLAIN


def test_blocks_count_the_channels_that_fill_them_up():
    state = compiled(network(), "train")
    columns = state.plan.buffers
    for b, layout in enumerate(columns.layout):
        shape, size = columns.shape[b], columns.bytes[b]
        if layout:
            assert size == 4 * shape[0] * 32 * shape[2] * shape[3] > 4 * int(np.prod(shape))
    assert "nChw16c" in format_plan(state.plan)
    assert TensorType((2, 20, 3), np.dtype(np.float32), BLOCKED).nbytes == 2 * 32 * 3 * 4


def test_a_value_that_backward_reads_is_converted_there_again_and_not_kept_twice():
    data = conv(mx.sym.Variable("data"), "c")
    plain = mx.sym.sin(data)     # forward and backward read it plain, in between lies a chain
    state = compiled(mx.sym.MakeLoss(mx.sym.sum(conv(data, "d") + plain)), "train")
    code = state.plan.instructions
    names = [name for op, name in zip(code.op, code.name, strict=True) if op == "_to_plain" and name.startswith("c_")]
    assert len(names) == 2


def test_a_plan_with_layouts_is_saved_and_loaded(tmp_path):
    plan = compiled(network(), "train").plan
    save(plan, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json").buffers.layout == plan.buffers.layout


def test_an_offer_of_the_wrong_number_is_refused_by_name():
    with pytest.raises(MXNetError, match="Convolution has 3 inputs and 1 outputs, and the device offers layouts"):
        compiled(network(), layouts=lambda op, p, ins, outs: (Layouts((BLOCKED,), (BLOCKED,)),))


@pytest.mark.parametrize("memory, more", [(None, {}), ("naive", {}), ("sublinear", {}), ("auto", {}),
                                          ("vdnn_all", {"host_budget": "1GiB"})])
def test_results_do_not_depend_on_layouts(monkeypatch, memory, more):
    rng = np.random.default_rng(3)
    values = {"data": rng.standard_normal(SHAPES["data"]).astype(np.float32), "softmax_label": np.array([0, 2])}

    def run() -> dict[str, bytes]:
        executor = network().simple_bind(mx.cpu(), memory=memory, poison=True, **more, **SHAPES)
        for name, array in sorted(executor.arg_dict.items()):
            array[:] = values.get(name, np.random.default_rng(len(name)).uniform(-1, 1, array.shape))
        for array in executor.aux_dict.values():
            array[:] = 1
        outputs = executor.forward(is_train=True)
        executor.backward()
        named = {**{str(k): o for k, o in enumerate(outputs)}, **executor.grad_dict, **executor.aux_dict}
        return {name: a.asnumpy().tobytes() for name, a in named.items() if a is not None}
    plain = run()
    monkeypatch.setattr(binding, "device_of", lambda context, disk=None: BlockedDevice(disk))
    if "host_budget" not in more:
        assert run() == plain


@pytest.mark.parametrize("seed", range(40, 52))
def test_random_graphs_do_not_depend_on_layouts(monkeypatch, seed):
    case = random_case(seed)

    def run() -> dict[str, bytes]:
        executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, poison=True, **case.shapes)
        return results(case, executor, seed)
    plain = run()
    monkeypatch.setattr(binding, "device_of", lambda context, disk=None: BlockedDevice(disk))
    found = run()
    assert [name for name in plain if found[name] != plain[name]] == []


def test_a_value_that_is_not_finite_is_named_at_its_logical_position(blocked):
    symbol = mx.sym.Activation(conv(mx.sym.Variable("data"), "c"), act_type="relu", name="act")
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", **SHAPES)
    executor.arg_dict["c_bias"][17] = np.nan
    executor.forward()
    found = executor.find_nonfinite()
    assert (found.op, found.position) == ("_convolution_activated", (0, 17, 0, 0)) and np.isnan(found.value)


def test_a_monitor_sees_logical_values(blocked):
    seen = {}
    executor = network().simple_bind(mx.cpu(), **SHAPES)
    executor.set_monitor_callback(lambda name, value: seen.update({name: value.shape}))
    executor.forward(is_train=True)
    assert seen["conv0_output"] == (2, 20, 6, 6)


@pytest.mark.parametrize("shape", [(2, 20, 3, 4), (3, 16, 2), (1, 5, 2, 2), (2, 33)])
def test_blocks_hold_channels_by_sixteen_and_zeros_behind_them(shape):
    value = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    out = np.full(stored_shape(shape, BLOCKED), np.nan, np.float32)
    to_blocked(value, out)
    for channel in range(out.shape[1] * 16):
        lane = out[:, channel // 16, ..., channel % 16]
        np.testing.assert_array_equal(lane, value[:, channel] if channel < shape[1] else np.zeros_like(lane))
    np.testing.assert_array_equal(logical(out, shape, BLOCKED), value)


def test_a_matrix_that_lies_column_by_column_is_read_and_written_as_it_is_meant():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    held = stored(value, TRANSPOSED)
    assert held.shape == stored_shape((2, 3), TRANSPOSED) and held.ravel().tolist() == [0, 3, 1, 4, 2, 5]
    np.testing.assert_array_equal(logical(held, (2, 3), TRANSPOSED), value)
