"""softmax_cross_entropy, the loss computed from logits and not from probabilities."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, TensorType
from .chunks import chunk_rows, chunks
from .elemwise import only
from .indexing import PIECE, ByIndex, IdRange, numbers, offsets
from .op import Arrays, Sample, Workspace, merge_shapes
from .pointwise import Found, flat
from .registry import register
from .softmax import layout, reduced_bytes, softmax_into


@register
class SoftmaxCrossEntropy(ByIndex):
    """The cross-entropy of softmax(data) with label, summed over rows to (1,); exact at extreme logits."""

    name = "softmax_cross_entropy"
    names = ("data", "label")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], (None, None))
        rows = None if data is None else data[0]
        label = merge_shapes(ins[1], (rows,))
        assert data is not None and label is not None
        return [(label[0], data[1]), label], [merge_shapes((1,), outs[0])]

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        dtype, classes = ins[0].dtype, ins[0].shape[1]
        rows = _entropy_rows(ins[0].shape, dtype)
        return (Algorithm("chunks", Workspace.bytes_for(((rows, classes), dtype), ((rows, 1), dtype))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, label = ins
        rows = _entropy_rows(data.shape, data.dtype)
        scratch, number = work.array((rows, data.shape[1]), data.dtype), work.array((rows, 1), data.dtype)
        total = 0.0
        for s in chunks(data.shape[0], rows):
            shifted, sums = scratch[:s.stop - s.start], number[:s.stop - s.start]
            (_, ids), = numbers(label[s], data.shape[1], "softmax_cross_entropy: label", first=s.start)
            np.maximum.reduce(data[s], axis=1, keepdims=True, out=sums)
            np.subtract(data[s], sums, out=shifted)
            chosen = flat(shifted)[offsets(0, ids, (rows, data.shape[1], 1))]
            np.exp(shifted, out=shifted)
            np.add.reduce(shifted, axis=1, keepdims=True, out=sums)
            np.log(sums, out=sums)
            total += float(np.add.reduce(sums[:, 0] - chosen, dtype=np.float64))
        outs[0][0] = total

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("softmax_cross_entropy: label", 1, ins[1].shape, ins[0].shape[1])]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_softmax_cross_entropy_backward", [grads[0], *ins])), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3,)), integer={"label": 4})]


def _entropy_rows(shape: Sequence[int], dtype: np.dtype) -> int:
    return min(chunk_rows(shape[1] * dtype.itemsize), max(shape[0], 1), PIECE)


@register
class SoftmaxCrossEntropyBackward(ByIndex):
    """grad * (softmax(data) - onehot(label)); in place over data."""

    name = "_softmax_cross_entropy_backward"
    names = ("grad", "data", "label")
    ids = (2,)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data, label), (grad,) = SoftmaxCrossEntropy().infer_shape(p, [merge_shapes(ins[1], outs[0]), ins[2]], [ins[0]])
        return [grad, data, label], [data]

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", reduced_bytes(layout(ins[1].shape, 1), ins[1].dtype)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, label = ins
        view = layout(data.shape, 1)
        softmax_into(data, outs[0], view, None, work)
        row = flat(outs[0])
        for start, ids in numbers(label, view[1], "softmax_cross_entropy: label"):
            row[offsets(start, ids, view)] -= 1
        np.multiply(outs[0], grad[0], out=outs[0])

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        return [IdRange("softmax_cross_entropy: label", 2, ins[2].shape, ins[1].shape[1])]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((1,), (3, 4), (3,)), integer={"label": 4}, differentiable=False)]
