"""Ops that draw random numbers: Dropout, uniform and normal samples. philox.py says how they are keyed."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType, dtype_of
from .basic import known_dims
from .control import with_words
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, merge_shapes
from .params import REQUIRED, param
from .philox import tile_blocks, tile_bytes, uniform, word_tiles
from .pointwise import Found, flat
from .registry import register


def keep_threshold(p: float) -> int:
    """An element is kept iff the upper 24 bits of its word reach this, that is iff its uniform is >= p."""
    return math.ceil(p * 2 ** 24)


def mask_tiles(control: np.ndarray, p: Any, size: int, dtype: np.dtype,
               work: Workspace) -> Iterator[tuple[slice, np.ndarray]]:
    """(slice of the flat tensor, dropout factors: 0 or 1 / (1 - p)) tile by tile."""
    mask = work.array((tile_blocks(size), 4), dtype)
    threshold = np.uint64(keep_threshold(p.p) << 8)
    scale = dtype.type(1 / (1 - p.p))
    for s, words in word_tiles(control, p.ordinal, size, work, p.first // 4):
        tile = mask[:words[0].size]
        for w, word in enumerate(words):
            np.greater_equal(word, threshold, out=tile[:, w])
        np.multiply(tile, scale, out=tile)
        yield s, flat(tile)[:s.stop - s.start]


@dataclass(frozen=True)
class DropoutParams:
    """Parameters of Dropout."""

    p: float = param(0.5, "float", "probability of zeroing an element, in [0, 1]")
    mode: str = param("training", "str", "when to drop: only in training, or always", ("training", "always"))
    axes: tuple[int, ...] = param((), "shape", "axes along which one draw is shared")


@dataclass(frozen=True)
class KeyedDropoutParams:
    """Parameters of a dropout that knows its place in the random sequence."""

    p: float = param(REQUIRED, "float", "probability of zeroing an element, in [0, 1)")
    axes: tuple[int, ...] = param((), "shape", "axes along which one draw is shared")
    ordinal: int = param(REQUIRED, "int", "number of this random op in forward order")
    first: int = param(0, "int", "element of the whole tensor at which this one begins: a multiple of 4")


def check_probability(p: float) -> None:
    """Raise unless `p` is a probability."""
    if not 0 <= p <= 1:
        raise ShapeError(f"p={p} must be in [0, 1]; p is the probability of zeroing an element")


@register
class Dropout(Op):
    """data with elements zeroed at random and the rest scaled by 1 / (1 - p); the identity in evaluation. With p = 1
    nothing is left: output and gradient are zeros.

    It always expands: to `_dropout`, to zeros, or to nothing. The hidden output `mask` is MXNet's; here no mask is
    stored, and its entry is that of the output.
    """

    name = "Dropout"
    aliases = ("dropout",)
    Params = DropoutParams
    recompute = "cheap"

    def outputs(self, p: DropoutParams) -> tuple[str, ...]:
        return ("output", "mask")

    def visible_outputs(self, p: DropoutParams) -> int:
        return 1

    def infer_shape(self, p: DropoutParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_probability(p.p)
        return super().infer_shape(p, ins, outs)

    def expand(self, b: Builder, p: DropoutParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        check_probability(p.p)
        if p.p == 0 or not (train or p.mode == "always"):
            return [ins[0], ins[0]]
        if p.p == 1:
            zeros = only(b.node("zeros_like", [ins[0]]))
            return [zeros, zeros]
        out = only(b.node("_dropout", [ins[0], b.random_key()], p=p.p, axes=p.axes,
                          ordinal=b.next_random_ordinal()))
        return [out, out]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"p": 0.3}, ((3, 5),)), Sample({"axes": (0,), "mode": "always"}, ((2, 3),)),
                Sample({"p": 0.0}, ((4,),))]


def block_rows(shape: Shape) -> int:
    """Rows of a tensor after which a block of four numbers is whole, so that a slice may begin there."""
    return 4 // gcd(4, max(1, prod(shape[1:])))


def check_place(p: Any) -> None:
    """Raise unless the place of a keyed op in the random sequence is one."""
    if min(p.ordinal, getattr(p, "first", 0)) < 0:
        raise ShapeError(f"ordinal {p.ordinal} and first {getattr(p, 'first', 0)} must be at least 0; they are counts")


class Keyed(Op):
    """Base of ops of (data, key): the key is the control buffer, and only data decides shapes and dtypes."""

    recompute = "cheap"
    first: ClassVar[str] = "data"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return (self.first, "key")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_place(p)
        shape = merge_shapes(ins[0], outs[0])
        return [shape, with_words(ins[1])], [shape]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[0] or outs[0]
        return [dtype, np.dtype(np.float32)], [dtype]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


@register
class KeyedDropout(Keyed):
    """data times factors of 0 or 1 / (1 - p) drawn from the key; an element is kept iff its uniform >= p."""

    name = "_dropout"
    Params = KeyedDropoutParams

    def infer_shape(self, p: KeyedDropoutParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not 0 <= p.p < 1:
            raise ShapeError(f"p={p.p} must be in [0, 1), for what is kept is divided by 1 - p")
        return super().infer_shape(p, ins, outs)

    def mask_shape(self, p: KeyedDropoutParams, shape: Shape) -> Shape:
        """The shape in which factors are drawn: 1 on the shared axes."""
        axes = {axis % len(shape) for axis in p.axes}
        return tuple(1 if i in axes else d for i, d in enumerate(shape))

    def algorithms(self, p: KeyedDropoutParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        shape, dtype = self.mask_shape(p, ins[0].shape), ins[0].dtype
        whole = Workspace.bytes_for((shape, dtype)) if p.axes else 0
        rows = block_rows(ins[0].shape)
        return (Algorithm("tiles", whole + tile_bytes(prod(shape), dtype), chunk_rows=rows),)

    def sliced(self, p: KeyedDropoutParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return None if p.axes else Sliced.every(ins, outs, whole=(1,))

    def slice_params(self, p: KeyedDropoutParams, first: int, batch: int,
                     outs: Sequence[TensorType]) -> KeyedDropoutParams:
        return replace(p, first=first * prod(outs[0].shape[1:]))

    def compute(self, p: KeyedDropoutParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, control = ins
        shape = self.mask_shape(p, data.shape)
        mask = flat(work.array(shape, data.dtype)) if p.axes else None
        rows, out = flat(data), flat(outs[0])
        for s, factors in mask_tiles(control, p, prod(shape), data.dtype, work):
            if mask is None:
                np.multiply(rows[s], factors, out=out[s])
            else:
                mask[s] = factors
        if mask is not None:
            np.multiply(data, mask.reshape(shape), out=outs[0])

    def gradient(self, b: Builder, p: KeyedDropoutParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_dropout_backward", [grads[0], ins[1]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"p": 0.5, "ordinal": 0}, ((3, 5), (8,))),
                Sample({"p": 0.25, "ordinal": 3, "axes": (1,)}, ((2, 3, 5), (8,)))]


@register
class KeyedDropoutBackward(KeyedDropout):
    """grad times the factors of the forward op, drawn again."""

    name = "_dropout_backward"
    first = "grad"

    def outputs(self, p: KeyedDropoutParams) -> tuple[str, ...]:
        return ("data_grad",)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"p": 0.5, "ordinal": 2}, ((7,), (8,)), differentiable=False)]


@dataclass(frozen=True)
class UniformParams:
    """Parameters of uniform samples."""

    low: float = param(0.0, "float", "least value")
    high: float = param(1.0, "float", "bound above, not reached")
    shape: tuple[int, ...] = param((), "shape", "shape; 0 leaves a dimension to inference")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@dataclass(frozen=True)
class NormalParams:
    """Parameters of normal samples."""

    loc: float = param(0.0, "float", "mean")
    scale: float = param(1.0, "float", "standard deviation")
    shape: tuple[int, ...] = param((), "shape", "shape; 0 leaves a dimension to inference")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@dataclass(frozen=True)
class KeyedUniformParams(UniformParams):
    """Parameters of uniform samples that know their place in the random sequence."""

    ordinal: int = param(0, "int", "number of this random op in forward order")


@dataclass(frozen=True)
class KeyedNormalParams(NormalParams):
    """Parameters of normal samples that know their place in the random sequence."""

    ordinal: int = param(0, "int", "number of this random op in forward order")


class SampleOp(Op):
    """Base of sampling ops: no inputs of the user's; they expand to a keyed op and have no gradient."""

    recompute = "cheap"
    keyed: ClassVar[str]

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ()

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return [*map(with_words, ins)], [merge_shapes(known_dims(p.shape), outs[0])]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [np.dtype(np.float32)] * len(ins), [dtype_of(p.dtype)]

    def completed(self, p: Any, outs: Sequence[tuple[int, ...]]) -> Any:
        return replace(p, shape=outs[0])

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node(self.keyed, [b.random_key()], **vars(p), ordinal=b.next_random_ordinal())

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None] * len(ins)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (3, 5)}, (), differentiable=False)]


