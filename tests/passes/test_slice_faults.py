"""A fault planted in the slices of a step is found: by the lint, or by comparing every bit with the plain plan."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.executor import Executor
from minigraph.graph.graph import Graph
from minigraph.optimizer import SGD
from minigraph.passes import slice as slicing
from minigraph.passes import slice_choice
from minigraph.plan.plan import SLICE, Plan

from .test_slice import labelled, slices_of

SHAPES = labelled(96, 3, 20, 20)
"""Three slices, of chunks of 32 images."""
Fault = Callable[[Graph], None]


def network() -> mx.sym.Symbol:
    h = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=20, name="conv")
    h = mx.sym.Activation(mx.sym.BatchNorm(h, fix_gamma=False, name="bn"), act_type="tanh", name="tanh")
    h = mx.sym.Pooling(h, kernel=(20, 20), pool_type="avg", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc"), name="softmax")


def check() -> Plan:
    """Run a step in slices, and compare it with the plain plan; the plan in slices."""
    symbol = network()
    exe = Executor(symbol, mx.cpu(), SHAPES, inputs=tuple(SHAPES), slices=3,
                   grad_req={name: "null" if name in SHAPES else "write" for name in symbol.list_arguments()})
    exe.set_updater(SGD(learning_rate=0.05))
    draw = np.random.default_rng(1)
    for name, array in exe.arg_dict.items():
        array[:] = draw.uniform(-0.1, 0.1, array.shape) + name.endswith("gamma")
    feeds = {"data": draw.uniform(-1, 1, SHAPES["data"]).astype(np.float32),
             "softmax_label": draw.integers(0, 5, SHAPES["softmax_label"]).astype(np.float32)}
    exe.step(SGD(learning_rate=0.05).control, **feeds)
    assert len(slices_of(exe.program("step").plan)) == 3
    exe.check_modes("plain")
    return exe.program("step").plan


def with_fault(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    written = slicing.sliced_graph

    def faulty(*args: Any) -> Graph | None:
        graph = written(*args)
        if graph is not None:
            fault(graph)
        return graph
    monkeypatch.setattr(slicing, "sliced_graph", faulty)


def node(graph: Graph, *parts: str) -> int:
    """The first node whose name holds some texts."""
    return next(i for i, name in enumerate(graph.name) if all(part in name for part in parts))


def running_sum_of_another_slice(kind: str) -> Fault:
    def fault(graph: Graph) -> None:
        first, last = (node(graph, kind, f"{SLICE}{k}") for k in (0, 2))
        graph.inputs[last] = (*graph.inputs[last][:-1], graph.first[first])
    fault.__name__ = f"running_{kind}_of_another_slice"
    return fault


def running_moments_of_fewer_rows(graph: Graph) -> None:
    last = node(graph, "moments", f"{SLICE}2")
    graph.params[last] = replace(graph.params[last], rows_before=32)


def a_slice_reads_anothers_rows(graph: Graph) -> None:
    one, other = (node(graph, "conv", f"{SLICE}{k}") for k in (1, 2))
    graph.inputs[other] = graph.inputs[one]


def a_slice_is_placed_on_another(graph: Graph) -> None:
    one, other, *_ = (i for i, op in enumerate(graph.op) if op is not None and op.name == "_place_rows")
    graph.params[other] = graph.params[one]


def a_slice_is_left_out(graph: Graph) -> None:
    first, last = (node(graph, "moments", f"{SLICE}{k}") for k in (0, 2))
    statistics = node(graph, "statistics")
    assert graph.inputs[statistics] == (graph.first[last],)
    graph.inputs[statistics] = (graph.first[first],)


FAULTS: list[Fault] = [running_sum_of_another_slice("convolution_backward_weight"),
                       running_sum_of_another_slice("moments"), running_sum_of_another_slice("backward_sums"),
                       running_moments_of_fewer_rows, a_slice_reads_anothers_rows, a_slice_is_placed_on_another,
                       a_slice_is_left_out]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_planted_in_the_slices_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(fault, monkeypatch)
    with pytest.raises(MXNetError):
        check()


def test_slices_that_end_inside_chunks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_choice._Choice, "length", lambda self, batch: 33)
    monkeypatch.setattr(slice_choice._Choice, "_keeps_bits", lambda self, i, form, batch, length: form is not None)
    with pytest.raises(MXNetError, match="differ"):
        check()


def test_a_slice_that_reads_a_later_one_is_found_by_the_lint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(graph: Graph) -> None:
        one, other = (node(graph, "moments", f"{SLICE}{k}") for k in (1, 2))
        graph.inputs[one] = (graph.inputs[one][0], graph.first[other])
    with_fault(fault, monkeypatch)
    with pytest.raises(MXNetError, match="reads a later node"):
        check()


def test_without_a_fault_nothing_is_found_and_normalisations_are_cut_too() -> None:
    """By kernels where convolutions are computed by kernels."""
    code = check().instructions
    by_kernels = {way.startswith("native.") for op, way in zip(code.op, code.algorithm, strict=True)
                  if op == "Convolution"}
    for op in ("moments", "apply", "backward_sums", "backward_data"):
        ways = [way for name, of, way in zip(code.name, code.op, code.algorithm, strict=True)
                if of.startswith(f"_batchnorm_{op}") and SLICE in name]
        assert len(ways) == 3 and {way.startswith("native.") for way in ways} == by_kernels
    assert not {"_batchnorm_train", "_batchnorm_backward"} & set(code.op)
