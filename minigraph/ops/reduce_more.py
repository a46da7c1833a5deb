"""Products and norms over axes, and sums and products of what is not NaN."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, MXNetError, PartialShape, TensorType, dtype_of
from .elemwise import only
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found, Unary, block_bytes, block_scratch, blocks
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
class FillParams:
    """Parameters of the ops that look for NaN."""

    value: float = param(REQUIRED, "float", "what takes the place of NaN")


class _NanOp(Unary):
    """Base: blocks of an op that needs to know where a tensor is NaN."""

    sample_params = ({"value": 0.0}, {"value": 1.0})

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0])),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = block_scratch(work, outs[0])
        for *arrays, out in blocks(*ins, outs[0]):
            flags = scratch.view(bool)[:out.size]
            np.isnan(arrays[-1], out=flags)
            np.copyto(out, arrays[0])
            np.copyto(out, p.value, where=flags)


@register
class FillNan(_NanOp):
    """data with `value` in the place of NaN, which gets no gradient."""

    name = "_fill_nan"
    Params = FillParams

    def backward(self, b: Builder, p: FillParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_fill_nan_backward", [grad, data]))


@dataclass(frozen=True)
class _FillBackwardParams:
    """The parameters of the gradient of _fill_nan, which are fixed."""

    value: float = param(0.0, "float", "the gradient where data is NaN")


@register
class FillNanBackward(_NanOp):
    """grad where data is not NaN, 0 where it is."""

    name = "_fill_nan_backward"
    Params = _FillBackwardParams
    gradient = Op.gradient

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "data")

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (2, 3)), differentiable=False)]


class _NanReduction(Reduction):
    """Base: a reduction of data in which NaN counts as `neutral`."""

    reduction: ClassVar[str]
    neutral: ClassVar[float]

    def expand(self, b: Builder, p: ReduceParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node(self.reduction, b.node("_fill_nan", ins, value=self.neutral), **vars(p))


@register
class Nansum(_NanReduction):
    """The sum over axes of what is not NaN."""

    name, reduction, neutral = "nansum", "sum", 0.0


@register
class Nanprod(_NanReduction):
    """The product over axes of what is not NaN; its gradient is that of prod, and 0 for NaN."""

    name, reduction, neutral = "nanprod", "prod", 1.0

    def samples(self) -> Sequence[Sample]:
        return [Sample(s.params, s.shapes, low=0.5, high=1.5) for s in super().samples()]


@dataclass(frozen=True)
class NormParams:
    """Parameters of norm."""

    ord: int = param(2, "int", "1 for the sum of absolute values, 2 for the root of the sum of squares")
    axis: tuple[int, ...] | None = param(None, "shape", "axes to reduce; all of them when not given")
    out_dtype: np.dtype | None = param(None, "dtype", "dtype of the result; that of data when not given")
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
        norm = total if p.ord == 1 else b.node("sqrt", total)
        return norm if p.out_dtype is None else b.node("Cast", norm, dtype=p.out_dtype)

    def infer_dtype(self, p: NormParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        if p.out_dtype is None:
            return super().infer_dtype(p, ins, outs)
        return ins, [dtype_of(p.out_dtype)]

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,), low=0.2, high=1.0) for params, shape in (
            ({}, (2, 3)), ({"ord": 1}, (2, 3)), ({"axis": 1}, (2, 3, 4)),
            ({"ord": 1, "axis": (0, 2), "keepdims": True}, (3, 2, 4)), ({"axis": -1, "keepdims": True}, (2, 5)),
            ({"axis": 0, "out_dtype": "float64"}, (3, 2)))]
