"""Every operator's samples through one generated test: registry x samples."""
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.graph import Graph, GraphBuilder
from minigraph.graph.gradient import add_gradient
from minigraph.ops import get_op, names
from minigraph.ops.control import set_key
from minigraph.ops.op import Op, Sample

from .harness import execute, infer, parsed, run, sample_dtypes

CASES = [pytest.param(name, k, id=f"{name}-{k}") for name in names() for k in range(len(get_op(name).samples()))]


def stands(name: str, k: int) -> bool:
    """Whether the op of a sample runs as it stands, and not as other nodes."""
    op = get_op(name)
    if type(op).expand is Op.expand or type(op).compute is Op.compute:
        return type(op).expand is Op.expand
    sample, b = op.samples()[k], GraphBuilder(Graph())
    p = parsed(op, sample.params)
    ins = [b.variable(given, shape, np.float32, "input") for given, shape in
           zip(op.inputs(p), sample.shapes, strict=True)]
    op.expand(b, p, ins, False)
    return [each for each in b.graph.op if each is not None] == [op]


SINGLE = [case for case in CASES if stands(*case.values)]
"""Samples of ops that run as they stand; the others run as the nodes that they expand to."""
DIFFERENTIABLE_OR_LOSS = [case for case in CASES if type(get_op(case.values[0])).gradient is not Op.gradient
                          or case not in SINGLE]
DIFFERENTIABLE = [case for case in DIFFERENTIABLE_OR_LOSS
                  if get_op(case.values[0]).samples()[case.values[1]].differentiable]


CONTROL_NAMES = ("control", "key")


def draw(op: Op, sample: Sample, dtype: Any, seed: int = 3) -> list[np.ndarray]:
    """Inputs of a sample: uniform numbers, integers where the sample says so, and a valid control buffer."""
    rng = np.random.default_rng(seed)
    arrays = []
    p = parsed(op, sample.params)
    for name, shape, kind in zip(op.inputs(p), sample.shapes, sample_dtypes(op, p, dtype), strict=True):
        if name in CONTROL_NAMES:
            arrays.append(rng.uniform(0.1, 1, shape).astype(np.float32))
            set_key(arrays[-1], 7, 1)
        elif name in sample.integer:
            arrays.append(rng.integers(0, sample.integer[name], shape).astype(kind))
        else:
            arrays.append(rng.uniform(sample.low, sample.high, shape).astype(dtype))
    return arrays


def symbol_of(name: str, sample: Sample) -> tuple[mx.sym.Symbol, list[str]]:
    """The operator over fresh variables, and the names of those."""
    op = get_op(name)
    inputs = op.inputs(parsed(op, sample.params))
    variables = [mx.sym.Variable(f"in_{k}_{n}") for k, n in enumerate(inputs)]
    return getattr(mx.sym, name)(*variables, name="op", **sample.params), [v.name for v in variables]


def bound(name: str, sample: Sample, dtype: Any, grad_req: str,
          **options: Any) -> tuple[Any, list[str], list[np.ndarray]]:
    """A sample's executor with its inputs set, the names of its inputs, and their values."""
    symbol, variables = symbol_of(name, sample)
    op = get_op(name)
    arrays = draw(op, sample, dtype)
    inputs = op.inputs(parsed(op, sample.params))
    fixed = (*sample.integer, *CONTROL_NAMES)
    requests = {v: "null" if n in fixed else grad_req for v, n in zip(variables, inputs, strict=True)}
    dtypes = {v: np.float32 if n in CONTROL_NAMES else dtype for v, n in zip(variables, inputs, strict=True)}
    requests = {v: r for v, r in requests.items() if v in symbol.list_arguments()}
    executor = symbol.simple_bind(mx.cpu(), grad_req=requests, type_dict=dtypes,
                                  **dict(zip(variables, sample.shapes, strict=True)), **options)
    for variable, array in zip(variables, arrays, strict=True):
        {**executor.arg_dict, **executor.aux_dict}[variable][:] = array
    return executor, variables, arrays


def head_gradients(executor: Any) -> list[np.ndarray]:
    """Fixed random head gradients for the present outputs."""
    rng = np.random.default_rng(11)
    return [rng.uniform(-1, 1, o.shape).astype(o.dtype) for o in executor.outputs]


def forward(executor: Any) -> list[np.ndarray]:
    """Outputs of a training forward under the same random key each time."""
    mx.random.seed(5)
    return [o.asnumpy() for o in executor.forward(is_train=True)]


def training_graph(name: str, k: int) -> tuple[Graph, dict[int, np.ndarray]]:
    """A sample's forward and backward nodes in training form, and the values of the variables."""
    op = get_op(name)
    sample = op.samples()[k]
    p = parsed(op, sample.params)
    b, values = GraphBuilder(Graph()), {}
    control = np.zeros(8, np.float32)
    set_key(control, 7, 1)
    b.set_control(b.variable("control", control.shape, control.dtype, "input"))
    values[0] = control
    inputs = []
    for given, array in zip(op.inputs(p), draw(op, sample, np.float32), strict=True):
        inputs.append(b.variable(given, array.shape, array.dtype, "parameter"))
        values[inputs[-1]] = array
    outs = list(op.expand(b, p, inputs, True))[:op.visible_outputs(p)]
    b.graph.outputs = b.graph.heads = outs
    b.graph.output_names = [f"out{j}" for j in range(len(outs))]
    fixed = (*sample.integer, *CONTROL_NAMES, *op.aux(p))
    wanted = [e for e, n in zip(inputs, op.inputs(p), strict=True) if n not in fixed]
    heads = [(e, None if op.is_loss(p) else b.variable(f"head{e}", b.shape(e), b.dtype(e), "input")) for e in outs]
    values |= {h: np.linspace(-1, 1, int(np.prod(b.shape(h))), dtype=b.dtype(h)).reshape(b.shape(h))
               for _, h in heads if h is not None}
    add_gradient(b, heads, wanted, lambda variable, gradient: None)
    return b.graph, values


