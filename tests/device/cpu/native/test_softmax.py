"""softmax, output losses and rows by number give what NumPy gives, and refuse what it refuses in the same words."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, parsed

from .harness import check, run

SHAPES: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({}, (5, 10)), ({}, (3, 1000)), ({"temperature": 2.0}, (70, 17)), ({"axis": 1}, (2, 2, 9, 9)),
    ({"axis": 1}, (3, 21, 5)), ({"axis": 0}, (4, 3)), ({}, (0, 4)), ({}, (4, 1)), ({}, (2, 20_000))]


@pytest.mark.parametrize("params, shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_gradient(name: str, params: dict[str, Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(0, 3, shape)
    check(name, params, [data], rtol=1e-6)
    out = run(name, params, [data.astype(np.float32)])[0]
    check(f"_{name}_backward", params, [rng.standard_normal(shape), out], rtol=3e-6)


@pytest.mark.parametrize("mode", ["instance", "channel"])
def test_softmax_activation(mode: str) -> None:
    check("SoftmaxActivation", {"mode": mode}, [np.random.default_rng(0).normal(0, 2, (3, 5, 4, 5))], rtol=1e-6)


def test_large_logits_and_nan_come_out_as_in_numpy() -> None:
    data = np.array([[1e30, 1e30, -1e30, 0], [np.nan, 0, 0, 0], [-200, 0, 0, 0]], np.float32)
    for name in ("softmax", "log_softmax"):
        with np.errstate(all="ignore"):
            want, = execute(get_op(name), parsed(get_op(name), {}), [data])
        np.testing.assert_allclose(run(name, {}, [data])[0], want, rtol=1e-6)


LOSSES: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
    ({}, (7, 10), (7,)), ({"normalization": "batch", "grad_scale": 3.0}, (40, 1000), (40,)),
    ({"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": 0.0}, (2, 3, 50), (2, 50)),
    ({"multi_output": True}, (2, 2, 8, 9), (2, 8, 9)),
    ({"preserve_shape": True, "smooth_alpha": 0.1}, (2, 3, 20), (2, 3)),
    ({"out_grad": True, "normalization": "valid"}, (5, 4), (5,)), ({"out_grad": True}, (5, 4), (5, 4)),
    ({"use_ignore": True, "ignore_label": 2.0, "normalization": "valid"}, (33, 4), (33,)), ({}, (5, 4), (5, 4)),
    ({}, (0, 4), (0,))]


@pytest.mark.parametrize("params, shape, labels", LOSSES, ids=str)
def test_softmax_output_and_its_gradient(params: dict[str, Any], shape: tuple[int, ...],
                                         labels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    classes = shape[1] if params.get("multi_output") else shape[-1]
    label = rng.integers(0, classes, labels).astype(np.float32)
    data = rng.normal(0, 3, shape).astype(np.float32)
    check("SoftmaxOutput", params, [data, label], rtol=1e-6)
    out = run("SoftmaxOutput", params, [data, label])[0]
    above = [rng.standard_normal(shape)] if params.get("out_grad") else []
    check("_softmax_output_backward", params, [out, label, *above], rtol=1e-6)
    check("_softmax_output_backward", {**params, "first": 8, "batch": 100}, [out, label, *above], rtol=1e-6)


def test_a_confident_prediction_keeps_its_gradient() -> None:
    out = np.array([[1 - 2.0 ** -24, 2.0 ** -24]], np.float32)
    found, = run("_softmax_output_backward", {"grad_scale": 1 / 3}, [out, np.zeros(1, np.float32)])
    np.testing.assert_allclose(found, [[-2.0 ** -24 / 3, 2.0 ** -24 / 3]], rtol=1e-6)


@pytest.mark.parametrize("kind", ["difference", "sign"])
@pytest.mark.parametrize("shapes", [((3, 40), (3, 40)), ((5, 1), (5,)), ((0, 2), (0, 2))], ids=str)
def test_regression(kind: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate(shapes)]
    check("_regression_backward", {"kind": kind, "grad_scale": 2.0}, arrays, rtol=1e-6)
    for name in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
        check(name, {}, arrays, rtol=1e-6)


@pytest.mark.parametrize("params, shape, ids", [
    ({}, (50, 33), (6, 7)), ({}, (3, 300), (400,)), ({"axis": 1}, (2, 5, 3), (4,)), ({}, (4, 2), (0,))], ids=str)
def test_rows_by_number(params: dict[str, Any], shape: tuple[int, ...], ids: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    rows, numbers = rng.standard_normal(shape), rng.integers(0, shape[params.get("axis", 0)], ids)
    check("take", params, [rows, numbers], rtol=0)
    taken = run("take", params, [rows.astype(np.float32), numbers.astype(np.float32)])[0]
    check("_take_backward", params, [rng.standard_normal(taken.shape), numbers, rows], rtol=3e-6)
    if not params:
        check("Embedding", {"input_dim": shape[0], "output_dim": shape[1]}, [numbers, rows], rtol=0)


@pytest.mark.parametrize("number", [-1.0, 4.0, np.nan, np.inf])
@pytest.mark.parametrize("name, params, others", [
    ("_softmax_output_backward", {}, 0),
    ("_softmax_output_backward", {"use_ignore": True, "ignore_label": -2.0, "first": 8}, 0),
    ("Embedding", {"input_dim": 4, "output_dim": 4}, 1), ("take", {}, 0), ("_take_backward", {}, 0)], ids=str)
def test_a_number_out_of_range_is_refused_in_numpys_words(name: str, params: dict[str, Any], others: int,
                                                          number: float) -> None:
    op = get_op(name)
    numbers = np.array([0, 3, number, 1, -7], np.float32)
    wide = np.full((5, 4), 0.25, np.float32)
    arrays = [numbers, wide[:4]] if others else [wide[:4] if name == "take" else wide, numbers]
    arrays += [wide[:4]] if name == "_take_backward" else []
    with np.errstate(all="ignore"), pytest.raises(MXNetError) as expected:
        execute(op, parsed(op, params), arrays)
    with pytest.raises(MXNetError) as found:
        run(name, params, arrays)
    assert str(found.value).endswith(f": {expected.value}")  # what comes before is the name of the node
