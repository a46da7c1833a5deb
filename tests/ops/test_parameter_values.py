"""What is no value of a parameter is told with operator, node, parameter and value, whatever it is."""
from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, dtype_of
from minigraph.ops import get_op, names

from .harness import parsed

HUGE = 2**63
WRONG = [None, "", "None", "nan", float("nan"), b"x", object(), {}, "(1,2", (None,), (1, "a"), np.ones(2), "x" * 50,
         ",loat32", "2float32", -1, 2.5, True, HUGE, "inf"]
NAMED = [name for name in names() if hasattr(mx.sym, name) and get_op(name).samples()]


@pytest.mark.parametrize("name", NAMED)
def test_any_value_of_any_parameter_gives_a_plan_or_one_error_that_names_it(name: str) -> None:
    op = get_op(name)
    sample = op.samples()[0]
    for field in dataclasses.fields(type(parsed(op, sample.params))):
        for value in WRONG:
            if field.name in ("num_args", "program") or (value is HUGE and field.metadata["kind"] == "int"):
                continue
            try:
                inputs = [mx.sym.Variable(f"v{k}", shape=shape) for k, shape in enumerate(sample.shapes)]
                symbol = getattr(mx.sym, name)(*inputs, name="node", **{**sample.params, field.name: value})
                mx.plan(symbol, {}, grad_req="null", inputs=[], program="eval")
            except MXNetError as error:
                told = str(error)
                assert field.name in told or "node" in told or name in told, (field.name, value, told)


@pytest.mark.parametrize("layer, key", [
    (lambda x, **p: mx.sym.Pooling(x, kernel=(2, 2), name="node", **p), "pool_type"),
    (lambda x, **p: mx.sym.Convolution(x, kernel=(2, 2), num_filter=2, name="node", **p), "num_group"),
    (lambda x, **p: mx.sym.Dropout(x, name="node", **p), "p"),
    (lambda x, **p: mx.sym.Concat(x, x, name="node", **p), "dim"),
    (lambda x, **p: mx.sym.LeakyReLU(x, name="node", **p), "slope"),
    (lambda x, **p: mx.sym.topk(x, name="node", **p), "k"),
    (lambda x, **p: mx.sym.BatchNorm(x, name="node", **p), "eps"),
    (lambda x, **p: mx.sym.SoftmaxOutput(x, name="node", **p), "grad_scale"),
    (lambda x, **p: mx.sym.softmax(x, name="node", **p), "axis")])
def test_none_is_no_number_and_no_word_and_the_default_is_told(layer: Any, key: str) -> None:
    with pytest.raises(MXNetError, match=rf"node: parameter {key}=None is no .*; leave it out for '"):
        layer(mx.sym.Variable("x"), **{key: None})
    stored = json.loads(layer(mx.sym.Variable("x")).tojson())
    attrs = next(node for node in stored["nodes"] if node["name"] == "node").setdefault("attrs", {})
    attrs[key] = "None"
    with pytest.raises(MXNetError, match=rf"node: parameter {key}=None is no "):
        mx.sym.load_json(json.dumps(stored))


def test_none_leaves_shapes_and_types_out_and_stays_where_it_means_something() -> None:
    x = mx.sym.Variable("x", shape=(2, 3, 4, 4))
    for left_out, without in (
            (mx.sym.Pooling(x, kernel=(2, 2), stride=None, pad=None), mx.sym.Pooling(x, kernel=(2, 2))),
            (mx.sym.transpose(x, axes=None), mx.sym.transpose(x)),
            (mx.sym.slice(x, begin=(0,), end=(1,), step=None), mx.sym.slice(x, begin=(0,), end=(1,))),
            (mx.sym.argsort(x, dtype=None), mx.sym.argsort(x)), (mx.sym.sum(x, axis=None), mx.sym.sum(x))):
        assert left_out.infer_shape() == without.infer_shape()
        assert left_out.infer_type(x="float32") == without.infer_type(x="float32")
    assert mx.sym.topk(x, axis=None, k=5).infer_shape()[1] == [(5,)]
    assert mx.sym.argsort(x, axis=None).infer_shape()[1] == [(96,)]


@pytest.mark.parametrize("text", [",loat32", "2float32", "(2,)f4", "float32,float32", "S5", "object", "float128x", "f,",
                                  "complex64", "M8", "", "nan", None, object(), 2.5, {}, [], "99", -1, True, "i4,i4"])
def test_what_is_no_type_of_one_number_is_refused(text: Any) -> None:
    with pytest.raises(MXNetError):
        dtype_of(text)


@pytest.mark.parametrize("text", ["float32", "int64", "0", 0, np.float16, np.dtype("uint8"), "bool", ">f4", int, float])
def test_names_numbers_and_types_of_mxnet_are_types(text: Any) -> None:
    assert dtype_of(text).shape == () and dtype_of(text).names is None


@pytest.mark.parametrize("array", [np.ones((2, 3), np.float32), mx.nd.ones((2, 3)), np.ones(())])
def test_a_symbol_and_an_array_are_told_that_arrays_are_bound(array: Any) -> None:
    x = mx.sym.Variable("x")
    for operation in (lambda: array * x, lambda: x * array, lambda: x + array, lambda: array - x, lambda: x / array,
                      lambda: x > array, lambda: mx.sym.maximum(x, array)):
        with pytest.raises(TypeError, match="a symbol and an array .*make the array a variable"):
            operation()
    assert (np.float32(2) * x).list_arguments() == (x * np.float64(2)).list_arguments() == ["x"]
