"""SVMOutput: scores whose gradient is that of a hinge loss."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Builder, Entry, PartialShape, TensorType
from .elemwise import only
from .indexing import ByIndex, IdRange, numbers, offsets
from .op import Arrays, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found, flat
from .registry import register
from .softmax import layout


@dataclass(frozen=True)
class SvmParams:
    """Parameters of SVMOutput, and of its gradient."""

    margin: float = param(1.0, "float", "how far a score is to be on its side of 0")
    regularization_coefficient: float = param(1.0, "float", "factor of the gradient")
    use_linear: bool = param(False, "bool", "the hinge itself, instead of its square")


def _shapes(data: PartialShape, label: PartialShape) -> tuple[PartialShape, PartialShape]:
    if data is None:
        return None, label
    if len(data) < 2:
        raise ShapeError(f"SVMOutput: data {format_shape(data)} must have a batch and classes")
    label = merge_shapes(label, data[:-1])
    assert label is not None
    return (*label, data[-1]), label


@register
class SvmOutput(ByIndex):
    """data (..., classes), with the gradient of a hinge loss of each class against the rest.

    The loss adds h = max(0, margin - t score) or h ** 2 over classes, t = 1 for the label and -1 for others,
    times regularization_coefficient. A label out of range raises.
    """

    name = "SVMOutput"
    Params = SvmParams
    names = ("data", "label")

    def is_loss(self, p: SvmParams) -> bool:
        return True

    def unread(self, p: SvmParams) -> tuple[int, ...]:
        return (1,)

    def inplace(self, p: SvmParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: SvmParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: SvmParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, label = _shapes(merge_shapes(ins[0], outs[0]), ins[1])
        return [data, label], [data]

    def compute(self, p: SvmParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0])

    def gradient(self, b: Builder, p: SvmParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [only(b.node("_svm_backward", [outs[0], ins[1]], **vars(p))) if wanted[0] else None, None]

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, shapes, integer={"label": 4}, low=-2.0, high=2.0, differentiable=False)
                for params in ({}, {"use_linear": True}, {"margin": 0.5, "regularization_coefficient": 0.7})
                for shapes in (((5, 4), (5,)), ((2, 3, 4), (2, 3)))]


@register
class SvmBackward(ByIndex):
    """The gradient of SVMOutput from its output and label, in place over the output."""

    name = "_svm_backward"
    Params = SvmParams
    names = ("out", "label")

    def outputs(self, p: SvmParams) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: SvmParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def infer_shape(self, p: SvmParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, label = _shapes(merge_shapes(ins[0], outs[0]), ins[1])
        return [data, label], [data]

    def compute(self, p: SvmParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = layout(outs[0].shape, -1)
        out = flat(outs[0])
        np.copyto(outs[0], ins[0])
        for start, ids in numbers(ins[1], view[1], "SVMOutput: label"):
            places = offsets(start, ids, view)
            out[places] = -out[places]
            rows = outs[0].reshape(view[:2])[start:start + ids.size]
            np.add(rows, p.margin, out=rows)            # margin - t score, of which the hinge is left
            if p.use_linear:
                np.greater(rows, 0, out=rows)
            else:
                np.maximum(rows, 0, out=rows)
                np.multiply(rows, 2, out=rows)
            np.multiply(rows, p.regularization_coefficient, out=rows)
            out[places] = -out[places]

    def id_ranges(self, p: SvmParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("SVMOutput: label", 1, ins[1].shape, outs[0].shape[-1])]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"use_linear": linear}, ((3, 4), (3,)), integer={"label": 4}, differentiable=False)
                for linear in (False, True)]
