"""Convolution over one to three spatial axes, and its gradients, as products of column matrices."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Cost, PartialShape, Shape, TensorType
from .column_products import TapWeights, Weights, convolve, scatter
from .columns import Columns, convolve_sizes, scatter_sizes
from .conv_geometry import ConvolutionParams, Geometry, geometry, spatial_params
from .elemwise import is_sum
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .registry import get_op, register
from .tiles import Tile, chunk_length, most_scratch
from .weighted import Weighted
from .window import check_rank

Types = Sequence[TensorType]


def _arranged(view: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """A weight view with taps last as matrices (first taps, groups, m, k): copied when no view can be."""
    shape = (*view.shape[:3], view.shape[3] * view.shape[4])
    if view.shape[0] == 1:
        return view.reshape(shape)
    matrices = scratch[:view.size].reshape(view.shape)
    np.copyto(matrices, view)
    return matrices.reshape(shape)


def take(work: Workspace, sizes: Sequence[int], dtype: np.dtype) -> list[np.ndarray]:
    """Scratch arrays of so many elements each from a workspace of `scratch_bytes`."""
    return [work.array((size,), dtype) for size in sizes]


def scratch_bytes(sizes: Sequence[int], dtype: np.dtype) -> int:
    """Workspace bytes of scratch arrays of so many elements each."""
    return Workspace.bytes_for(*(((size,), dtype) for size in sizes))


def algorithms_of(name: str, sizes: Sequence[int], lean: Sequence[int], moved: int, dtype: np.dtype,
                tiles: Sequence[Tile]) -> tuple[Algorithm, ...]:
    """The algorithm that has room for all taps of the first axis at once, and the `lean` one, which has it for one at a
    time and moves so many elements more. Both multiply the same matrices, so they give the same bits."""
    full, least, length = scratch_bytes(sizes, dtype), scratch_bytes(lean, dtype), chunk_length(tiles)
    if least >= full:
        return (Algorithm(name, full, chunk_rows=length),)
    return (Algorithm(name, full, chunk_rows=length),
            Algorithm(f"{name}-lean", least, extra_bytes=moved * dtype.itemsize, chunk_rows=length))


@register
class Convolution(Weighted):
    """Cross-correlation of data (N, C, *spatial) with weight (num_filter, C / num_group, *kernel), plus bias.

    Output (N, num_filter, *out) with out = floor((x + 2 pad - dilate (kernel - 1) - 1) / stride) + 1 an axis.
    """

    name = "Convolution"
    stem = "_convolution"
    Params = ConvolutionParams

    def infer_shape(self, p, ins, outs):
        axes = len(p.kernel)
        data, out = ins[0], merge_shapes(outs[0], (None, p.num_filter, *(None,) * axes))
        check_rank(data, axes, p.layout)
        data = merge_shapes(data or (None,) * (axes + 2), (out[0], *(None,) * (axes + 1)))
        stride, dilate, pad = spatial_params(p)
        _check_groups(p, data)
        spatial = tuple(None if x is None else _out_length(p, data, a, x, stride[a], dilate[a], pad[a])
                        for a, x in enumerate(data[2:]))
        out = merge_shapes(out, (data[0], p.num_filter, *spatial))
        # Where the window moves by 1, one length of the data gives the output's.
        data = merge_shapes(data, (None, None, *(
            None if y is None or stride[a] != 1 else y + dilate[a] * (p.kernel[a] - 1) - 2 * pad[a]
            for a, y in enumerate(out[2:]))))
        depth = None if data[1] is None else data[1] // p.num_group
        weight = _merge("weight", ins[1], (p.num_filter, depth, *p.kernel), data)
        if weight[1] is not None:
            data = merge_shapes(data, (None, weight[1] * p.num_group, *(None,) * axes))
        bias = [_merge("bias", given, (p.num_filter,), data) for given in ins[2:]]
        return [data, weight, *bias], [out]

    def weight_rows(self, p: ConvolutionParams) -> int | None:
        return 1

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, weight, *bias = ins
        g = geometry(p, data, outs[0])
        lean = work.nbytes < scratch_bytes(self._sizes(g), data.dtype)
        scratch = take(work, self._sizes(g, lean), data.dtype)
        view = g.weight_by_tap(weight)
        weights = TapWeights(view, scratch[4]) if lean else _arranged(view, scratch[4])
        convolve(g.tiles(), data, weights, bias[0] if bias else None, outs[0], scratch, act_type=self.act_type(p))

    def _sizes(self, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        sizes = most_scratch(g.tiles(), g.batch, lambda c, n: convolve_sizes(c, n, g.filters))
        return *sizes, g.arranged_size(lean) * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[0], outs[0])
        return algorithms_of("rows" if g.rows else "columns", self._sizes(g), self._sizes(g, lean=True),
                           g.rearranged_size(g.tiles()), ins[0].dtype, g.tiles())

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        flops = geometry(p, ins[0], outs[0]).flops() + outs[0].size * (not p.no_bias)
        return Cost(flops, sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1, 2))

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


class ConvolutionBackward(Op):
    """What the gradients by data and by weight share; of input 2 only the shape is read."""

    Params = ConvolutionParams
    by_data: ClassVar[bool] = False
    """Whether the gradient is by data, and input 1 the weight; else input 1 is data."""

    def infer_shape(self, p, ins, outs):
        like = merge_shapes(*ins[2:], outs[0])
        forward = [like, ins[1]] if self.by_data else [ins[1], like]
        forward, (grad,) = get_op(Convolution.name).infer_shape(p, forward, [ins[0]])
        like, other = forward if self.by_data else forward[::-1]
        return [grad, other, *[like] * len(ins[2:])], [like]

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        data = ins[2] if self.by_data else ins[1]
        return Cost(geometry(p, data, ins[0]).flops(), ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)


@dataclass(frozen=True)
class BackwardDataParams(ConvolutionParams):
    """Parameters of the gradient by data."""

    addend: bool = param(False, "bool", "whether the gradient is added to another one")


@register
class _ConvolutionBackwardData(ConvolutionBackward):
    """Gradient by data, from (out_grad, weight, data), added to another gradient of data where there is one.

    Where the stride is one it is a convolution with the turned weight; else products are added back to the
    pixels that the column matrix was copied from.
    """

    name = "_convolution_backward_data"
    Params = BackwardDataParams
    by_data = True

    def inputs(self, p: BackwardDataParams) -> tuple[str, ...]:
        return ("out_grad", "weight", "data", *(("addend",) if p.addend else ()))

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
        g = geometry(p, data, grad)
        lean = work.nbytes < scratch_bytes(self._sizes(p, g), grad.dtype)
        scratch = take(work, self._sizes(p, g, lean), grad.dtype)
        if g.turned:
            weights = self._turned(g, weight, scratch[4], lean)
            convolve(g.adjoint_tiles(), grad, weights, None, outs[0], scratch, addend)
        else:
            view = g.weight_by_tap(weight)
            weights = TapWeights(view, scratch[4], swapped=True) if lean \
                else _arranged(view, scratch[4]).swapaxes(2, 3)
            scatter(g.adjoint_tiles(), grad, weights, outs[0], scratch, addend)

    def _turned(self, g: Geometry, weight: np.ndarray, scratch: np.ndarray, lean: bool) -> Weights:
        view = g.turned_weight(weight)
        if lean:
            return TapWeights(view, scratch)
        weights = scratch.reshape(g.p.kernel[0], g.groups, g.channels, g.filters * prod(g.p.kernel[1:]))
        np.copyto(weights.reshape(view.shape), view)
        return weights

    def _sizes(self, p: BackwardDataParams, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        def of(c: Columns, n: int) -> tuple[int, ...]:
            return convolve_sizes(c, n, g.channels, p.addend) if g.turned else scatter_sizes(c, n, g.filters, p.addend)
        return *most_scratch(g.adjoint_tiles(), g.batch, of), g.arranged_size(lean) * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[2], ins[0])
        return algorithms_of("turned" if g.turned else "scatter", self._sizes(p, g), self._sizes(p, g, lean=True),
                           g.rearranged_size(g.adjoint_tiles()), ins[0].dtype, g.adjoint_tiles())

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1,))

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
