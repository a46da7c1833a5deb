"""Bytes that ops are declared to move: each pass over whole tensors counts, and so do parts that are looked up."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import minigraph as mx  # noqa: F401
from minigraph.base import TensorType
from minigraph.graph.builder import GraphBuilder
from minigraph.graph.graph import Graph
from minigraph.ops.op import Op
from minigraph.ops.registry import get_op

from .harness import parsed

DATA = (64, 8, 16, 16)
BYTES = 4 * 64 * 8 * 16 * 16
FORMS: tuple[dict[str, Any], ...] = ({}, {"act_type": "relu"}, {"act_type": "tanh"}, {"addend": True},
                                     {"addend": True, "act_type": "relu"})


def moved(op: Op, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> int:
    cost = op.cost(p, ins, outs)
    return cost.read_bytes + cost.written_bytes


def tensors_moved(name: str, form: dict[str, Any], stages: bool) -> float:
    """How many times the bytes of data a normalisation moves, or its gradient, in one piece or in stages."""
    b, op = GraphBuilder(Graph()), get_op(name)
    p = parsed(op, form)
    wide = {"data", "addend", "out_grad", "out"}
    ins = [b.variable(n, DATA if n in wide else DATA[1:2], np.float32, "input") for n in op.inputs(p)]
    if stages:
        op.stages(b, p, ins)
    else:
        b.add(op, p, name, tuple(ins))
    graph = b.graph
    return sum(moved(node, graph.params[i], [graph.type_of(e) for e in graph.inputs[i]],
                     [graph.type_of(e) for e in graph.entries(i)])
               for i, node in enumerate(graph.op) if node is not None) / BYTES


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_normalisation_in_one_piece_reads_its_data_twice_as_its_stages_do(form):
    whole = tensors_moved("_batchnorm_train", form, stages=False)
    assert whole == pytest.approx(3 + form.get("addend", False), rel=0.001)
    assert whole == pytest.approx(tensors_moved("_batchnorm_train", form, stages=True), rel=0.001)


@pytest.mark.parametrize("form, tensors", list(zip(FORMS, (5, 5, 7, 5, 7), strict=True)), ids=str)
def test_a_gradient_in_one_piece_moves_what_both_of_its_passes_move(form, tensors):
    whole = tensors_moved("_batchnorm_backward", form, stages=False)
    assert whole == pytest.approx(tensors, rel=0.001)
    assert whole == pytest.approx(tensors_moved("_batchnorm_backward", form, stages=True), rel=0.001)


def test_statistics_that_are_given_take_one_pass():
    vector = TensorType((8,), np.dtype(np.float32))
    data = TensorType(DATA, np.dtype(np.float32))
    op = get_op("_batchnorm_inference")
    assert moved(op, parsed(op, {"fix_gamma": False}), [data, *[vector] * 4], [data]) == 2 * BYTES + 4 * 4 * 8


@pytest.mark.parametrize("name, params, ins, out", [
    ("Embedding", {"input_dim": 1000, "output_dim": 16}, [(6,), (1000, 16)], (6, 16)),
    ("take", {}, [(1000, 16), (6,)], (6, 16)), ("gather_nd", {}, [(1000, 16), (1, 6)], (6, 16)),
    ("pick", {}, [(6, 1000), (6,)], (6,)), ("slice_axis", {"axis": 1, "begin": 2, "end": 3}, [(6, 100)], (6, 1))])
def test_of_a_table_only_what_is_looked_up_is_read(name, params, ins, out):
    op, float32 = get_op(name), np.dtype(np.float32)
    types = [TensorType(shape, float32) for shape in ins]
    made = TensorType(out, float32)
    index_bytes = sum(t.nbytes for t in types) - max(t.nbytes for t in types)
    cost = op.cost(parsed(op, params), types, [made])
    assert (cost.read_bytes, cost.written_bytes) == (made.nbytes + index_bytes, made.nbytes)


def test_a_table_smaller_than_what_is_looked_up_is_read_once():
    op, float32 = get_op("take"), np.dtype(np.float32)
    table, ids, out = (TensorType(shape, float32) for shape in ((2, 16), (60,), (60, 16)))
    assert op.cost(parsed(op, {}), [table, ids], [out]).read_bytes == table.nbytes + ids.nbytes
