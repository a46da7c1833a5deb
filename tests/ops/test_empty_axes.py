"""Every operator's samples with one axis after the other empty: a value, or one refusal before anything runs."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, Shape
from minigraph.ops import get_op, names
from minigraph.ops.op import Op, Sample, ShapeError, is_complete

from .harness import execute, parsed, sample_dtypes
from .test_extreme_parameters import EXTREME, NAMED, READ_AT_RUN
from .test_registry import bound, draw, forward, head_gradients

UNDEFINED = {"mean", "moments"}
"""What is NaN of no elements, as in NumPy."""
PRIVATE = [name for name in names() if name.startswith("_") and type(get_op(name)).expand is Op.expand]


def emptied(shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    """Shapes with one axis of one of them empty, and with all axes of its length."""
    found: dict[tuple[Shape, ...], None] = {}
    for k, shape in enumerate(shapes):
        for axis, length in enumerate(shape):
            one = (*shape[:axis], 0, *shape[axis + 1:])
            found[(*shapes[:k], one, *shapes[k + 1:])] = None
            found[tuple(tuple(0 if d == length else d for d in each) for each in shapes)] = None
    yield from found


def values(name: str, sample: Sample) -> list[np.ndarray]:
    """Outputs and gradients of a training step; none where inference refuses the shapes."""
    try:
        executor, _, _ = bound(name, sample, np.float32, "write", poison=True)
        with np.errstate(all="ignore"):
            found = forward(executor)
            executor.backward(head_gradients(executor))
    except ShapeError:
        return []
    except MXNetError as error:
        assert any(text in str(error) for text in READ_AT_RUN), error
        return []
    return found + [g.asnumpy() for g in executor.grad_dict.values() if g is not None]


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
@pytest.mark.parametrize("name", NAMED)
def test_an_operator_of_empty_tensors_gives_a_value_or_is_refused_by_inference(
        name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", kernels)
    for sample in get_op(name).samples():
        for shapes in emptied(sample.shapes):
            for array in values(name, dataclasses.replace(sample, shapes=shapes)):
                assert name in UNDEFINED or np.isfinite(array).all(), shapes


def inferred(op: Op, p: Any, shapes: tuple[Shape, ...]) -> bool:
    """Whether inference accepts inputs of these shapes as they are, and the outputs are small."""
    try:
        ins, outs = op.infer_shape(p, list(shapes), [None] * len(op.outputs(p)))
        op.infer_dtype(p, sample_dtypes(op, p, np.float32), [None] * len(outs))
    except MXNetError:
        return False
    return list(ins) == list(shapes) and all(is_complete(s) and min(s, default=0) >= 0  # type: ignore[type-var, arg-type]
                                             and np.prod(s, dtype=object) < 10**6 for s in outs)


def runs(name: str, sample: Sample) -> None:
    """Run an operator as it stands where inference accepts the sample; only numbers read at run time may be refused."""
    op = get_op(name)
    try:
        p = parsed(op, sample.params)
    except MXNetError:
        return
    if not inferred(op, p, sample.shapes):
        return
    try:
        with np.errstate(all="ignore"):
            execute(op, p, draw(op, sample, np.float32))
    except MXNetError as error:
        assert any(text in str(error) for text in READ_AT_RUN), (sample, error)


@pytest.mark.parametrize("name", PRIVATE)
def test_what_the_framework_makes_runs_with_every_empty_axis_that_inference_lets_by(name: str) -> None:
    for sample in get_op(name).samples():
        for shapes in emptied(sample.shapes):
            runs(name, dataclasses.replace(sample, shapes=shapes))


@pytest.mark.parametrize("name", PRIVATE)
def test_what_the_framework_makes_runs_with_every_extreme_parameter_that_inference_lets_by(name: str) -> None:
    for sample in get_op(name).samples():
        for field in dataclasses.fields(parsed(get_op(name), sample.params)):
            for value in EXTREME.get(field.metadata["kind"], ()) if field.name != get_op(name).count_param() else ():
                runs(name, dataclasses.replace(sample, params={**sample.params, field.name: value}))


@pytest.mark.parametrize(("name", "params", "shapes", "told"), [
    ("SequenceLast", {}, ((0, 4, 2),), r"SequenceLast op.*data \(0, 4, 2\) has no element along axis 0"),
    ("Pooling", {"kernel": (2, 2), "pad": (1, 1)}, ((2, 3, 0, 5),),
     r"Pooling op.*\(2, 3, 0, 5\) is empty along axis 2"),
    ("Deconvolution", {"kernel": (2, 2), "num_filter": 2, "no_bias": True}, ((2, 0, 3, 3), (0, 2, 2, 2)),
     r"Deconvolution op.*\(2, 0, 3, 3\) is empty along axis 1"),
    ("max", {"axis": 1}, ((2, 0, 3),), r"max op.*over no elements: axis 1 of \(2, 0, 3\) is empty"),
    ("argmin", {}, ((2, 0),), r"argmin op.*over no elements: axis 1 of \(2, 0\) is empty"),
    ("gather_nd", {}, ((3, 4), (0, 2)), r"gather_nd op.*indices \(0, 2\) are empty along axis 0"),
    ("scaled_dot_product_attention", {}, ((2, 3, 0), (2, 5, 0), (2, 5, 6)), r"queries \(2, 3, 0\) .* along axis 2"),
    ("topk", {"k": 2, "ret_typ": "mask"}, ((3, 0),), r"topk op.*k=2 of 0 elements")])
def test_what_has_no_value_is_refused_with_operator_node_and_axis(
        name: str, params: dict[str, Any], shapes: tuple[Shape, ...], told: str) -> None:
    with pytest.raises(ShapeError, match=told):
        bound(name, Sample(params, shapes), np.float32, "null")


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
@pytest.mark.parametrize(("name", "params", "shapes", "value"), [
    ("softmax", {}, ((3, 0),), 0), ("SoftmaxActivation", {}, ((2, 0, 2),), 0), ("SoftmaxOutput", {}, ((0, 0), (0,)), 0),
    ("BilinearSampler", {}, ((2, 3, 0, 5), (2, 2, 3, 2)), 0),
    ("Convolution", {"kernel": (3, 3), "num_filter": 2}, ((2, 0, 5, 5), (2, 0, 3, 3), (2,)), 1),
    ("FullyConnected", {"num_hidden": 2, "flatten": False}, ((2, 3, 0), (2, 0), (2,)), 1)])
def test_sums_over_nothing_are_zero_and_leave_the_bias(
        name: str, params: dict[str, Any], shapes: tuple[Shape, ...], value: float, kernels: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAPH_CPU_KERNELS", kernels)
    executor, variables, _ = bound(name, Sample(params, shapes), np.float32, "write", poison=True)
    executor.arg_dict[variables[-1]][:] = 1
    found, = executor.forward(is_train=True)
    np.testing.assert_array_equal(found.asnumpy(), value)