class KeyedSample(SampleOp):
    """Base of keyed sampling ops; a subclass gives `transform`."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("key",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_place(p)
        return super().infer_shape(p, ins, outs)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node(self.name, ins, **vars(p))

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        n = tile_blocks(outs[0].size)
        return (Algorithm("tiles", Workspace.bytes_for(((5, n), outs[0].dtype), ((6, n), np.uint64))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        out = flat(outs[0])
        scratch = work.array((5, tile_blocks(out.size)), out.dtype)
        for s, words in word_tiles(ins[0], p.ordinal, out.size, work):
            rows = scratch[:, :words[0].size]
            for row, word in zip(rows, words, strict=False):
                uniform(word, row)
            self.transform(p, rows[:4], rows[4])
            for w in range(4):
                target = out[s.start + w:s.stop:4]
                target[...] = rows[w, :target.size]

    def transform(self, p: Any, numbers: np.ndarray, scratch: np.ndarray) -> None:
        """Turn uniform numbers into samples, in place: row w of (4, blocks) holds word w of each block."""
        raise NotImplementedError(self.name)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (3, 5), "ordinal": 1}, ((8,),), differentiable=False)]


@register
class RandomUniform(SampleOp):
    """Uniform samples in [low, high)."""

    name, keyed = "_random_uniform", "_uniform_keyed"
    aliases = ("uniform", "random_uniform")
    Params = UniformParams


@register
class RandomNormal(SampleOp):
    """Normal samples of a mean and standard deviation."""

    name, keyed = "_random_normal", "_normal_keyed"
    aliases = ("normal", "random_normal")
    Params = NormalParams


@register
class UniformKeyed(KeyedSample):
    """Uniform samples drawn from the key."""

    name = "_uniform_keyed"
    Params = KeyedUniformParams

    def transform(self, p: KeyedUniformParams, numbers: np.ndarray, scratch: np.ndarray) -> None:
        np.multiply(numbers, p.high - p.low, out=numbers)
        np.add(numbers, p.low, out=numbers)


@register
class NormalKeyed(KeyedSample):
    """Normal samples by Box and Muller: words (0, 1) give elements (0, 1), words (2, 3) elements (2, 3)."""

    name = "_normal_keyed"
    Params = KeyedNormalParams

    def transform(self, p: KeyedNormalParams, numbers: np.ndarray, scratch: np.ndarray) -> None:
        for radius, angle in (numbers[:2], numbers[2:]):
            np.negative(radius, out=radius)
            np.log1p(radius, out=radius)
            np.multiply(radius, -2, out=radius)
            np.sqrt(radius, out=scratch)
            np.multiply(angle, 2 * math.pi, out=angle)
            np.cos(angle, out=radius)
            np.multiply(radius, scratch, out=radius)
            np.sin(angle, out=angle)
            np.multiply(angle, scratch, out=angle)
        np.multiply(numbers, p.scale, out=numbers)
        np.add(numbers, p.loc, out=numbers)
