"""Local response normalisation across channels."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .chunks import chunk_rows, chunks
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class LrnParams:
    """Parameters of LRN, and of its gradient."""

    alpha: float = param(1e-4, "float", "factor of the mean square of a window")
    beta: float = param(0.75, "float", "exponent")
    knorm: float = param(2.0, "float", "what is added to that")
    nsize: int = param(REQUIRED, "int", "channels of a window, an odd number")


def _parts(shape: Shape, itemsize: int) -> Iterator[slice]:
    return chunks(shape[0], chunk_rows(prod(shape[1:]) * itemsize))


def _scratch(tensor: TensorType) -> tuple[Shape, np.dtype]:
    """One canonical chunk of a tensor as (images, channels, places)."""
    shape = tensor.shape
    images = min(shape[0], chunk_rows(prod(shape[1:]) * tensor.dtype.itemsize))
    return (images, shape[1], prod(shape[2:])), tensor.dtype


def _view(array: np.ndarray) -> np.ndarray:
    return array.reshape(*array.shape[:2], prod(array.shape[2:]))


def _window_sums(values: np.ndarray, nsize: int, out: np.ndarray) -> None:
    """Write the sums of `values` over the `nsize` channels about each channel to `out`."""
    np.copyto(out, values)
    for distance in range(1, min(nsize // 2 + 1, values.shape[1])):
        np.add(out[:, distance:], values[:, :-distance], out=out[:, distance:])
        np.add(out[:, :-distance], values[:, distance:], out=out[:, :-distance])


def _negative_power(base: np.ndarray, exponent: float, out: np.ndarray) -> None:
    """base ** -exponent, by logarithm and exponential, which NumPy has in vector form."""
    np.log(base, out=out)
    np.multiply(out, -exponent, out=out)
    np.exp(out, out=out)


class _LrnOp(Op):
    """What the op and its gradient share."""

    Params = LrnParams
    recompute = "cheap"

    def sliced(self, p: LrnParams, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: LrnParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(*ins, *outs)
        if p.nsize < 1 or p.nsize % 2 == 0:
            raise ShapeError(f"LRN: nsize {p.nsize}; a window must have an odd number of channels")
        if shape is not None and len(shape) < 2:
            raise ShapeError(f"LRN: data {format_shape(shape)} has no channel axis 1")
        return [shape] * len(ins), [shape] * len(outs)

    def algorithms(self, p: LrnParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", Workspace.bytes_for(_scratch(ins[0]))),)

    def cost(self, p: LrnParams, ins: Types, outs: Types) -> Cost:
        return Cost((p.nsize + 20.0) * outs[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))


@register
class Lrn(_LrnOp):
    """data / (knorm + alpha / nsize * sum of squares of the nsize channels about each) ** beta.

    The hidden output tmp_norm is the base of that power, which the gradient reads.
    """

    name = "LRN"
    Params = LrnParams

    def outputs(self, p: LrnParams) -> tuple[str, ...]:
        return ("output", "tmp_norm")

    def visible_outputs(self, p: LrnParams) -> int:
        return 1

    def compute(self, p: LrnParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, out, norm = _view(ins[0]), _view(outs[0]), _view(outs[1])
        scratch = work.array(*_scratch(TensorType(ins[0].shape, ins[0].dtype)))
        for s in _parts(ins[0].shape, ins[0].dtype.itemsize):
            part = scratch[:s.stop - s.start]
            np.square(data[s], out=part)
            _window_sums(part, p.nsize, norm[s])
            np.multiply(norm[s], p.alpha / p.nsize, out=norm[s])
            np.add(norm[s], p.knorm, out=norm[s])
            _negative_power(norm[s], p.beta, part)
            np.multiply(data[s], part, out=out[s])

    def inplace(self, p: LrnParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def gradient(self, b: Builder, p: LrnParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_lrn_backward", [grads[0], ins[0], outs[1]], **vars(p)))]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"nsize": 3, "alpha": 0.5}, (2, 5, 3, 2)), ({"nsize": 5, "alpha": 0.1, "beta": 0.5}, (3, 4, 2, 2)),
            ({"nsize": 1, "alpha": 1.0, "knorm": 1.0}, (2, 3)), ({"nsize": 9, "alpha": 0.3}, (1, 3, 4))]
        return [Sample(params, (shape,)) for params, shape in cases]


@register
class _LrnBackward(_LrnOp):
    """grad norm^-beta - 2 beta alpha / nsize data (sum over the window of grad data norm^(-beta-1))."""

    name = "_lrn_backward"

    def inputs(self, p: LrnParams) -> tuple[str, ...]:
        return ("grad", "data", "tmp_norm")

    def algorithms(self, p: LrnParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", Workspace.bytes_for(*[_scratch(ins[0])] * 3)),)

    def inplace(self, p: LrnParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0), (2, 0))

    def compute(self, p: LrnParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, norm, out = (_view(a) for a in (*ins, outs[0]))
        kind = _scratch(TensorType(ins[0].shape, ins[0].dtype))
        scratch = [work.array(*kind) for _ in range(3)]
        for s in _parts(ins[0].shape, ins[0].dtype.itemsize):
            power, term, sums = (a[:s.stop - s.start] for a in scratch)
            _negative_power(norm[s], p.beta, power)
            np.multiply(grad[s], power, out=power)
            np.multiply(power, data[s], out=term)
            np.divide(term, norm[s], out=term)
            _window_sums(term, p.nsize, sums)
            np.multiply(sums, -2 * p.beta * p.alpha / p.nsize, out=sums)
            np.multiply(sums, data[s], out=sums)
            np.add(power, sums, out=out[s])
