"""Products of attention over interleaved projections, as GluonNLP's transformers write them, and div_sqrt_dim.

Projections (length, batch, heads x parts x size) hold queries, keys and values of each head beside each other; scores
are (batch x heads, queries, keys).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import register


@register
class DivSqrtDim(Op):
    """data over the square root of the length of its last axis."""

    name = "_contrib_div_sqrt_dim"

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], outs[0])
        if data is not None and (not data or data[-1] == 0):
            raise ShapeError(f"data {format_shape(data)} has no element along its last axis")
        return [data], [data]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("_div_scalar", ins, scalar=math.sqrt(b.shape(ins[0])[-1]))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 4),))]


@dataclass(frozen=True)
class HeadsParams:
    """Parameters of the products over interleaved projections."""

    heads: int = param(REQUIRED, "int", "number of attention heads")


class _Interleaved(Op):
    """Base of the products: `parts` projections of each head lie beside each other in a tensor."""

    Params = HeadsParams

    def size(self, p: HeadsParams, shape: PartialShape, parts: int) -> int | None:
        """Numbers of a head, from the last axis of projections."""
        if p.heads < 1:
            raise ShapeError(f"heads {p.heads} must be at least 1")
        if shape is None or shape[2] is None:
            return None
        if shape[2] % (p.heads * parts):
            raise ShapeError(f"{shape[2]} numbers of {format_shape(shape)} cannot be parted into {p.heads} heads of "
                             f"{parts} projections")
        return shape[2] // (p.heads * parts)

    def take(self, b: Builder, p: HeadsParams, data: Entry, part: int, parts: int) -> Entry:
        """One of the projections as (batch x heads, length, size)."""
        length, batch, width = b.shape(data)
        size = width // (p.heads * parts)
        apart = only(b.node("Reshape", [data], shape=(length, batch * p.heads, parts * size)))
        if parts > 1:
            apart = only(b.node("slice_axis", [apart], axis=2, begin=part * size, end=(part + 1) * size))
        return only(b.node("transpose", [apart], axes=(1, 0, 2)))


class _Scores(_Interleaved):
    """Base: queries / sqrt(size) times keys."""

    def scores(self, b: Builder, queries: Entry, keys: Entry) -> Sequence[Entry]:
        scaled = b.node("_div_scalar", [queries], scalar=math.sqrt(b.shape(queries)[2]))
        return b.node("batch_dot", [*scaled, keys], transpose_b=True)


class _Values(_Interleaved):
    """Base: attention weights times values, back as (length, batch, heads x size)."""

    def weighted(self, b: Builder, p: HeadsParams, attention: Entry, values: Entry) -> Sequence[Entry]:
        found = b.node("batch_dot", [attention, values])
        rows, length, size = b.shape(only(found))
        moved = b.node("transpose", found, axes=(1, 0, 2))
        return b.node("Reshape", moved, shape=(length, rows // p.heads, p.heads * size))


def _empty(*shapes: PartialShape) -> None:
    """ShapeError for an empty tensor."""
    for shape in shapes:
        if shape is not None and 0 in shape:
            raise ShapeError(f"{format_shape(shape)} is empty along axis {shape.index(0)}")


@register
class SelfAttentionScores(_Scores):
    """Scaled scores (batch x heads, length, length) of projections (length, batch, heads x 3 x size)."""

    name = "_contrib_interleaved_matmul_selfatt_qk"

    def inputs(self, p: HeadsParams) -> tuple[str, ...]:
        return ("queries_keys_values",)

    def infer_shape(self, p: HeadsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], (None,) * 3)
        assert data is not None
        _empty(data)
        self.size(p, data, 3)
        rows = None if data[1] is None else data[1] * p.heads
        return [data], [merge_shapes((rows, data[0], data[0]), outs[0])]

    def expand(self, b: Builder, p: HeadsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.scores(b, self.take(b, p, ins[0], 0, 3), self.take(b, p, ins[0], 1, 3))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"heads": 2}, ((3, 2, 12),))]


@register
class SelfAttentionValues(_Values):
    """Values of projections (length, batch, heads x 3 x size) weighted by attention: (length, batch, heads x size)."""

    name = "_contrib_interleaved_matmul_selfatt_valatt"

    def inputs(self, p: HeadsParams) -> tuple[str, ...]:
        return ("queries_keys_values", "attention")

    def infer_shape(self, p: HeadsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], (None,) * 3)
        assert data is not None
        _empty(data, ins[1])
        size = self.size(p, data, 3)
        rows = None if data[1] is None else data[1] * p.heads
        attention = merge_shapes(ins[1], (rows, data[0], data[0]))
        out = (data[0], data[1], None if size is None else size * p.heads)
        return [data, attention], [merge_shapes(out, outs[0])]

    def expand(self, b: Builder, p: HeadsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.weighted(b, p, ins[1], self.take(b, p, ins[0], 2, 3))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"heads": 2}, ((3, 2, 12), (4, 3, 3)))]


@register
class EncoderDecoderScores(_Scores):
    """Scaled scores (batch x heads, queries, keys) of queries (length, batch, heads x size) and of keys and values
    (length, batch, heads x 2 x size)."""

    name = "_contrib_interleaved_matmul_encdec_qk"

    def inputs(self, p: HeadsParams) -> tuple[str, ...]:
        return ("queries", "keys_values")

    def infer_shape(self, p: HeadsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        queries = merge_shapes(ins[0], (None,) * 3)
        assert queries is not None
        size = self.size(p, queries, 1)
        keys = merge_shapes(ins[1], (None, queries[1], None if size is None else 2 * size * p.heads))
        assert keys is not None
        _empty(queries, keys)
        rows = None if queries[1] is None else queries[1] * p.heads
        return [queries, keys], [merge_shapes((rows, queries[0], keys[0]), outs[0])]

    def expand(self, b: Builder, p: HeadsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.scores(b, self.take(b, p, ins[0], 0, 1), self.take(b, p, ins[1], 0, 2))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"heads": 2}, ((3, 2, 4), (5, 2, 8)))]


@register
class EncoderDecoderValues(_Values):
    """Values of keys and values (length, batch, heads x 2 x size) weighted by attention (batch x heads, queries,
    length): (queries, batch, heads x size)."""

    name = "_contrib_interleaved_matmul_encdec_valatt"

    def inputs(self, p: HeadsParams) -> tuple[str, ...]:
        return ("keys_values", "attention")

    def infer_shape(self, p: HeadsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], (None,) * 3)
        assert data is not None
        size = self.size(p, data, 2)
        attention = merge_shapes(ins[1], (None if data[1] is None else data[1] * p.heads, None, data[0]))
        assert attention is not None
        _empty(data, attention)
        out = (attention[1], data[1], None if size is None else size * p.heads)
        return [data, attention], [merge_shapes(out, outs[0])]

    def expand(self, b: Builder, p: HeadsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.weighted(b, p, ins[1], self.take(b, p, ins[0], 1, 2))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"heads": 2}, ((5, 2, 8), (4, 3, 5)))]
