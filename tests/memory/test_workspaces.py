"""Algorithms of one numeric class: the same bits in less workspace, taken where a budget has no room for others."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import Algorithm, TensorType
from minigraph.memory.machine import get_machine
from minigraph.ops.op import Workspace
from minigraph.ops.registry import get_op
from minigraph.plan.plan import Plan
from minigraph.plan.simulate import simulate
from minigraph.planning import least_budget, plan, prepare

FLOAT = np.dtype(np.float32)
OPS = ("Convolution", "_convolution_backward_data", "_convolution_backward_weight")
CASES = [((5, 8, 12, 10), dict(kernel=(3, 3), num_filter=6, pad=(1, 1))),
         ((2, 4, 18, 18), dict(kernel=(3, 3), num_filter=8, pad=(1, 1), num_group=2)),
         ((11, 6, 9, 9), dict(kernel=(3, 2), num_filter=4, stride=(2, 1), pad=(1, 0))),
         ((3, 2, 24), dict(kernel=(5,), num_filter=3, dilate=(2,)))]


@pytest.fixture(autouse=True)
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy computes: the C++ kernels of a convolution take no workspace to choose about."""
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")


def operands(name: str, shape: tuple[int, ...], params: dict[str, Any]) -> tuple[Any, Any, list, np.ndarray]:
    """An operator of a convolution with its parameters, random inputs, and an output."""
    random = np.random.default_rng(1)
    op = get_op("Convolution")
    p = op.Params(no_bias=True, **params)
    weight = (p.num_filter, shape[1] // p.num_group, *p.kernel)
    out = op.infer_shape(p, [shape, weight], [None])[1][0]
    data, w, grad = (random.standard_normal(each).astype(FLOAT) for each in (shape, weight, out))
    chosen = get_op(name)
    ins, result = {OPS[0]: ([data, w], grad), OPS[1]: ([grad, w, data], data), OPS[2]: ([grad, data, w], w)}[name]
    return chosen, chosen.Params(no_bias=True, **params), ins, np.empty_like(result)


def algorithms(op: Any, p: Any, ins: list, out: np.ndarray) -> tuple[Algorithm, ...]:
    return op.algorithms(p, [TensorType(a.shape, a.dtype) for a in ins], [TensorType(out.shape, out.dtype)])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("shape", "params"), CASES)
def test_algorithms_of_a_class_give_the_same_bits_in_ever_less_workspace(name, shape, params) -> None:
    op, p, ins, out = operands(name, shape, params)
    offered = algorithms(op, p, ins, out)
    assert len(offered) == 2 and len({a.numeric_class for a in offered}) == 1
    assert offered[0].workspace_bytes > offered[1].workspace_bytes and offered[0].extra_bytes == 0
    results = []
    for algorithm in offered:
        out.fill(np.nan)
        op.compute(p, ins, [out], Workspace(np.full(algorithm.workspace_bytes, 0xFF, np.uint8)))
        results.append(out.tobytes())
    assert results[0] == results[1]


def network() -> mx.sym.Symbol:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=96, name="c0")
    for k in range(1, 3):
        h = mx.sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=96, name=f"c{k}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=3, name="fc"), name="softmax")


SHAPES = {"data": (2, 3, 16, 16)}


def chosen(made: Plan) -> list[str]:
    code = made.instructions
    return [name for name, op in zip(code.algorithm, code.op, strict=True) if "onvolution" in op]


def test_a_budget_takes_lean_algorithms_only_where_there_is_no_room_and_the_model_knows_what_they_cost() -> None:
    free = plan(network(), SHAPES, "sgd", memory="plain")
    least = least_budget(prepare(network(), SHAPES, "sgd", memory="plain"))
    assert least < free.planned_bytes
    tight = plan(network(), SHAPES, "sgd", memory="plain", budget=least)
    assert tight.planned_bytes <= least
    lean = sum(name.endswith("-lean") for name in chosen(tight))
    assert 0 < lean < len(chosen(tight)) and not any(name.endswith("-lean") for name in chosen(free))
    machine = get_machine("cpu")
    assert tight.figures.step_seconds > free.figures.step_seconds == free.figures.plain_step_seconds
    assert simulate(tight, machine).seconds > simulate(free, machine).seconds


def test_the_larger_budget_takes_the_faster_algorithms() -> None:
    least = least_budget(prepare(network(), SHAPES, "sgd", memory="plain"))
    free = plan(network(), SHAPES, "sgd", memory="plain").planned_bytes
    budgets = [least + (free - least) * k // 4 for k in range(5)]
    counts = [sum(name.endswith("-lean") for name in chosen(plan(network(), SHAPES, "sgd", memory="plain", budget=b)))
              for b in budgets]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1] == 0
