"""Which numbers are finite: isnan, isinf and isfinite by element, all_finite of whole tensors."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, merge_shapes, numbered
from .params import REQUIRED, param
from .registry import register

FLOAT32 = np.dtype(np.float32)
Dtypes = list[np.dtype | None]


def _finite(b: Builder, data: Entry) -> Entry:
    """1 where data is finite, else 0: what is not, less itself, is NaN, which differs from itself."""
    nothing = only(b.node("elemwise_sub", [data, data]))
    return only(b.node("_equal", [nothing, nothing]))


class Test(Op):
    """Base of the tests by element: 1 or 0 in data's dtype."""

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),), differentiable=False)]


@register
class IsNan(Test):
    """1 where data is NaN, else 0."""

    name = "_contrib_isnan"

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("_not_equal", [ins[0], ins[0]])


@register
class IsInf(Test):
    """1 where data is infinite, of either sign, else 0."""

    name = "_contrib_isinf"

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        if b.dtype(ins[0]).kind != "f":
            return b.node("zeros_like", ins)
        return b.node("_equal_scalar", b.node("abs", ins), scalar=float("inf"))


@register
class IsFinite(Test):
    """1 where data is neither NaN nor infinite, else 0."""

    name = "_contrib_isfinite"

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return [_finite(b, ins[0])]


@dataclass(frozen=True)
class AllFiniteParams:
    """Parameters of all_finite."""

    init_output: bool = param(True, "bool", "begin with 1; nothing else is there to begin with")


@dataclass(frozen=True)
class MultiAllFiniteParams(AllFiniteParams):
    """Parameters of multi_all_finite."""

    num_arrays: int = param(REQUIRED, "int", "number of tensors")


class Whole(Op):
    """Base of the tests of whole tensors: one number of shape (1,) in float32."""

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not p.init_output:
            raise ShapeError("init_output=False is not supported; multi_all_finite takes several tensors at once")
        return ins, [merge_shapes((1,), outs[0])]

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        return list(ins), [FLOAT32]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        each = [only(b.node("Cast", b.node("min", [_finite(b, only(b.node("BlockGrad", [data])))]), dtype=FLOAT32))
                for data in ins]
        return b.node("min", b.node("Concat", each, num_args=len(each), dim=0)) if len(each) > 1 else each


@register
class AllFinite(Whole):
    """1 where all elements of data are finite, else 0."""

    name = "all_finite"
    Params = AllFiniteParams

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),), differentiable=False)]


@register
class MultiAllFinite(Whole):
    """1 where all elements of all inputs are finite, else 0."""

    name = "multi_all_finite"
    Params = MultiAllFiniteParams

    def inputs(self, p: MultiAllFiniteParams) -> tuple[str, ...]:
        return numbered("array_", p.num_arrays)

    def count_param(self) -> str | None:
        return "num_arrays"

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_arrays": 2}, ((3, 4), (2,)), differentiable=False)]
