"""multi_sum_sq: the sums of the squares of several tensors, as one vector."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Builder, Entry, PartialShape
from .op import Op, Sample, ShapeError, merge_shapes, numbered
from .params import REQUIRED, param
from .registry import register


@dataclass(frozen=True)
class SumsParams:
    """Parameters of multi_sum_sq."""

    num_arrays: int = param(REQUIRED, "int", "number of tensors")


@register
class MultiSumSquares(Op):
    """The sums of the squares of all elements of each input: (num_arrays,)."""

    name = "multi_sum_sq"
    Params = SumsParams

    def inputs(self, p: SumsParams) -> tuple[str, ...]:
        return numbered("array_", p.num_arrays)

    def count_param(self) -> str | None:
        return "num_arrays"

    def infer_shape(self, p: SumsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.num_arrays < 1:
            raise ShapeError(f"num_arrays {p.num_arrays} must be at least 1")
        return ins, [merge_shapes((p.num_arrays,), outs[0])]

    def expand(self, b: Builder, p: SumsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        sums = [entry for data in ins for entry in b.node("sum", b.node("square", [data]))]
        return b.node("Concat", sums, num_args=len(sums), dim=0) if len(sums) > 1 else sums

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_arrays": 2}, ((2, 3), (4,))), Sample({"num_arrays": 1}, ((2, 2, 2),))]
