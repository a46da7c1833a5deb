"""Outputs that are their own loss, as in MXNet: SoftmaxOutput and the regression outputs."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .activation import sigmoid
from .elemwise import only
from .indexing import ByIndex, IdRange, numbers, offsets
from .op import Arrays, Sample, ShapeError, Sliced, Workspace, format_shape, is_complete, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found, blocks, flat
from .registry import get_op, register
from .softmax import layout, reduced_bytes, softmax_into


@dataclass(frozen=True)
class SoftmaxOutputParams:
    """Parameters of SoftmaxOutput."""

    grad_scale: float = param(1.0, "float", "factor of the gradient")
    ignore_label: float = param(-1.0, "float", "label whose rows get no gradient when use_ignore")
    multi_output: bool = param(False, "bool", "softmax over axis 1, with a label for each other place")
    use_ignore: bool = param(False, "bool", "give rows with ignore_label no gradient")
    preserve_shape: bool = param(False, "bool", "softmax over the last axis, a label for each other place")
    normalization: str = param("null", "str", "what the gradient is divided by", ("null", "batch", "valid"))
    out_grad: bool = param(False, "bool", "multiply by the gradient from above")
    smooth_alpha: float = param(0.0, "float", "share of each label's weight spread over the other classes")


@dataclass(frozen=True)
class SoftmaxOutputBackwardParams(SoftmaxOutputParams):
    """Parameters of the gradient of SoftmaxOutput, which may be that of a slice of the batch."""

    first: int = param(0, "int", "row of the batch at which the slice begins")
    batch: int = param(0, "int", "rows of the whole batch; 0: those that are there")


def softmax_view(p: SoftmaxOutputParams, shape: Sequence[int]) -> tuple[int, int, int]:
    """(outer, classes, inner) of the softmax in data of a shape."""
    if p.multi_output:
        return layout(shape, 1)
    return layout(shape, -1) if p.preserve_shape else layout(shape, 1, flatten=True)


def label_shapes(p: SoftmaxOutputParams, data: Shape) -> list[Shape]:
    """The shapes that labels of `data` may have, the inferred one first; probabilities have data's own."""
    if not p.multi_output:
        return [data[:-1] if p.preserve_shape else data[:1]]
    return [(data[0], prod(data[2:])), (data[0], *data[2:]), (data[0], 1, *data[2:])]


