"""Products and norms over axes."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, MXNetError, PartialShape
from .elemwise import only
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .params import param
from .pointwise import Found
from .reduce import ReduceParams, Reduction, kept_shape, reduced_axes
from .registry import register


@register
class Prod(Reduction):
    """The product over axes; its gradient is grad * out / data, so NaN where a factor is 0, as in MXNet."""

    name = "prod"

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        axes = reduced_axes(p, ins[0].ndim)
        np.multiply.reduce(ins[0], axis=axes, keepdims=True, out=outs[0].reshape(kept_shape(ins[0].shape, axes)))

    def gradient(self, b: Builder, p: ReduceParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_prod_backward", [grads[0], ins[0], outs[0]], **vars(p)))]

    def samples(self) -> Sequence[Sample]:
        return [Sample(s.params, s.shapes, low=0.5, high=1.5) for s in super().samples()]


@register
class ProdBackward(Op):
    """grad * out / data, grad and out repeated along the reduced axes."""

    name = "_prod_backward"
    Params = ReduceParams
    recompute = "cheap"

    def inputs(self, p: ReduceParams) -> tuple[str, ...]:
        return ("grad", "data", "out")

    def infer_shape(self, p: ReduceParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, reduced = merge_shapes(ins[1], outs[0]), merge_shapes(ins[0], ins[2])
        return [reduced, data, reduced], [data]

    def inplace(self, p: ReduceParams) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def compute(self, p: ReduceParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, product = ins
        kept = kept_shape(data.shape, reduced_axes(p, data.ndim))
        np.divide(product.reshape(kept), data, out=outs[0])
        np.multiply(outs[0], grad.reshape(kept), out=outs[0])


@dataclass(frozen=True)
class NormParams:
    """Parameters of norm."""

    ord: int = param(2, "int", "1 for the sum of absolute values, 2 for the root of the sum of squares")
    axis: tuple[int, ...] | None = param(None, "shape", "axes to reduce; all of them when not given")
    keepdims: bool = param(False, "bool", "keep reduced axes with length 1")


@register
class Norm(Reduction):
    """The norm of data over axes; where it is 0, the gradient of order 2 is NaN, as in MXNet."""

    name = "norm"
    Params = NormParams

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.ord not in (1, 2):
            raise MXNetError(f"norm: ord={p.ord}; it must be 1 or 2")
        return super().infer_shape(ReduceParams(p.axis, p.keepdims), ins, outs)

    def expand(self, b: Builder, p: NormParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        terms = b.node("abs" if p.ord == 1 else "square", ins)
        total = b.node("sum", terms, axis=p.axis, keepdims=p.keepdims)
        return total if p.ord == 1 else b.node("sqrt", total)

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,), low=0.2, high=1.0) for params, shape in (
            ({}, (2, 3)), ({"ord": 1}, (2, 3)), ({"axis": 1}, (2, 3, 4)),
            ({"ord": 1, "axis": (0, 2), "keepdims": True}, (3, 2, 4)), ({"axis": -1, "keepdims": True}, (2, 5)))]
