"""InstanceNorm, by the statistics of each channel of each instance, and L2Normalization, by a norm.

Tensors are worked on by canonical chunks of the batch, seen as (images, channels, places).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, MXNetError, PartialShape, Shape, TensorType
from .chunks import chunk_rows, chunks
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]
View = tuple[int, int, int]


def _rows(view: View, itemsize: int) -> int:
    """Rows of the first axis of a view in a part; they depend on the length of a row alone."""
    return min(view[0], chunk_rows(view[1] * view[2] * itemsize))


def _parts(view: View, itemsize: int) -> Iterator[slice]:
    return chunks(view[0], max(1, _rows(view, itemsize)))


@dataclass(frozen=True)
class InstanceNormParams:
    """Parameters of InstanceNorm, and of its gradient."""

    eps: float = param(1e-3, "float", "added to the variance")


def _places(shape: Shape) -> View:
    return shape[0], shape[1], prod(shape[2:])


def _infer(data: PartialShape, vector: PartialShape) -> tuple[PartialShape, PartialShape, PartialShape]:
    """(data, vector of a number a channel, matrix of a number a channel of an instance)."""
    if data is None:
        return None, vector, None
    if len(data) < 3:
        raise ShapeError(f"InstanceNorm: data {format_shape(data)} must have a batch, channels and places")
    vector = merge_shapes((data[1],), vector)
    assert vector is not None
    return (data[0], vector[0], *data[2:]), vector, (data[0], vector[0])


@register
class InstanceNorm(Op):
    """gamma (data - mean) / sqrt(var + eps) + beta, by the biased statistics of each channel of an instance.

    The hidden outputs are the mean and 1 / sqrt(var + eps), of shape (N, C).
    """

    name = "InstanceNorm"
    Params = InstanceNormParams
    recompute = "cheap"

    def inputs(self, p: InstanceNormParams) -> tuple[str, ...]:
        return ("data", "gamma", "beta")

    def outputs(self, p: InstanceNormParams) -> tuple[str, ...]:
        return ("output", "mean", "inverse")

    def visible_outputs(self, p: InstanceNormParams) -> int:
        return 1

    def inplace(self, p: InstanceNormParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: InstanceNormParams, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1, 2))

    def infer_shape(self, p: InstanceNormParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        vector = merge_shapes(ins[1], ins[2])
        data, vector, rows = _infer(merge_shapes(ins[0], outs[0]), vector)
        rows = merge_shapes(rows, *outs[1:])
        return [data, vector, vector], [data, rows, rows]

    def compute(self, p: InstanceNormParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = _places(ins[0].shape)
        data, out = ins[0].reshape(view), outs[0].reshape(view)
        gamma, beta = (vector[None, :, None] for vector in ins[1:])
        rest = work.array((_rows(view, data.dtype.itemsize), view[1], 1), data.dtype)
        for s in _parts(view, data.dtype.itemsize):
            mean, inverse, left = outs[1][s][:, :, None], outs[2][s][:, :, None], rest[:s.stop - s.start]
            np.add.reduce(data[s], axis=2, keepdims=True, out=mean)
            np.divide(mean, max(view[2], 1), out=mean)
            np.subtract(data[s], mean, out=out[s])
            # A mean rounded to the dtype may be far off beside a small deviation: centre once more.
            np.add.reduce(out[s], axis=2, keepdims=True, out=left)
            np.divide(left, max(view[2], 1), out=left)
            np.subtract(out[s], left, out=out[s])
            np.add(mean, left, out=mean)
            np.einsum("ncl,ncl->nc", out[s], out[s], out=outs[2][s])
            np.divide(inverse, max(view[2], 1), out=inverse)
            np.add(inverse, p.eps, out=inverse)
            np.sqrt(inverse, out=inverse)
            np.reciprocal(inverse, out=inverse)
            np.multiply(inverse, gamma, out=left)
            np.multiply(out[s], left, out=out[s])
            np.add(out[s], beta, out=out[s])

    def algorithms(self, p: InstanceNormParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        view = _places(ins[0].shape)
        rows = _rows(view, ins[0].dtype.itemsize)
        return (Algorithm("chunks", Workspace.bytes_for(((rows, view[1], 1), ins[0].dtype))),)

    def cost(self, p: InstanceNormParams, ins: Types, outs: Types) -> Cost:
        return Cost(8.0 * ins[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def gradient(self, b: Builder, p: InstanceNormParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if any(g is not None for g in grads[1:]):
            raise MXNetError("InstanceNorm: its mean and inverse deviation have no gradient; block it with BlockGrad")
        if grads[0] is None or not any(wanted):
            return [None] * 3
        return b.node("_instance_norm_backward", [grads[0], ins[0], ins[1], outs[1], outs[2]], **vars(p))

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape, (shape[1],), (shape[1],)), rtol=1e-3)
                for params, shape in (({}, (2, 3, 4, 5)), ({"eps": 0.1}, (3, 2, 6)), ({}, (9, 1, 2, 2, 2)))]


@register
class _InstanceNormBackward(Op):
    """Gradients of data, gamma and beta from (grad, data, gamma, mean, inverse)."""

    name = "_instance_norm_backward"
    Params = InstanceNormParams

    def inputs(self, p: InstanceNormParams) -> tuple[str, ...]:
        return ("grad", "data", "gamma", "mean", "inverse")

    def outputs(self, p: InstanceNormParams) -> tuple[str, ...]:
        return ("data_grad", "gamma_grad", "beta_grad")

    def inplace(self, p: InstanceNormParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def infer_shape(self, p: InstanceNormParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        vector = merge_shapes(ins[2], *outs[1:])
        data, vector, rows = _infer(merge_shapes(*ins[:2], outs[0]), vector)
        return [data, data, vector, rows, rows], [data, vector, vector]

    def _scratch(self, shape: Shape, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        view = _places(shape)
        rows = _rows(view, dtype.itemsize)
        return [((rows, *view[1:]), dtype), *[((rows, view[1]), dtype)] * 2]

    def algorithms(self, p: InstanceNormParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", Workspace.bytes_for(*self._scratch(ins[0].shape, ins[0].dtype))),)

    def cost(self, p: InstanceNormParams, ins: Types, outs: Types) -> Cost:
        return Cost(12.0 * ins[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def compute(self, p: InstanceNormParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = _places(ins[0].shape)
        grad, data, out = (a.reshape(view) for a in (ins[0], ins[1], outs[0]))
        mean, inverse = ins[3], ins[4]
        scratch = [work.array(*each) for each in self._scratch(ins[0].shape, data.dtype)]
        for vector in outs[1:]:
            vector.fill(0)
        for s in _parts(view, data.dtype.itemsize):
            normal, sums, dots = (a[:s.stop - s.start] for a in scratch)
            np.subtract(data[s], mean[s][:, :, None], out=normal)
            np.multiply(normal, inverse[s][:, :, None], out=normal)
            np.add.reduce(grad[s], axis=2, out=sums)
            np.einsum("ncl,ncl->nc", grad[s], normal, out=dots)
            np.add(outs[1], np.add.reduce(dots, axis=0), out=outs[1])
            np.add(outs[2], np.add.reduce(sums, axis=0), out=outs[2])
            for total in (sums, dots):
                np.divide(total, max(view[2], 1), out=total)
            np.multiply(normal, dots[:, :, None], out=normal)
            np.subtract(grad[s], sums[:, :, None], out=out[s])
            np.subtract(out[s], normal, out=out[s])
            np.multiply(inverse[s], ins[2], out=sums)
            np.multiply(out[s], sums[:, :, None], out=out[s])


@dataclass(frozen=True)
class L2NormalizationParams:
    """Parameters of L2Normalization, and of its gradient."""

    eps: float = param(1e-10, "float", "added to the sum of squares")
    mode: str = param("instance", "str", "norm over all of an instance, over its channels, or over its places",
                      ("instance", "channel", "spatial"))


def norm_view(p: L2NormalizationParams, shape: Shape) -> View:
    """(rows, what a norm runs over, what is beside it)."""
    if p.mode == "instance":
        return shape[0], prod(shape[1:]), 1
    if p.mode == "channel":
        return _places(shape)
    return shape[0] * shape[1], prod(shape[2:]), 1


def _norm_shape(p: L2NormalizationParams, shape: PartialShape) -> PartialShape:
    if shape is None:
        return None
    if len(shape) < (2 if p.mode == "instance" else 3):
        raise ShapeError(f"L2Normalization: data {format_shape(shape)} has too few axes for mode {p.mode}")
    return {"instance": shape[:1], "channel": (shape[0], *shape[2:]), "spatial": shape[:2]}[p.mode]


@register
class L2Normalization(Op):
    """data / sqrt(sum of squares + eps), by instance, by place over its channels, or by channel over places.

    The hidden output is that root.
    """

    name = "L2Normalization"
    Params = L2NormalizationParams
    recompute = "cheap"

    def outputs(self, p: L2NormalizationParams) -> tuple[str, ...]:
        return ("output", "norm")

    def visible_outputs(self, p: L2NormalizationParams) -> int:
        return 1

    def inplace(self, p: L2NormalizationParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: L2NormalizationParams, ins: Types,
               outs: Types) -> Sliced | None:
        return None if p.mode == "spatial" else Sliced.every(ins, outs)

    def infer_shape(self, p: L2NormalizationParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], outs[0])
        return [data], [data, merge_shapes(outs[1], _norm_shape(p, data))]

    def compute(self, p: L2NormalizationParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = norm_view(p, ins[0].shape)
        data, out, norm = ins[0].reshape(view), outs[0].reshape(view), outs[1].reshape(view[0], view[2])
        for s in _parts(view, data.dtype.itemsize):
            np.einsum("rcl,rcl->rl", data[s], data[s], out=norm[s])
            np.add(norm[s], p.eps, out=norm[s])
            np.sqrt(norm[s], out=norm[s])
            np.divide(data[s], norm[s][:, None], out=out[s])

    def cost(self, p: L2NormalizationParams, ins: Types, outs: Types) -> Cost:
        return Cost(3.0 * ins[0].size, ins[0].nbytes, sum(t.nbytes for t in outs))

    def gradient(self, b: Builder, p: L2NormalizationParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[1] is not None:
            raise MXNetError("L2Normalization: its norm has no gradient; block it with BlockGrad")
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_l2_normalization_backward", [grads[0], *outs], **vars(p)))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"mode": mode, "eps": 1e-3}, ((2, 3, 4, 2),)) for mode in ("instance", "channel", "spatial")
                ] + [Sample({}, ((3, 4),))]


@register
class _L2NormalizationBackward(Op):
    """(grad - out * (sum of grad * out)) / norm from (grad, out, norm)."""

    name = "_l2_normalization_backward"
    Params = L2NormalizationParams
    recompute = "cheap"

    def inputs(self, p: L2NormalizationParams) -> tuple[str, ...]:
        return ("grad", "out", "norm")

    def outputs(self, p: L2NormalizationParams) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: L2NormalizationParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def sliced(self, p: L2NormalizationParams, ins: Types,
               outs: Types) -> Sliced | None:
        return None if p.mode == "spatial" else Sliced.every(ins, outs)

    def infer_shape(self, p: L2NormalizationParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(*ins[:2], outs[0])
        return [data, data, merge_shapes(ins[2], _norm_shape(p, data))], [data]

    def _scratch(self, p: L2NormalizationParams, shape: Shape, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        view = norm_view(p, shape)
        rows = _rows(view, dtype.itemsize)
        return [((rows, *view[1:]), dtype), ((rows, view[2]), dtype)]

    def algorithms(self, p: L2NormalizationParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", Workspace.bytes_for(*self._scratch(p, ins[0].shape, ins[0].dtype))),)

    def compute(self, p: L2NormalizationParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = norm_view(p, ins[0].shape)
        grad, y, out = (a.reshape(view) for a in (*ins[:2], outs[0]))
        norm = ins[2].reshape(view[0], 1, view[2])
        scratch = [work.array(*each) for each in self._scratch(p, ins[0].shape, grad.dtype)]
        for s in _parts(view, grad.dtype.itemsize):
            shift, dots = (a[:s.stop - s.start] for a in scratch)
            np.einsum("rcl,rcl->rl", grad[s], y[s], out=dots)
            np.multiply(y[s], dots[:, None], out=shift)
            np.subtract(grad[s], shift, out=out[s])
            np.divide(out[s], norm[s], out=out[s])
