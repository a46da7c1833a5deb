"""cumsum: sums of all elements up to each, along an axis."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Builder, Entry, PartialShape
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register
from .shape import axis_in
from .softmax import layout


@dataclass(frozen=True)
class CumsumParams:
    """Parameters of cumsum."""

    axis: int | None = param(None, "int", "axis along which elements are added; all elements in order when not given")
    dtype: np.dtype | None = param(None, "dtype", "dtype of the output; that of data when not given")


@register
class Cumsum(Op):
    """Each element of data added to all before it along an axis, in order; without an axis a vector of all elements."""

    name = "_np_cumsum"
    aliases = ("cumsum",)
    Params = CumsumParams
    recompute = "cheap"

    def inputs(self, p: CumsumParams) -> tuple[str, ...]:
        return ("a",)

    def infer_shape(self, p: CumsumParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.axis is not None:
            shape = merge_shapes(ins[0], outs[0])
            if shape is not None:
                axis_in(p.axis, len(shape))
            return [shape], [shape]
        known = [d for d in ins[0] or (None,) if d is not None]
        count = int(np.prod(known, dtype=object)) if ins[0] is not None and len(known) == len(ins[0]) else None
        return [ins[0]], [merge_shapes((count,), outs[0])]

    def infer_dtype(self, p: CumsumParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        if p.dtype is not None:
            return list(ins), [p.dtype]
        return super().infer_dtype(p, ins, outs)

    def compute(self, p: CumsumParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = (1, ins[0].size, 1) if p.axis is None else layout(ins[0].shape, p.axis)
        for data, out in zip(ins[0].reshape(view), outs[0].reshape(view), strict=True):
            if len(out):
                np.copyto(out[0], data[0], casting="unsafe")
            for k in range(1, len(out) if view[2] > 1 else 0):
                np.add(out[k - 1], data[k], out=out[k], casting="unsafe")
            if view[2] == 1:
                np.add.accumulate(data[:, 0], out=out[:, 0], dtype=out.dtype)

    def gradient(self, b: Builder, p: CumsumParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        axis = p.axis or 0
        turned = b.node("_np_cumsum", b.node("reverse", [grads[0]], axis=(axis,)), axis=axis)
        found = b.node("reverse", turned, axis=(axis,))
        if b.dtype(ins[0]) != b.dtype(outs[0]):
            found = b.node("Cast", found, dtype=b.dtype(ins[0]))
        return found if p.axis is not None else b.node("_reshape_like", [*found, ins[0]])

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,)) for params, shape in (
            ({}, (2, 3)), ({"axis": 0}, (4, 3)), ({"axis": 1}, (2, 5, 3)), ({"axis": -1}, (3, 7)))]
