"""prelu and rrelu, the leaky functions whose slope is an input or is drawn."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .chunks import chunk_rows, chunks
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .philox import tile_blocks, tile_bytes, uniform_tiles
from .pointwise import Found, flat
from .random import Keyed
from .registry import register


def infer_prelu(ins: list[PartialShape], outs: list[PartialShape],
                ) -> tuple[list[PartialShape], list[PartialShape]]:
    """Shapes of (data, gamma) and output: gamma has one slope for each channel (axis 1), or one for all."""
    shape = merge_shapes(ins[0], outs[0])
    gamma = merge_shapes(ins[1], (None,))
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    if gamma == (None,):
        gamma = (channels,)
    elif gamma is not None and channels is not None and gamma[0] not in (1, channels):
        raise ShapeError(f"gamma {format_shape(gamma)} has neither one slope nor one for each channel of "
                         f"data {format_shape(shape)}")
    return [shape, gamma], [shape]


def _rows(tensor: Any) -> int:
    return chunk_rows(prod(tensor.shape[1:]) * tensor.dtype.itemsize)


def _chunk_shape(tensor: Any) -> Shape:
    return (min(tensor.shape[0], _rows(tensor)), *tensor.shape[1:])


def _gamma_shape(rank: int, gamma: Shape) -> Shape:
    """The shape in which gamma multiplies data of a rank."""
    return (1,) * rank if gamma == (1,) else tuple(gamma[0] if i == 1 else 1 for i in range(rank))


class Prelu(Op):
    """Base: ops of data and gamma, by chunks of the batch through `scratch_count` chunks of scratch."""

    recompute = "cheap"
    scratch_count = 1

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return infer_prelu(ins, outs)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        data = ins[0]
        one = Workspace.bytes_for((_chunk_shape(data), data.dtype))
        return (Algorithm("chunks", self.scratch_count * one),)


@register
class PreluForward(Prelu):
    """data above 0, gamma * data below."""

    name = "_prelu"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "gamma")

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, out = ins[0], outs[0]
        gamma = ins[1].reshape(_gamma_shape(data.ndim, ins[1].shape))
        scratch = work.array(_chunk_shape(data), data.dtype)
        for s in chunks(data.shape[0], _rows(data)):
            below = scratch[:s.stop - s.start]
            np.minimum(data[s], 0, out=below)
            np.multiply(below, gamma, out=below)
            np.maximum(data[s], 0, out=out[s])
            np.add(out[s], below, out=out[s])

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None, None]
        operands = [grads[0], *ins]
        gamma = only(b.node("_prelu_backward_gamma", operands)) if wanted[1] else None
        return [only(b.node("_prelu_backward_data", operands)) if wanted[0] else None, gamma]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 4), (3,))), Sample({}, ((2, 3), (1,)))]


class PreluBackward(Prelu):
    """Base of the gradients of prelu."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "data", "gamma")

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 4), (2, 3, 4), (3,)), differentiable=False),
                Sample({}, ((2, 3), (2, 3), (1,)), differentiable=False)]


@register
class PreluBackwardData(PreluBackward):
    """grad where data > 0, gamma * grad elsewhere."""

    name = "_prelu_backward_data"
    scratch_count = 2

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (shape, gamma), _ = infer_prelu([merge_shapes(ins[0], ins[1]), ins[2]], outs)
        return [shape, shape, gamma], [shape]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, gamma = ins
        gamma = gamma.reshape(_gamma_shape(data.ndim, gamma.shape))
        scratch = [work.array(_chunk_shape(data), data.dtype) for _ in range(2)]
        for s in chunks(data.shape[0], _rows(data)):
            slope, above = (a[:s.stop - s.start] for a in scratch)
            np.less_equal(data[s], 0, out=slope)
            np.multiply(slope, gamma, out=slope)
            np.greater(data[s], 0, out=above)
            np.add(slope, above, out=slope)
            np.multiply(grad[s], slope, out=outs[0][s])


