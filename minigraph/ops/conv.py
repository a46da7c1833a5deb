"""Convolution over one to three spatial axes, and its gradients, as products of column matrices."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .chunks import chunk_rows, chunks
from .columns import (
    Columns,
    Filler,
    column_layout,
    convolve,
    convolve_sizes,
    grad_matrix,
    scatter,
    scatter_sizes,
)
from .elemwise import is_sum
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import register
from .window import LAYOUTS, check_rank, per_axis

LIGHT_WEIGHT = 20
"""Weight elements a channel, in output pixels, up to which copying the weight ("rows") pays."""
Types = Sequence[TensorType]


@dataclass(frozen=True)
class ConvolutionParams:
    """Parameters of Convolution, and of its gradients."""

    kernel: tuple[int, ...] = param(REQUIRED, "shape", "kernel size, (w,), (h, w) or (d, h, w)")
    num_filter: int = param(REQUIRED, "int", "number of output channels")
    stride: tuple[int, ...] = param((), "shape", "step of the window an axis; 1 when not given")
    dilate: tuple[int, ...] = param((), "shape", "distance of kernel taps an axis; 1 when not given")
    pad: tuple[int, ...] = param((), "shape", "zeros on either side of an axis; 0 when not given")
    num_group: int = param(1, "int", "number of channel groups that are convolved apart")
    no_bias: bool = param(False, "bool", "whether there is no bias")
    layout: str | None = param(None, "str", "layout of the data; channels come second", LAYOUTS)


class _Geometry:
    """The sizes of one convolution, and which form of column matrices its three products take."""

    def __init__(self, p: ConvolutionParams, data: Shape, out: Shape, itemsize: int) -> None:
        self.p, self.batch, self.itemsize = p, data[0], itemsize
        self.groups = p.num_group
        self.channels, self.filters = data[1] // p.num_group, p.num_filter // p.num_group
        self.spatial, self.out = data[2:], out[2:]
        self.stride, self.dilate, self.pad = _spatial_params(p)
        # "rows" copies the weight; where that is large, it costs more than it saves.
        self.rows = p.kernel[0] > 1 and prod(p.kernel) * self.filters <= LIGHT_WEIGHT * prod(self.out)
        self.turned = self.rows and prod(self.stride) == 1

    def columns(self) -> Columns:
        """Column matrices of the data."""
        return column_layout(self.groups, self.channels, self.spatial, self.out, self.p.kernel, self.stride,
                             self.dilate, self.pad, self.rows, self.itemsize)

    def turned_columns(self) -> Columns:
        """Column matrices of the output gradient, which the turned weight multiplies to the data gradient."""
        kernel, dilate = self.p.kernel, self.dilate
        pad = tuple(d * (k - 1) - p for d, k, p in zip(dilate, kernel, self.pad, strict=True))
        return column_layout(self.groups, self.filters, self.out, self.spatial, kernel, self.stride, dilate,
                             pad, True, self.itemsize)

    @property
    def weight_size(self) -> int:
        return self.p.num_filter * self.channels * prod(self.p.kernel)

    def weight_by_tap(self, weight: np.ndarray) -> np.ndarray:
        """A view (first taps, groups, filters, channels, other taps); "columns" has one first tap."""
        first = self.p.kernel[0] if self.rows else 1
        view = weight.reshape(self.groups, self.filters, self.channels, first, -1)
        return view.transpose(3, 0, 1, 2, 4)

    def turned_weight(self, weight: np.ndarray) -> np.ndarray:
        """A view (first taps, groups, channels, filters, other taps) with all taps in reverse order."""
        view = weight.reshape(self.groups, self.filters, self.channels, self.p.kernel[0], -1)
        return view[..., ::-1, ::-1].transpose(3, 0, 2, 1, 4)

    def flops(self) -> float:
        return 2.0 * self.batch * prod(self.out) * self.weight_size


def _geometry(p: ConvolutionParams, data: Any, out: Any) -> _Geometry:
    return _Geometry(p, data.shape, out.shape, out.dtype.itemsize)


def _arranged(view: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """A weight view with taps last as matrices (first taps, groups, m, k): copied when no view can be."""
    shape = (*view.shape[:3], view.shape[3] * view.shape[4])
    if view.shape[0] == 1:
        return view.reshape(shape)
    matrices = scratch[:view.size].reshape(view.shape)
    np.copyto(matrices, view)
    return matrices.reshape(shape)


def _take(work: Workspace, sizes: Sequence[int], dtype: np.dtype) -> list[np.ndarray]:
    return [work.array((size,), dtype) for size in sizes]


def _algorithm(name: str, sizes: Sequence[int], dtype: np.dtype) -> tuple[Algorithm, ...]:
    return (Algorithm(name, Workspace.bytes_for(*(((size,), dtype) for size in sizes))),)


def _spatial_params(p: ConvolutionParams) -> tuple[Shape, Shape, Shape]:
    return (per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.dilate, p.kernel, 1, "dilate"),
            per_axis(p.pad, p.kernel, 0, "pad"))


@register
class Convolution(Op):
    """Cross-correlation of data (N, C, *spatial) with weight (num_filter, C / num_group, *kernel), plus bias.

    Output (N, num_filter, *out) with out = floor((x + 2 pad - dilate (kernel - 1) - 1) / stride) + 1 an axis.
    """

    name = "Convolution"
    Params = ConvolutionParams

    def inputs(self, p: ConvolutionParams) -> tuple[str, ...]:
        return ("data", "weight") if p.no_bias else ("data", "weight", "bias")

    def infer_shape(self, p, ins, outs):
        axes = len(p.kernel)
        data, out = ins[0], merge_shapes(outs[0], (None, p.num_filter, *(None,) * axes))
        check_rank(data, axes, p.layout)
        data = merge_shapes(data or (None,) * (axes + 2), (out[0], *(None,) * (axes + 1)))
        stride, dilate, pad = _spatial_params(p)
        _check_groups(p, data)
        spatial = tuple(None if x is None else _out_length(p, data, a, x, stride[a], dilate[a], pad[a])
                        for a, x in enumerate(data[2:]))
        out = merge_shapes(out, (data[0], p.num_filter, *spatial))
        depth = None if data[1] is None else data[1] // p.num_group
        weight = _merge("weight", ins[1], (p.num_filter, depth, *p.kernel), data)
        if weight[1] is not None:
            data = merge_shapes(data, (None, weight[1] * p.num_group, *(None,) * axes))
        bias = [_merge("bias", given, (p.num_filter,), data) for given in ins[2:]]
        return [data, weight, *bias], [out]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        result: list[Entry | None] = [None] * len(ins)
        if grads[0] is None:
            return result
        if not p.no_bias and wanted[2]:
            result[2], = b.node("_convolution_backward_bias", [grads[0]])
        if wanted[1]:
            result[1], = b.node("_convolution_backward_weight", [grads[0], ins[0], ins[1]], **vars(p))
        if wanted[0]:
            result[0], = b.node("_convolution_backward_data", [grads[0], ins[1], ins[0]], **vars(p))
        return result

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, weight, *bias = ins
        g = _geometry(p, data, outs[0])
        scratch = _take(work, self._sizes(g), data.dtype)
        weights = _arranged(g.weight_by_tap(weight), scratch[4])
        convolve(g.columns(), data, weights, bias[0] if bias else None, outs[0], scratch)

    def _sizes(self, g: _Geometry) -> tuple[int, ...]:
        return *convolve_sizes(g.columns(), g.batch, g.filters), g.weight_size * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = _geometry(p, ins[0], outs[0])
        return _algorithm("rows" if g.rows else "columns", self._sizes(g), ins[0].dtype)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        flops = _geometry(p, ins[0], outs[0]).flops() + outs[0].size * (not p.no_bias)
        return Cost(flops, sum(t.nbytes for t in ins), outs[0].nbytes)

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,)

    def samples(self) -> Sequence[Sample]:
        def sample(data: Shape, **params: Any) -> Sample:
            weight = (params["num_filter"], data[1] // params.get("num_group", 1), *params["kernel"])
            bias = () if params.get("no_bias") else ((params["num_filter"],),)
            return Sample(params, (data, weight, *bias))
        return (sample((2, 3, 5, 6), kernel=(3, 3), num_filter=4, pad=(1, 1)),
                sample((3, 4, 7, 5), kernel=(3, 2), num_filter=6, stride=(2, 1), num_group=2, no_bias=True),
                sample((9, 2, 4, 4), kernel=(1, 1), num_filter=3),
                sample((2, 4, 5, 5), kernel=(1, 1), num_filter=2, stride=(2, 2), no_bias=True),
                sample((2, 2, 9, 8), kernel=(3, 3), num_filter=2, dilate=(2, 2), pad=(2, 1), stride=(1, 2)),
                sample((1, 4, 6, 6), kernel=(3, 3), num_filter=4, num_group=4, pad=(2, 2)),
                sample((1, 2, 17, 18), kernel=(2, 2), num_filter=2, pad=(3, 0)),
                sample((2, 3, 1, 2), kernel=(1, 2), num_filter=40),
                sample((3, 2, 11), kernel=(4,), num_filter=3, stride=(3,), pad=(2,)),
                sample((2, 2, 4, 5, 3), kernel=(2, 3, 2), num_filter=3, stride=(1, 2, 1), pad=(0, 1, 1)))


def _check_groups(p: ConvolutionParams, data: PartialShape) -> None:
    if p.num_filter < 1 or p.num_group < 1 or p.num_filter % p.num_group:
        raise ShapeError(f"num_filter {p.num_filter} cannot be parted into num_group {p.num_group} groups")
    if data is not None and data[1] is not None and data[1] % p.num_group:
        raise ShapeError(f"data {format_shape(data)} has {data[1]} channels, which cannot be parted into "
                         f"num_group {p.num_group} groups")


def _out_length(p: ConvolutionParams, data: PartialShape, axis: int, length: int, stride: int, dilate: int,
                pad: int) -> int:
    reach = dilate * (p.kernel[axis] - 1) + 1
    if p.kernel[axis] < 1 or length + 2 * pad < reach:
        raise ShapeError(f"kernel {p.kernel} reaches over {reach} elements of spatial axis {axis} of data "
                         f"{format_shape(data)}, which with padding has {length + 2 * pad}; pad more or take "
                         f"a smaller kernel")
    return (length + 2 * pad - reach) // stride + 1


def _merge(what: str, given: PartialShape, expected: PartialShape, data: PartialShape) -> Any:
    try:
        return merge_shapes(given, expected)
    except ShapeError as error:
        raise ShapeError(f"{what} has shape {format_shape(given)}, but data {format_shape(data)} and the "
                         f"parameters ask for {format_shape(expected)}") from error


class _ConvolutionBackward(Op):
    """What the gradients by data and by weight share; of input 2 only the shape is read."""

    Params = ConvolutionParams

    def infer_shape(self, p, ins, outs):
        shape = merge_shapes(ins[2], outs[0])
        return [ins[0], ins[1], shape], [shape]

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        data = ins[2] if self.name == "_convolution_backward_data" else ins[1]
        return Cost(_geometry(p, data, ins[0]).flops(), ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)


@dataclass(frozen=True)
class BackwardDataParams(ConvolutionParams):
    """Parameters of the gradient by data."""

    addend: bool = param(False, "bool", "whether the gradient is added to another one")


@register
class _ConvolutionBackwardData(_ConvolutionBackward):
    """Gradient by data, from (out_grad, weight, data), added to another gradient of data where there is one.

    Where the stride is one it is a convolution with the turned weight; else products are added back to the
    pixels that the column matrix was copied from.
    """

    name = "_convolution_backward_data"
    Params = BackwardDataParams

    def inputs(self, p: BackwardDataParams) -> tuple[str, ...]:
        return ("out_grad", "weight", "data", *(("addend",) if p.addend else ()))

    def infer_shape(self, p, ins, outs):
        shape = merge_shapes(*ins[2:], outs[0])
        return [*ins[:2], *[shape] * len(ins[2:])], [shape]

    def inplace(self, p: BackwardDataParams) -> tuple[tuple[int, int], ...]:
        return ((3, 0),) if p.addend else ()

    def absorb(self, p: BackwardDataParams, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return (self.name, replace(p, addend=True)) if is_sum(consumer) and not p.addend else None

    def cost(self, p: BackwardDataParams, ins: Types, outs: Types) -> Cost:
        alone = super().cost(p, ins, outs)
        return replace(alone, read_bytes=alone.read_bytes + outs[0].nbytes * p.addend)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, weight, data, *rest = ins
        addend = rest[0] if p.addend else None
        g = _geometry(p, data, grad)
        scratch = _take(work, self._sizes(p, g), grad.dtype)
        if g.turned:
            weights = scratch[4].reshape(p.kernel[0], g.groups, g.channels, -1)
            view = g.turned_weight(weight)
            np.copyto(weights.reshape(view.shape), view)
            convolve(g.turned_columns(), grad, weights, None, outs[0], scratch, addend)
        else:
            weights = _arranged(g.weight_by_tap(weight), scratch[4])
            scatter(g.columns(), grad, weights.swapaxes(2, 3), outs[0], scratch, addend)

    def _sizes(self, p: BackwardDataParams, g: _Geometry) -> tuple[int, ...]:
        if g.turned:
            return *convolve_sizes(g.turned_columns(), g.batch, g.channels, p.addend), g.weight_size
        return *scatter_sizes(g.columns(), g.batch, g.filters, p.addend), g.weight_size * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = _geometry(p, ins[2], ins[0])
        return _algorithm("turned" if g.turned else "scatter", self._sizes(p, g), ins[0].dtype)

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,)

    def samples(self) -> Sequence[Sample]:
        def sample(data: Shape, out: Shape, **p: Any) -> Sample:
            weight = (p["num_filter"], data[1] // p.get("num_group", 1), *p["kernel"])
            return Sample({**p, "addend": True}, (out, weight, data, data), differentiable=False)
        return (sample((2, 3, 5, 6), (2, 4, 5, 6), kernel=(3, 3), num_filter=4, pad=(1, 1)),
                sample((3, 4, 7, 5), (3, 6, 3, 4), kernel=(3, 2), num_filter=6, stride=(2, 1), num_group=2),
                sample((9, 2, 4, 4), (9, 3, 4, 4), kernel=(1, 1), num_filter=3),
                sample((2, 2, 17, 18), (2, 2, 17, 18), kernel=(1, 1), num_filter=2),
                sample((1, 2, 17, 18), (1, 2, 22, 17), kernel=(2, 2), num_filter=2, pad=(3, 0)),
                sample((2, 4, 5, 5), (2, 2, 3, 3), kernel=(1, 1), num_filter=2, stride=(2, 2)))



@register
class _ConvolutionBackwardWeight(_ConvolutionBackward):
    """Gradient by weight, from (out_grad, data, weight): a product a chunk, added in ascending order."""

    name = "_convolution_backward_weight"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "weight")

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, _ = ins
        g = _geometry(p, data, grad)
        c = g.columns()
        images, matrix, grads, sums, term = _take(work, self._sizes(g), grad.dtype)
        fill = Filler(c, images, matrix)
        # BLAS is faster with the columns on the left; turning a large weight at the end would cost more.
        shape = (len(c.starts), g.groups, *((c.depth, g.filters) if g.rows else (g.filters, c.depth)))
        total = (sums if g.rows else outs[0]).reshape(shape)
        total.fill(0)
        for s in chunks(len(data), c.length):
            columns, rows = fill(data[s]), grad_matrix(c, grad[s], grads)
            for tap in range(len(c.starts)):
                one = total[tap] if s.start == 0 else term.reshape(shape[1:])
                block = c.block(columns, tap)
                left, right = (block, rows) if g.rows else (rows, block)
                np.matmul(left, right.swapaxes(1, 2), out=one)
                if s.start:
                    np.add(total[tap], one, out=total[tap])
        if g.rows:
            into = np.moveaxis(g.weight_by_tap(outs[0]), 2, -1)
            np.copyto(into, total.reshape(into.shape))

    def _sizes(self, g: _Geometry) -> tuple[int, ...]:
        c = g.columns()
        n = min(c.length, g.batch)
        return (*c.sizes(g.batch), g.p.num_filter * c.pixels * n * (n > 1), g.weight_size * g.rows,
                g.weight_size // len(c.starts) * (g.batch > c.length))

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = _geometry(p, ins[1], ins[0])
        return _algorithm("rows" if g.rows else "columns", self._sizes(g), ins[0].dtype)


@register
class _ConvolutionBackwardBias(Op):
    """Gradient by bias: the sum of out_grad (N, C, *spatial) over all axes but the channels'."""

    name = "_convolution_backward_bias"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad",)

    def infer_shape(self, p, ins, outs):
        channels = merge_shapes(outs[0], None if ins[0] is None else (ins[0][1],))
        return list(ins), [channels]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, (out,) = ins[0], outs
        out.fill(0)
        pixels = prod(grad.shape[2:])
        for s in chunks(len(grad), chunk_rows(prod(grad.shape[1:]) * grad.dtype.itemsize)):
            out += np.add.reduce(grad[s].reshape(-1, grad.shape[1], pixels), axis=(0, 2))

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size), ins[0].nbytes, outs[0].nbytes)