@pytest.mark.parametrize("name", names())
def test_every_operator_has_samples_or_stands_in_the_graph_of_one_that_has(name: str) -> None:
    if get_op(name).transfer is not None:
        pytest.skip("moves values and computes nothing; schedules with swaps test it")
    assert get_op(name).samples() or name in covered(), f"nothing tests {name}: declare samples"


@cache
def covered() -> frozenset[str]:
    """Operators that stand in the training graph of some sample."""
    reached: set[str] = set()
    for case in DIFFERENTIABLE_OR_LOSS:
        reached |= {op.name for op in training_graph(*case.values)[0].op if op is not None}
    return frozenset(reached)


@pytest.mark.parametrize(("name", "k"), DIFFERENTIABLE_OR_LOSS)
def test_backward_nodes_keep_what_they_declare(name: str, k: int) -> None:
    """Each node alone, on poisoned outputs and exact workspace: in-place pairs give the same bits, unread inputs hold
    NaN, and inputs stay as they were."""
    graph, values = training_graph(name, k)
    for node in graph:
        if node.op is None:
            continue
        outs = run(node.op.name, vars(node.params), [values[e] for e in node.inputs])
        values.update(zip(node.outputs, outs, strict=True))
        assert not any(np.isnan(o).any() for o in outs), f"{node.op.name} left outputs unwritten"


@pytest.mark.parametrize(("name", "k"), SINGLE)
def test_float32_agrees_with_float64_and_in_place_pairs_give_the_same_bits(name: str, k: int) -> None:
    op = get_op(name)
    sample = op.samples()[k]
    single = run(name, sample.params, draw(op, sample, np.float32))
    arrays = draw(op, sample, np.float32)
    dtypes, _ = op.infer_dtype(parsed(op, sample.params), [np.dtype(np.float64), *[None] * (len(arrays) - 1)],
                               [None] * len(single))
    double = execute(op, parsed(op, sample.params), [a.astype(t) for a, t in zip(arrays, dtypes, strict=True)])
    for a, b in zip(single, double, strict=True):
        assert not np.isnan(a).any(), f"{name} left outputs unwritten"
        np.testing.assert_allclose(a, b, rtol=sample.rtol, atol=sample.atol)


@pytest.mark.parametrize(("name", "k"), DIFFERENTIABLE)
def test_gradients_agree_with_central_differences(name: str, k: int) -> None:
    sample = get_op(name).samples()[k]
    executor, variables, arrays = bound(name, sample, np.float64, "write", poison=True)
    forward(executor)
    heads = head_gradients(executor)
    executor.backward(heads)
    gradients = {v: g.asnumpy() for v, g in executor.grad_dict.items() if g is not None}
    rng, step = np.random.default_rng(17), 1e-6
    for variable, array in zip(variables, arrays, strict=True):
        if variable not in gradients:
            continue
        direction, values = rng.uniform(-1, 1, array.shape), []
        for sign in (1, -1):
            executor.arg_dict[variable][:] = array + sign * step * direction
            outs = forward(executor)
            values.append(sum(float((o * h).sum()) for o, h in zip(outs, heads, strict=True)))
        executor.arg_dict[variable][:] = array
        numeric = (values[0] - values[1]) / (2 * step)
        analytic = float((gradients[variable] * direction).sum())
        assert analytic == pytest.approx(numeric, rel=1e-5, abs=1e-6), f"gradient of {variable}"


@pytest.mark.parametrize(("name", "k"), DIFFERENTIABLE)
def test_add_requests_add_to_what_is_there_and_null_requests_write_nothing(name: str, k: int) -> None:
    sample = get_op(name).samples()[k]
    written, *_ = bound(name, sample, np.float32, "write", poison=True)
    added, *_ = bound(name, sample, np.float32, "add", poison=True)
    for executor in (written, added):
        for gradient in executor.grad_dict.values():
            if gradient is not None:
                gradient[:] = 0.5
        forward(executor)
        executor.backward(head_gradients(executor))
    for variable, gradient in written.grad_dict.items():
        if gradient is None:
            assert added.grad_dict[variable] is None
        else:
            np.testing.assert_array_equal(added.grad_dict[variable].asnumpy(), gradient.asnumpy() + np.float32(0.5))


def test_inference_completes_every_sample_from_its_inputs() -> None:
    for name in names():
        op = get_op(name)
        for sample in op.samples():
            types = infer(op, parsed(op, sample.params), draw(op, sample, np.float32))
            assert len(types) == len(op.outputs(parsed(op, sample.params)))
