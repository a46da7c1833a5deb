"""Scaled dot product attention with any number of heads, and its gradient, without a matrix of probabilities.

Vaswani et al. Attention is all you need. NeurIPS 2017, arXiv:1706.03762. Forward keeps the logarithm of each row's sum
of exponentials (Rabe, Staats, arXiv:2112.05682; Dao et al., FlashAttention, arXiv:2205.14135), from which backward
computes the probabilities again, some rows of queries at a time. Heads are cut from the last axis where they lie.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .chunks import CHUNK_BYTES, chunks
from .indexing import IdRange, numbers
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]
LENGTH = "scaled_dot_product_attention: length"
"""What errors call a length."""
NOTHING = -2.0**127
"""The logarithm that stands for a row that sees no key: finite, so that less than it stays -infinity."""
CAUSAL_ROWS = 128
"""Most rows of a causal tile, at most 256: keys that follow its last row are not multiplied at all."""
TILE_ROWS = 1024
"""Most rows of any tile, over all its images and heads: their numbers are small beside the scores."""


@dataclass(frozen=True)
class AttentionParams:
    """Parameters of scaled_dot_product_attention, and of its gradient."""

    num_heads: int = param(1, "int", "heads, into which the last axes are cut")
    causal: bool = param(False, "bool", "whether query i sees only the keys 0 to i")
    scale: float | None = param(None, "float", "factor of the products; 1 / sqrt(query features of a head) by default")
    use_mask: bool = param(False, "bool", "whether an input `mask` says which keys a query sees")
    use_length: bool = param(False, "bool", "whether an input `length` says how many keys each image has")

    def __post_init__(self) -> None:
        if self.num_heads < 1:
            raise ShapeError(f"num_heads must be 1 or more, got {self.num_heads}")


class Sizes(NamedTuple):
    """What one attention's shapes come to; `depth` and `width` are the features of a head of query and of value."""

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    width: int

    @classmethod
    def of(cls, p: AttentionParams, query: Shape, value: Shape) -> Sizes:
        """The sizes of query (N, L, heads * depth) and value (N, M, heads * width)."""
        h = p.num_heads
        return cls(query[0], h, query[1], value[1], query[2] // h, value[2] // h)

    def pairs(self, causal: bool) -> int:
        """Products of a query and a key that are computed, over all images and heads."""
        m = min(self.queries, self.keys)
        seen = m * (m + 1) // 2 + (self.queries - m) * self.keys if causal else self.queries * self.keys
        return self.batch * self.heads * seen


class Tile(NamedTuple):
    """Images, heads and rows of queries that are computed at once, and how many keys the last row sees."""

    images: slice
    heads: slice
    rows: slice
    keys: int


def tile_lengths(p: AttentionParams, s: Sizes, itemsize: int) -> tuple[int, int, int]:
    """(images, heads, rows) of a tile. Products are made a head and image at a time, so only `rows` tells in the
    bits, and it does not depend on the batch."""
    row_bytes = max(1, s.keys * itemsize)
    rows = max(1, min(s.queries, CHUNK_BYTES // row_bytes, CAUSAL_ROWS if p.causal else TILE_ROWS))
    heads = images = 1
    if rows >= s.queries:
        most = min(CHUNK_BYTES // row_bytes, TILE_ROWS) // rows
        heads = max(1, min(s.heads, most))
        images = max(1, min(s.batch, most // heads)) if heads == s.heads else 1
    return images, heads, rows


def tiles(p: AttentionParams, s: Sizes, itemsize: int) -> Iterator[Tile]:
    """The tiles in ascending order, rows innermost."""
    images, heads, rows = tile_lengths(p, s, itemsize)
    for i in chunks(s.batch, images):
        for h in chunks(s.heads, heads):
            for r in chunks(s.queries, rows):
                yield Tile(i, h, r, min(r.stop, s.keys) if p.causal else s.keys)


def _view(scratch: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return scratch[:prod(shape)].reshape(shape)


def _by_head(tensor: np.ndarray, heads: int) -> np.ndarray:
    """(N, L, heads * features) as (N, heads, L, features), without a copy."""
    n, length, features = tensor.shape
    return tensor.reshape(n, length, heads, features // heads).transpose(0, 2, 1, 3)


class _Attention(Op):
    """What attention and its gradient share: dtypes, scratch, and the masked scores of a tile."""

    Params = AttentionParams
    first: int
    """Position of `queries` among the inputs."""

    def extra(self, p: AttentionParams) -> tuple[str, ...]:
        """The optional inputs, which come last."""
        return ("mask",) * p.use_mask + ("length",) * p.use_length

    def infer_dtype(self, p: AttentionParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        own = len(ins) - len(self.extra(p))
        known = next((t for t in (*ins[:own], *outs) if t is not None), None)
        return [t or known for t in ins], [t or known for t in outs]

    def sliced(self, p: AttentionParams, ins: Types,
               outs: Types) -> Sliced | None:
        return None if p.use_mask else Sliced.every(ins, outs)

    def sizes(self, p: AttentionParams, ins: Sequence[Any]) -> Sizes:
        """The sizes, from inputs that have a shape."""
        return Sizes.of(p, ins[self.first].shape, ins[self.first + 2].shape)

    def scratch(self, p: AttentionParams, s: Sizes, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        """Scratch arrays (shape, dtype); the first are the scores, and the last a mask's, if any."""
        raise NotImplementedError

    def algorithms(self, p: AttentionParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        query = ins[self.first]
        arrays = self.scratch(p, self.sizes(p, ins), query.dtype)
        return (Algorithm("tiles", Workspace.bytes_for(*arrays)),)

    def id_ranges(self, p: AttentionParams, ins: Types, outs: Types) -> Sequence[IdRange]:
        return [IdRange(LENGTH, len(ins) - 1, ins[-1].shape, self.sizes(p, ins).keys + 1)] if p.use_length else ()

    def scores(self, p: AttentionParams, tile: Tile, query: np.ndarray, key: np.ndarray, extra: Arrays,
               memory: Arrays) -> np.ndarray:
        """scale * query keyᵀ of a tile, -infinity where a query may not see a key; in memory[0]."""
        q = query[tile.images, tile.heads, tile.rows]
        scores = _view(memory[0], (*q.shape[:3], tile.keys))
        np.matmul(q, key[tile.images, tile.heads, :tile.keys].swapaxes(2, 3), out=scores)
        np.multiply(scores, p.scale if p.scale is not None else q.shape[3] ** -0.5, out=scores)
        if p.use_mask:
            _apply_mask(scores, tile, extra[0], memory[-1])
        if p.use_length:
            for first, lengths in numbers(extra[-1][tile.images], key.shape[2] + 1, LENGTH, first=tile.images.start):
                for image, length in enumerate(lengths.tolist(), first):
                    scores[image, ..., length:] = -np.inf
        if p.causal:
            _hide_future(scores, tile)
        return scores


def _apply_mask(scores: np.ndarray, tile: Tile, mask: np.ndarray, memory: np.ndarray) -> None:
    """-infinity where the mask, whose axes may be one long, is 0."""
    cuts = (tile.images, tile.heads, tile.rows, slice(tile.keys))
    part = mask[tuple(slice(None) if mask.shape[i] == 1 and i < 3 else cut for i, cut in enumerate(cuts))]
    hidden = np.equal(part, 0, out=_view(memory, part.shape))
    np.copyto(scores, -np.inf, where=hidden)


def _hide_future(scores: np.ndarray, tile: Tile) -> None:
    """-infinity above the diagonal, which lies in the columns from the tile's first row on."""
    rows, columns = scores.shape[2], tile.keys - tile.rows.start
    if columns > 0:
        hidden = np.less.outer(np.arange(rows, dtype=np.uint8), np.arange(columns, dtype=np.uint8))
        np.copyto(scores[..., tile.rows.start:], -np.inf, where=hidden)


@register
class ScaledDotProductAttention(_Attention):
    """output = softmax(scale * queries keysᵀ) values, for each of num_heads heads and each image alone.

    queries (N, L, heads * depth), keys (N, M, heads * depth), values (N, M, heads * width), output (N, L, heads *
    width). mask (N or 1, heads or 1, L or 1, M) is 0 where a query must not see a key; length (N,) hides the keys
    from there on, in 0..M. The output of a query that sees no key is 0, and so are its gradients. Hidden: the
    logarithm of each row's sum of exponentials (N, heads, L).
    """

    name = "scaled_dot_product_attention"
    first = 0

    def inputs(self, p: AttentionParams) -> tuple[str, ...]:
        return ("queries", "keys", "values", *self.extra(p))

    def outputs(self, p: AttentionParams) -> tuple[str, ...]:
        return ("output", "lse")

    def visible_outputs(self, p: AttentionParams) -> int:
        return 1

    def infer_shape(self, p: AttentionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        query, key, value, out = _complete(p, ins[0], ins[1], ins[2], outs[0])
        n, length = query[:2]
        extra = list(ins[3:])
        if p.use_mask and extra[0] is not None:
            _check_mask(extra[0], (n, p.num_heads, length, key[1]))
        if p.use_length:
            extra[-1] = merge_shapes(extra[-1], (n,))
        return [query, key, value, *extra], [out, merge_shapes(outs[1], (n, p.num_heads, length))]

    def gradient(self, b: Builder, p: AttentionParams, ins: Sequence[Entry], outs: Sequence[Entry], grads: Found,
                 wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not any(wanted[:3]):
            return [None] * len(ins)
        found = b.node("_scaled_dot_product_attention_backward", [grads[0], *ins[:3], *outs, *ins[3:]], **vars(p))
        return [*found, *[None] * (len(ins) - 3)]

    def scratch(self, p: AttentionParams, s: Sizes, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        rows = prod(tile_lengths(p, s, dtype.itemsize))
        return [((rows * s.keys,), dtype), ((rows,), dtype), ((rows,), dtype),
                ((rows * s.keys if p.use_mask else 0,), np.bool_)]

    def compute(self, p: AttentionParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        s, dtype = self.sizes(p, ins), ins[0].dtype
        memory = [work.array(*a) for a in self.scratch(p, s, dtype)]
        query, key, value, out = (_by_head(t, s.heads) for t in (*ins[:3], outs[0]))
        lowest = max(NOTHING, float(np.finfo(dtype).min))
        for tile in tiles(p, s, dtype.itemsize):
            part = tile[:3]
            scores = self.scores(p, tile, query, key, ins[3:], memory)
            largest, total = (_view(m, (*scores.shape[:3], 1)) for m in memory[1:3])
            np.maximum.reduce(scores, axis=3, keepdims=True, out=largest, initial=-np.inf)
            np.maximum(largest, lowest, out=largest)    # no infinity less infinity
            np.subtract(scores, largest, out=scores)
            np.exp(scores, out=scores)
            np.add.reduce(scores, axis=3, keepdims=True, out=total)
            np.maximum(total, 1, out=total)     # only that of a row that sees nothing is less
            np.divide(scores, total, out=scores)
            np.matmul(scores, value[tile.images, tile.heads, :tile.keys], out=out[part])
            np.log(total, out=total)
            np.add(largest[..., 0], total[..., 0], out=outs[1][part])

    def cost(self, p: AttentionParams, ins: Types, outs: Types) -> Cost:
        s = self.sizes(p, ins)
        flops = s.pairs(p.causal) * (2.0 * (s.depth + s.width) + 5)
        return Cost(flops, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def samples(self) -> Sequence[Sample]:
        x, y = (2, 3, 4), (2, 5, 4)
        return (Sample({}, ((2, 3, 4), (2, 5, 4), (2, 5, 6))),
                Sample({"num_heads": 2}, (x, y, (2, 5, 2)), low=-2, high=2),
                Sample({"num_heads": 2, "causal": True, "scale": 0.7}, (y, y, y)),
                Sample({"causal": True}, (y, x, x)),
                Sample({"causal": True}, (x, y, y)),
                Sample({"num_heads": 2, "use_length": True}, (x, y, y, (2,)), integer={"length": 6}),
                Sample({"num_heads": 2, "use_mask": True}, (x, y, y, (2, 2, 3, 5)), integer={"mask": 2}),
                Sample({"use_mask": True, "use_length": True, "causal": True}, (y, y, y, (1, 1, 5, 5), (2,)),
                       integer={"mask": 2, "length": 6}),
                Sample({"num_heads": 4, "use_mask": True}, (x, y, y, (2, 1, 1, 5)), integer={"mask": 2}))


def _complete(p: AttentionParams, query: PartialShape, key: PartialShape, value: PartialShape, out: PartialShape,
              ) -> tuple[Any, Any, Any, Any]:
    """The four shapes, each with three dimensions, completed from one another."""
    shapes = []
    for name, shape in (("queries", query), ("keys", key), ("values", value), ("output", out)):
        if shape is not None and len(shape) != 3:
            raise ShapeError(f"{name} has shape {format_shape(shape)}; it must be (batch, length, features)")
        if shape is not None and shape[2] is not None and shape[2] % p.num_heads:
            raise ShapeError(f"{name} of shape {format_shape(shape)} cannot be cut into {p.num_heads} heads")
        shapes.append(shape or (None,) * 3)
    batch, = merge_shapes(*[s[:1] for s in shapes])                                # type: ignore[misc]
    length, = merge_shapes(shapes[0][1:2], shapes[3][1:2])                         # type: ignore[misc]
    places, = merge_shapes(shapes[1][1:2], shapes[2][1:2])                         # type: ignore[misc]
    features, = merge_shapes(shapes[0][2:], shapes[1][2:])                         # type: ignore[misc]
    if features == 0 and p.scale is None:
        raise ShapeError(f"queries {format_shape(shapes[0])} and keys {format_shape(shapes[1])} have no features along "
                         f"axis 2, so there is no scale 1 / sqrt(features); give scale, or features")
    width, = merge_shapes(shapes[2][2:], shapes[3][2:])                            # type: ignore[misc]
    return (batch, length, features), (batch, places, features), (batch, places, width), (batch, length, width)


def _check_mask(mask: Any, full: Any) -> None:
    fits = len(mask) == 4 and all(m is None or f is None or m == f or (m == 1 and i < 3)
                                  for i, (m, f) in enumerate(zip(mask, full, strict=True)))
    if not fits:
        raise ShapeError(f"mask has shape {format_shape(mask)}; it must be {format_shape(full)} (batch, heads, "
                         f"queries, keys), where each of the first three may be 1")


@register
class _ScaledDotProductAttentionBackward(_Attention):
    """Gradients of queries, keys and values, from (out_grad, queries, keys, values, output, lse)."""

    name = "_scaled_dot_product_attention_backward"
    first = 1

    def inputs(self, p: AttentionParams) -> tuple[str, ...]:
        return ("out_grad", "queries", "keys", "values", "output", "lse", *self.extra(p))

    def outputs(self, p: AttentionParams) -> tuple[str, ...]:
        return ("queries_grad", "keys_grad", "values_grad")

    def infer_shape(self, p: AttentionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        query, key, value, out = _complete(p, merge_shapes(ins[1], outs[0]), merge_shapes(ins[2], outs[1]),
                                           merge_shapes(ins[3], outs[2]), merge_shapes(ins[0], ins[4]))
        lse = merge_shapes(ins[5], (query[0], p.num_heads, query[1]))
        return [out, query, key, value, out, lse, *ins[6:]], [query, key, value]

    def inplace(self, p: AttentionParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0), (4, 0))

    def scratch(self, p: AttentionParams, s: Sizes, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        images, heads, length = tile_lengths(p, s, dtype.itemsize)
        rows = images * heads * length
        term = s.keys * max(s.depth, s.width) if length < s.queries else 0
        return [((rows * s.keys,), dtype), ((rows * s.keys,), dtype), ((rows,), dtype), ((term,), dtype),
                ((rows * s.keys if p.use_mask else 0,), np.bool_)]

    def compute(self, p: AttentionParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        s, dtype = self.sizes(p, ins), ins[0].dtype
        memory = [work.array(*a) for a in self.scratch(p, s, dtype)]
        grad, query, key, value, out = (_by_head(t, s.heads) for t in ins[:5])
        query_grad, key_grad, value_grad = (_by_head(t, s.heads) for t in outs)
        if not s.queries:
            outs[1].fill(0)
            outs[2].fill(0)
        for tile in tiles(p, s, dtype.itemsize):
            part, seen = tile[:3], (*tile[:2], slice(tile.keys))
            chances = self.scores(p, tile, query, key, ins[6:], memory)
            np.subtract(chances, ins[5][part][..., None], out=chances)
            np.exp(chances, out=chances)
            _add_product(chances, grad[part], value_grad, tile, memory[3])
            slopes = _view(memory[1], chances.shape)
            np.matmul(grad[part], value[seen].swapaxes(2, 3), out=slopes)
            means = np.einsum("nhld,nhld->nhl", grad[part], out[part], out=_view(memory[2], chances.shape[:3]))
            np.subtract(slopes, means[..., None], out=slopes)
            np.multiply(slopes, chances, out=slopes)
            np.multiply(slopes, p.scale if p.scale is not None else s.depth ** -0.5, out=slopes)
            _add_product(slopes, query[part], key_grad, tile, memory[3])
            np.matmul(slopes, key[seen], out=query_grad[part])  # last: it may lie on any of those three

    def cost(self, p: AttentionParams, ins: Types, outs: Types) -> Cost:
        s = self.sizes(p, ins)
        flops = s.pairs(p.causal) * (2.0 * (3 * s.depth + 2 * s.width) + 8)
        return Cost(flops, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))


def _add_product(left: np.ndarray, right: np.ndarray, out: np.ndarray, tile: Tile, term: np.ndarray) -> None:
    """Add leftᵀ right to the keys of `out` that the tile sees; the first rows' tile begins the sum."""
    target = out[tile.images, tile.heads]
    if tile.rows.start == 0:
        np.matmul(left.swapaxes(2, 3), right, out=target[..., :tile.keys, :])
        target[..., tile.keys:, :] = 0
    else:
        target = target[..., :tile.keys, :]
        np.add(target, np.matmul(left.swapaxes(2, 3), right, out=_view(term, target.shape)), out=target)