@register
class PreluBackwardGamma(PreluBackward):
    """grad * data summed where data <= 0, for each channel or over all; gamma is read for its shape only."""

    name = "_prelu_backward_gamma"

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (shape, gamma), _ = infer_prelu([merge_shapes(ins[0], ins[1]), merge_shapes(ins[2], outs[0])], [None])
        return [shape, shape, gamma], [gamma]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, _ = ins
        out = outs[0]
        target = out.reshape(_gamma_shape(data.ndim, out.shape))
        axes = tuple(i for i in range(data.ndim) if out.shape == (1,) or i != 1)
        total = np.zeros(target.shape, np.float64)
        scratch = work.array(_chunk_shape(data), data.dtype)
        for s in chunks(data.shape[0], _rows(data)):
            below = scratch[:s.stop - s.start]
            np.minimum(data[s], 0, out=below)
            np.multiply(below, grad[s], out=below)
            total += np.add.reduce(below, axis=axes, keepdims=True)
        np.copyto(target, total, casting="unsafe")


@dataclass(frozen=True)
class RreluParams:
    """Parameters of rrelu in training."""

    lower_bound: float = param(REQUIRED, "float", "least slope, not negative")
    upper_bound: float = param(REQUIRED, "float", "largest slope")
    ordinal: int = param(REQUIRED, "int", "number of this random op in forward order")


class RandomSlope(Keyed):
    """Base: works tile by tile with slopes below 0 drawn uniformly between the bounds."""

    Params = RreluParams

    def algorithms(self, p: RreluParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        size, dtype = outs[0].size, outs[0].dtype
        scratch = Workspace.bytes_for(((4 * tile_blocks(size),), dtype))
        return (Algorithm("tiles", scratch + tile_bytes(size, dtype)),)

    def compute(self, p: RreluParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        *tensors, control = ins
        rows, out = [flat(t) for t in tensors], flat(outs[0])
        scratch = work.array((4 * tile_blocks(out.size),), out.dtype)
        for s, numbers in uniform_tiles(control, p.ordinal, out.size, out.dtype, work):
            np.multiply(numbers, p.upper_bound - p.lower_bound, out=numbers)
            np.add(numbers, p.lower_bound, out=numbers)
            length = s.stop - s.start
            self.tile([row[s] for row in rows], flat(numbers)[:length], out[s], scratch[:length])

    def tile(self, tensors: list[np.ndarray], slope: np.ndarray, out: np.ndarray,
             scratch: np.ndarray) -> None:
        """Write one tile to `out`, which may be one of `tensors`; `slope`, `scratch` may be overwritten."""
        raise NotImplementedError(self.name)


@register
class Rrelu(RandomSlope):
    """data above 0, a drawn slope times data below."""

    name = "_rrelu"

    def tile(self, tensors: list[np.ndarray], slope: np.ndarray, out: np.ndarray,
             scratch: np.ndarray) -> None:
        np.minimum(tensors[0], 0, out=scratch)
        np.multiply(scratch, slope, out=scratch)
        np.maximum(tensors[0], 0, out=out)
        np.add(out, scratch, out=out)

    def gradient(self, b: Builder, p: RreluParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_rrelu_backward", [grads[0], outs[0], ins[1]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"lower_bound": 0.1, "upper_bound": 0.4, "ordinal": 1}, ((3, 5), (8,)))]


@register
class RreluBackward(RandomSlope):
    """grad where the output is positive, the slope drawn again times grad elsewhere."""

    name = "_rrelu_backward"

    def inputs(self, p: RreluParams) -> tuple[str, ...]:
        return ("grad", "out", "key")

    def outputs(self, p: RreluParams) -> tuple[str, ...]:
        return ("data_grad",)

    def infer_shape(self, p: RreluParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (grad, key), (shape,) = super().infer_shape(p, [merge_shapes(*ins[:2]), ins[2]], outs)
        return [grad, shape, key], [shape]

    def infer_dtype(self, p: RreluParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[0] or ins[1] or outs[0]
        return [dtype, dtype, np.dtype(np.float32)], [dtype]

    def inplace(self, p: RreluParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def tile(self, tensors: list[np.ndarray], slope: np.ndarray, out: np.ndarray,
             scratch: np.ndarray) -> None:
        grad, saved = tensors
        np.less_equal(saved, 0, out=scratch)
        np.multiply(slope, scratch, out=slope)
        np.greater(saved, 0, out=scratch)
        np.add(slope, scratch, out=slope)
        np.multiply(grad, slope, out=out)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"lower_bound": 0.1, "upper_bound": 0.4, "ordinal": 1}, ((7,), (7,), (8,)),
                       differentiable=False)]
