"""One bit an element in the place of a value: a comparison of each element, and what gradients make of it.

Element i, in the order in which the elements lie in memory, is bit i % 8 of byte i / 8, counted from the lowest; bits
behind the last element are 0. Where the rows of a batch fill whole bytes, the bits are a tensor of as many rows.

The source of the idea is Jain et al. 2018, "Gist: Efficient data encoding for deep neural network training".
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import PLAIN, Algorithm, Cost, PartialShape, Shape, TensorType, stored_shape
from .chunks import chunks
from .op import Arrays, Encoding, Op, Sample, ShapeError, Sliced, Workspace, format_shape, is_complete, merge_shapes
from .params import REQUIRED, NoParams, param
from .pointwise import flat
from .registry import get_op, register

Types = Sequence[TensorType]
UINT8 = np.dtype(np.uint8)
BITS = 8
"""Of a byte."""
BLOCK = 1 << 13
"""Elements that are compared at once: whole bytes of bits, and 8 KiB of booleans."""


def bits_shape(shape: Shape, layout: str = PLAIN) -> Shape:
    """The shape of the bits of a tensor: its rows, of whole bytes, or else all bits in one."""
    stored = stored_shape(shape, layout)
    row = size_of(stored[1:])
    if len(stored) > 1 and row % BITS == 0:
        return stored[0], row // BITS
    return (-(-size_of(stored) // BITS),)


def size_of(shape: Shape) -> int:
    """Elements of a shape."""
    return int(np.prod(shape, dtype=np.int64))


def bits_of(kind: TensorType) -> TensorType:
    """The type of the bits of a tensor."""
    return TensorType(bits_shape(kind.shape, kind.layout), UINT8)


def packed(test: np.ndarray) -> np.ndarray:
    """The bits of an array of booleans."""
    return np.packbits(test, bitorder="little")


def unpacked(bits: np.ndarray, count: int) -> np.ndarray:
    """The first `count` bits as booleans."""
    return np.unpackbits(bits, count=count, bitorder="little").view(np.bool_)


def bit_blocks(bits: np.ndarray, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Flat views of the same block of bits and of each array, whose elements they belong to."""
    rows, flags = [flat(a) for a in arrays], flat(bits)
    for s in chunks(rows[0].size, BLOCK):
        yield flags[s.start // BITS:-(-s.stop // BITS)], *(row[s] for row in rows)


def encoded_by(encoder: str, params: Any, ins: Types, reader: str, reader_params: Any) -> Encoding:
    """Of an op of (gradient, saved value): the bits of the saved value, and the op of (gradient, bits)."""
    return Encoding((1,), encoder, params, bits_of(ins[1]), reader, reader_params)


class _Test(Op):
    """Base of the ops that compare each element, and make a bit of each."""

    recompute = "cheap"
    as_stored = True

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("bits",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or not is_complete(shape):
            return ins, outs
        return ins, [merge_shapes(outs[0], bits_shape(shape))]  # type: ignore[arg-type]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return ins, [UINT8]

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size), ins[0].nbytes, outs[0].nbytes)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs) if has_rows(ins[0], outs[0]) else None

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for bits, data in bit_blocks(outs[0], ins[0]):
            bits[...] = packed(self.test(p, data))

    def test(self, p: Any, data: np.ndarray) -> np.ndarray:
        """Booleans for the elements of a block."""
        raise NotImplementedError(self.name)


def has_rows(data: TensorType, bits: TensorType) -> bool:
    """Whether bits are a tensor of as many rows as their data, so that slices of it have slices of them."""
    return len(bits.shape) == 2 and len(data.shape) > 1 and bits.shape[0] == data.shape[0]


@register
class _PositiveBits(_Test):
    """Whether data > 0, which NaN is not."""

    name = "_positive_bits"

    def test(self, p: Any, data: np.ndarray) -> np.ndarray:
        return np.greater(data, 0)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,)) for shape in ((2, 3), (3, 2, 8), (17,))]