@register
class SoftmaxOutput(ByIndex):
    """softmax(data), with the gradient of the cross-entropy with label: (p - onehot(label)) * grad_scale / n.

    n is 1 (null), the number of labels of a batch (batch), or of labels that are not ignore_label (valid);
    with multi_output, null and batch divide also by the places of an instance, as MXNet does. A label of
    data's shape holds target probabilities; then the gradient is (p - label) * grad_scale. The gradient from
    above counts only with out_grad. Smoothing gives the label 1 - smooth_alpha and each other class
    smooth_alpha / (classes - 1).
    """

    name = "SoftmaxOutput"
    aliases = ("Softmax",)
    Params = SoftmaxOutputParams
    names = ("data", "label")

    def is_loss(self, p: SoftmaxOutputParams) -> bool:
        return not p.out_grad

    def averages(self, p: SoftmaxOutputParams, ins: Sequence[Shape]) -> bool:
        return p.normalization != "null" and ins[0] != ins[1]

    def unread(self, p: SoftmaxOutputParams) -> tuple[int, ...]:
        return (1,)

    def inplace(self, p: SoftmaxOutputParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: SoftmaxOutputParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return None if p.preserve_shape else Sliced.every(ins, outs)

    def infer_shape(self, p: SoftmaxOutputParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not abs(p.ignore_label) < 2**31:
            raise ShapeError(f"ignore_label {p.ignore_label} must be a number of 32 bits; it stands among the labels")
        data = merge_shapes(ins[0], outs[0])
        label = ins[1]
        if data is None or not is_complete(data):
            return [data, label], [data]
        shape: Shape = data  # type: ignore[assignment]
        if p.multi_output and len(shape) < 2:
            raise ShapeError(f"multi_output needs data with an axis 1 of classes, got {format_shape(data)}")
        allowed: list[Shape] = [*label_shapes(p, shape), shape]
        for choice in allowed:
            if label is None or len(label) == len(choice) and all(
                    a in (None, b) for a, b in zip(label, choice, strict=True)):
                return [data, choice], [data]
        raise ShapeError(f"label has shape {format_shape(label)}; data {format_shape(data)} needs "
                         + " or ".join(format_shape(s) for s in dict.fromkeys(allowed)))

    def algorithms(self, p: SoftmaxOutputParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", reduced_bytes(softmax_view(p, ins[0].shape), ins[0].dtype)),)

    def compute(self, p: SoftmaxOutputParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        softmax_into(ins[0], outs[0], softmax_view(p, ins[0].shape), None, work)

    def gradient(self, b: Builder, p: SoftmaxOutputParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if not wanted[0] or p.out_grad and grads[0] is None:
            return [None, None]
        above = [grads[0]] if p.out_grad and grads[0] is not None else []
        return [only(b.node("_softmax_output_backward", [outs[0], ins[1], *above], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3,)), integer={"label": 4}, differentiable=False),
                Sample({"multi_output": True}, ((2, 3, 2, 2), (2, 4)), integer={"label": 3},
                       differentiable=False),
                Sample({"preserve_shape": True}, ((2, 3, 4), (2, 3)), integer={"label": 4},
                       differentiable=False),
                Sample({"out_grad": True, "normalization": "batch"}, ((3, 4), (3,)), integer={"label": 4},
                       differentiable=False),
                Sample({}, ((3, 4), (3, 4)), low=0.0, differentiable=False)]


@register
class SoftmaxOutputBackward(ByIndex):
    """The gradient of SoftmaxOutput from its output and label; in place over the output.

    A label outside [0, classes) that is not an ignored one raises MXNetError with its position and value.
    """

    name = "_softmax_output_backward"
    Params = SoftmaxOutputBackwardParams

    def inputs(self, p: SoftmaxOutputParams) -> tuple[str, ...]:
        return ("out", "label", "grad") if p.out_grad else ("out", "label")

    def outputs(self, p: SoftmaxOutputParams) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: SoftmaxOutputParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: SoftmaxOutputBackwardParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        """By slices unless valid labels of the whole batch must be counted first."""
        return None if p.preserve_shape or p.normalization == "valid" else Sliced.every(ins, outs)

    def slice_params(self, p: SoftmaxOutputBackwardParams, first: int, batch: int,
                     outs: Sequence[TensorType]) -> SoftmaxOutputBackwardParams:
        return replace(p, first=first, batch=batch)

    def infer_shape(self, p: SoftmaxOutputParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[0], outs[0], *ins[2:])
        (shape, label), _ = get_op(SoftmaxOutput.name).infer_shape(p, [shape, ins[1]], [shape])
        return [shape, label, *([shape] if p.out_grad else [])], [shape]

    def compute(self, p: SoftmaxOutputBackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out, label = ins[:2]
        if out.shape == label.shape:
            np.subtract(out, label, out=outs[0])
            divisor = 1
        else:
            divisor = _subtract_labels(p, out, label, outs[0])
        np.multiply(outs[0], p.grad_scale / divisor, out=outs[0])
        if p.out_grad:
            np.multiply(outs[0], ins[2], out=outs[0])

    def id_ranges(self, p: SoftmaxOutputBackwardParams, ins: Sequence[TensorType],
                  outs: Sequence[TensorType]) -> Sequence[IdRange]:
        label = ins[1].shape
        if label == outs[0].shape:
            return ()
        return [IdRange("SoftmaxOutput: label", 1, label, softmax_view(p, outs[0].shape)[1],
                        ignored=p.ignore_label if p.use_ignore else None, first=p.first)]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3,)), integer={"label": 4}, low=0.0, differentiable=False),
                Sample({"multi_output": True, "normalization": "valid", "use_ignore": True,
                        "ignore_label": 0.0},
                       ((2, 3, 4), (2, 4)), integer={"label": 3}, low=0.0, differentiable=False),
                Sample({"smooth_alpha": 0.1}, ((3, 4), (3,)), integer={"label": 4}, low=0.0,
                       differentiable=False)]


def _subtract_labels(p: SoftmaxOutputBackwardParams, out: np.ndarray, label: np.ndarray, target: np.ndarray) -> int:
    """Write p - onehot(label) to `target`, 0 in ignored rows; return what the gradient is divided by."""
    view = softmax_view(p, out.shape)
    rows = target.reshape(view)
    row = flat(target)
    np.copyto(target, out)
    spread = p.smooth_alpha / max(view[1] - 1, 1)
    if spread:
        np.subtract(target, spread, out=target)
    # MXNet compares with the ignored label as an integer when it counts, whether or not rows are ignored.
    ignored = 0
    exempt = p.ignore_label if p.use_ignore else None
    for start, ids in numbers(label, view[1], "SoftmaxOutput: label", exempt, p.first):
        skip = ids == int(p.ignore_label)
        ignored += int(np.count_nonzero(skip))
        places = offsets(start, ids, view)
        if p.use_ignore and skip.any():
            _zero_rows(rows, start + np.flatnonzero(skip))
            places = places[~skip]
        row[places] -= row.dtype.type(1 - p.smooth_alpha - spread)
    places_each = view[2] if p.multi_output else 1
    if p.normalization == "valid":
        return max(label.size - ignored, 1)
    return batch_divisor(p, label.shape, places_each)


def batch_divisor(p: SoftmaxOutputBackwardParams, label: Shape, places_each: int) -> int:
    """What the gradient is divided by, unless by the number of valid labels; `places_each` are those of an instance."""
    if p.normalization != "batch":
        return max(places_each, 1)
    batch = p.batch or label[0]
    return max(batch if p.multi_output else batch * prod(label[1:]), 1) * max(places_each, 1)


def _zero_rows(rows: np.ndarray, places: np.ndarray) -> None:
    """Zero the classes at flat places of (outer, inner), class by class where a row is not contiguous."""
    outer, inner = np.divmod(places, rows.shape[2])
    if rows.shape[2] == 1:
        rows[outer] = 0
        return
    for c in range(rows.shape[1]):
        rows[outer, c, inner] = 0


@dataclass(frozen=True)
class RegressionParams:
    """Parameters of the regression outputs."""

    grad_scale: float = param(1.0, "float", "factor of the gradient")


@dataclass(frozen=True)
class RegressionBackwardParams:
    """Parameters of the gradient of a regression output."""

    kind: str = param(REQUIRED, "str", "difference, or the sign of it", ("difference", "sign"))
    grad_scale: float = param(1.0, "float", "factor of the gradient")


class RegressionOutput(ByIndex):
    """Base: a prediction, with the gradient of a loss with label times grad_scale / outputs a sample."""

    Params = RegressionParams
    names = ("data", "label")
    kind: ClassVar[str] = "difference"

    def is_loss(self, p: RegressionParams) -> bool:
        return True

    def unread(self, p: RegressionParams) -> tuple[int, ...]:
        return (1,)

    def inplace(self, p: RegressionParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: RegressionParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: RegressionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, label = merge_shapes(ins[0], outs[0]), ins[1]
        if data is None:
            return [None, label], [None]
        if label is None:
            label = data[:1] if len(data) == 2 and data[1] == 1 else data
        elif is_complete(label) and is_complete(data):
            if label[0] != data[0] or prod(label) != prod(data):  # type: ignore[arg-type]
                raise ShapeError(f"label {format_shape(label)} and data {format_shape(data)} differ in size")
        elif len(label) == len(data):
            label = data = merge_shapes(label, data)
        return [data, label], [data]

    def compute(self, p: RegressionParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0])

    def gradient(self, b: Builder, p: RegressionParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if not wanted[0]:
            return [None, None]
        return [only(b.node("_regression_backward", [outs[0], ins[1]], kind=self.kind,
                            grad_scale=p.grad_scale)), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"grad_scale": 2.0}, ((3, 4), (3, 4)), differentiable=False),
                Sample({}, ((3, 1), (3,)), differentiable=False)]


