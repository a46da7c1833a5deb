"""khatri_rao: the Kronecker product of matrices, column by column."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..base import Builder, Entry, PartialShape
from .op import Op, Sample, ShapeError, format_shape, merge_shapes, numbered
from .params import REQUIRED, param
from .registry import register


@dataclass(frozen=True)
class KhatriRaoParams:
    """Parameters of khatri_rao."""

    num_args: int = param(REQUIRED, "int", "number of matrices")


@register
class KhatriRao(Op):
    """The Kronecker product of the columns of matrices (rows_i, columns): (product of all rows, columns)."""

    name = "khatri_rao"
    Params = KhatriRaoParams

    def inputs(self, p: KhatriRaoParams) -> tuple[str, ...]:
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def infer_shape(self, p: KhatriRaoParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        for shape in ins:
            if shape is not None and (len(shape) != 2 or 0 in shape):
                raise ShapeError(f"{format_shape(shape)} is no matrix with elements")
        columns = merge_shapes(*(None if s is None else s[1:] for s in (*ins, outs[0])), (None,))
        assert columns is not None
        ins = [(None if s is None else s[0], *columns) for s in ins]
        rows = [s[0] for s in ins if s is not None]
        total = None if None in rows else prod(r for r in rows if r is not None)
        return ins, [merge_shapes((total, *columns), outs[0])]

    def expand(self, b: Builder, p: KhatriRaoParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        found: Sequence[Entry] = ins[:1]
        for other in ins[1:]:
            left = b.node("expand_dims", found, axis=1)
            right = b.node("expand_dims", [other], axis=0)
            found = b.node("Reshape", b.node("broadcast_mul", [*left, *right]), shape=(-3, 0))
        return found

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": len(rows)}, tuple((r, 3) for r in rows)) for rows in ((2, 4), (2, 1, 3), (2,))]