@dataclass(frozen=True)
class BoundsParams:
    """Bounds, which both belong to what lies within."""

    a_min: float = param(REQUIRED, "float", "least value")
    a_max: float = param(REQUIRED, "float", "largest value")


@register
class _WithinBits(_Test):
    """Whether a_min <= data <= a_max, which NaN is not."""

    name = "_within_bits"
    Params = BoundsParams

    def test(self, p: BoundsParams, data: np.ndarray) -> np.ndarray:
        inside = np.greater_equal(data, data.dtype.type(p.a_min))
        return np.logical_and(inside, np.less_equal(data, data.dtype.type(p.a_max)), out=inside)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"a_min": -0.25, "a_max": 0.5}, (shape,)) for shape in ((2, 3), (3, 2, 8))]


class ByBits(Op):
    """Base of the ops of (gradient, bits of the value that its slope is made of); in place over the gradient."""

    recompute = "cheap"
    as_stored = True

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "bits")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[0], outs[0])
        return [shape, fitting_bits(shape, ins[1])], [shape]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[0] or outs[0]
        return [dtype, UINT8], [dtype]

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(outs[0].size), ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs) if has_rows(ins[0], ins[1]) else None


def fitting_bits(shape: PartialShape, bits: PartialShape) -> PartialShape:
    """The shape of the bits of a tensor, where both are known; ShapeError when they do not go together."""
    if shape is None or not is_complete(shape):
        return bits
    wanted = bits_shape(shape)  # type: ignore[arg-type]
    if bits is not None and tuple(bits) != wanted:
        raise ShapeError(f"a tensor of shape {format_shape(shape)} has bits of shape {format_shape(wanted)}, got "
                         f"{format_shape(bits)}")
    return wanted


def bits_samples(params: dict[str, Any]) -> Sequence[Sample]:
    """Cases of an op of (gradient, bits)."""
    return [Sample(params, (shape, bits_shape(shape)), integer={"bits": 256}, differentiable=False)
            for shape in ((2, 3), (3, 2, 8), (17,))]


@register
class _ReluBackwardBits(ByBits):
    """What _activation_backward makes of relu: grad where the bit is set, else 0."""

    name = "_relu_backward_bits"

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for bits, grad, out in bit_blocks(ins[1], ins[0], outs[0]):
            np.multiply(grad, unpacked(bits, out.size), out=out)

    def samples(self) -> Sequence[Sample]:
        return bits_samples({})


def factors(out: Any) -> tuple[Shape, np.dtype]:
    """Shape and dtype of the factors of a block."""
    return (min(out.size, BLOCK),), out.dtype


@dataclass(frozen=True)
class SlopeBitsParams:
    """Parameters of a slope by bits."""

    slope: float = param(REQUIRED, "float", "slope where the bit is not set")


@register
class _SlopeBits(ByBits):
    """grad where the bit is set, slope * grad elsewhere."""

    name = "_slope_bits"
    Params = SlopeBitsParams

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for(factors(outs[0]))),)

    def compute(self, p: SlopeBitsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = work.array(*factors(outs[0]))
        for bits, grad, out in bit_blocks(ins[1], ins[0], outs[0]):
            factor = scratch[:out.size]
            factor.fill(p.slope)
            np.copyto(factor, 1, where=unpacked(bits, out.size))
            np.multiply(grad, factor, out=out)

    def samples(self) -> Sequence[Sample]:
        return [*bits_samples({"slope": 0.25}), *bits_samples({"slope": 0.0})]


def relu_encoding(ins: Types) -> Encoding:
    """Of the gradient of relu, an op of (gradient, output)."""
    return encoded_by("_positive_bits", NoParams(), ins, "_relu_backward_bits", NoParams())


def slope_encoding(encoder: str, ins: Types, slope: float, **params: Any) -> Encoding:
    """Of the gradient of a function of two slopes, 1 where the test of `encoder` holds."""
    return encoded_by(encoder, get_op(encoder).Params(**params), ins, "_slope_bits", SlopeBitsParams(slope))