@register
class LinearRegressionOutput(RegressionOutput):
    """data, with the gradient of half the squared error: (data - label) * grad_scale / outputs a sample."""

    name = "LinearRegressionOutput"


@register
class LogisticRegressionOutput(RegressionOutput):
    """sigmoid(data), with the logistic loss's gradient: (output - label) * grad_scale / outputs a sample."""

    name = "LogisticRegressionOutput"

    def compute(self, p: RegressionParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for data, out in blocks(ins[0], outs[0]):
            sigmoid(data, out)


@register
class MAERegressionOutput(RegressionOutput):
    """data, with the gradient of the absolute error: sign(data - label) * grad_scale / outputs a sample."""

    name = "MAERegressionOutput"
    kind = "sign"


@register
class RegressionBackward(ByIndex):
    """(out - label), or its sign, times grad_scale / outputs a sample; in place over the output."""

    name = "_regression_backward"
    Params = RegressionBackwardParams
    names = ("out", "label")

    def outputs(self, p: RegressionBackwardParams) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: RegressionBackwardParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: RegressionBackwardParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: RegressionBackwardParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return get_op("LinearRegressionOutput").infer_shape(p, ins, outs)

    def compute(self, p: RegressionBackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out, label = ins
        np.subtract(out, label.reshape(out.shape), out=outs[0], casting="unsafe")
        if p.kind == "sign":
            np.sign(outs[0], out=outs[0])
        np.multiply(outs[0], p.grad_scale * label.shape[0] / max(label.size, 1), out=outs[0])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"kind": kind}, ((3, 4), (3, 4)), differentiable=False)
                for kind in ("difference", "sign")]
