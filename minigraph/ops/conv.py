"""Convolution over one to three spatial axes, and its gradients, as products of column matrices."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .activation import FOLLOWING, activation_of
from .chunks import chunk_rows, chunks
from .columns import (
    Columns,
    Filler,
    TapWeights,
    Weights,
    convolve,
    convolve_sizes,
    grad_matrix,
    scatter,
    scatter_sizes,
)
from .conv_geometry import ConvolutionParams, Geometry, geometry, spatial_params
from .elemwise import is_sum
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .registry import get_op, register
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


def _take(work: Workspace, sizes: Sequence[int], dtype: np.dtype) -> list[np.ndarray]:
    return [work.array((size,), dtype) for size in sizes]


def _bytes(sizes: Sequence[int], dtype: np.dtype) -> int:
    return Workspace.bytes_for(*(((size,), dtype) for size in sizes))


def _algorithms(name: str, sizes: Sequence[int], lean: Sequence[int], moved: int, dtype: np.dtype, c: Columns,
                ) -> tuple[Algorithm, ...]:
    """The algorithm that has room for all taps of the first axis at once, and the `lean` one, which has it for one at a
    time and moves so many elements more. Both multiply the same matrices, so they give the same bits."""
    full, least = _bytes(sizes, dtype), _bytes(lean, dtype)
    if least >= full:
        return (Algorithm(name, full, chunk_rows=c.length),)
    return (Algorithm(name, full, chunk_rows=c.length),
            Algorithm(f"{name}-lean", least, extra_bytes=moved * dtype.itemsize, chunk_rows=c.length))


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
        stride, dilate, pad = spatial_params(p)
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

    def weight_rows(self, p: ConvolutionParams) -> int | None:
        return 1

    def absorb(self, p: ConvolutionParams, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        kind, name = activation_of(consumer, q), "_convolution_activated"
        return (name, get_op(name).Params(**vars(p), act_type=kind)) if kind in FOLLOWING else None

    def act_type(self, p: ConvolutionParams) -> str | None:
        """The activation of the output."""
        return None

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
        g = geometry(p, data, outs[0])
        lean = work.nbytes < _bytes(self._sizes(g), data.dtype)
        scratch = _take(work, self._sizes(g, lean), data.dtype)
        view = g.weight_by_tap(weight)
        weights = TapWeights(view, scratch[4]) if lean else _arranged(view, scratch[4])
        convolve(g.columns(), data, weights, bias[0] if bias else None, outs[0], scratch, act_type=self.act_type(p))

    def _sizes(self, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        return *convolve_sizes(g.columns(), g.batch, g.filters), g.arranged_size(lean) * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[0], outs[0])
        return _algorithms("rows" if g.rows else "columns", self._sizes(g), self._sizes(g, lean=True),
                           g.rearranged_size(g.columns()), ins[0].dtype, g.columns())

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
        return Cost(geometry(p, data, ins[0]).flops(), ins[0].nbytes + ins[1].nbytes, outs[0].nbytes)


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
        g = geometry(p, data, grad)
        lean = work.nbytes < _bytes(self._sizes(p, g), grad.dtype)
        scratch = _take(work, self._sizes(p, g, lean), grad.dtype)
        if g.turned:
            convolve(g.turned_columns(), grad, self._turned(g, weight, scratch[4], lean), None, outs[0], scratch,
                     addend)
        else:
            view = g.weight_by_tap(weight)
            weights = TapWeights(view, scratch[4], swapped=True) if lean \
                else _arranged(view, scratch[4]).swapaxes(2, 3)
            scatter(g.columns(), grad, weights, outs[0], scratch, addend)

    def _turned(self, g: Geometry, weight: np.ndarray, scratch: np.ndarray, lean: bool) -> Weights:
        view = g.turned_weight(weight)
        if lean:
            return TapWeights(view, scratch)
        weights = scratch.reshape(g.p.kernel[0], g.groups, g.channels, -1)
        np.copyto(weights.reshape(view.shape), view)
        return weights

    def _sizes(self, p: BackwardDataParams, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        if g.turned:
            return (*convolve_sizes(g.turned_columns(), g.batch, g.channels, p.addend), g.arranged_size(lean))
        return *scatter_sizes(g.columns(), g.batch, g.filters, p.addend), g.arranged_size(lean) * g.rows

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[2], ins[0])
        c = g.turned_columns() if g.turned else g.columns()
        return _algorithms("turned" if g.turned else "scatter", self._sizes(p, g), self._sizes(p, g, lean=True),
                           g.rearranged_size(c), ins[0].dtype, c)

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



@register
class _ConvolutionBackwardWeight(_ConvolutionBackward):
    """Gradient by weight, from (out_grad, data, weight): a product a chunk, added in ascending order."""

    name = "_convolution_backward_weight"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "weight")

    resumes: ClassVar[bool] = False
    """Whether the sum goes on from a running one, the last input."""

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, _, *running = ins
        g = geometry(p, data, grad)
        c = g.columns()
        lean = work.nbytes < _bytes(self._sizes(g), grad.dtype)
        *scratch, sums, term = _take(work, self._sizes(g, lean), grad.dtype)
        # BLAS is faster with the columns on the left; turning a large weight at the end would cost more.
        shape = (len(c.starts), g.groups, *((c.depth, g.filters) if g.rows else (g.filters, c.depth)))
        begin = running[0] if running else None
        if not g.rows:
            total = outs[0].reshape(shape)
            _begin(total, None if begin is None else begin.reshape(shape))
            _add_taps(g, data, grad, range(len(c.starts)), total, term, scratch, begin is not None)
            return
        into = np.moveaxis(g.weight_by_tap(outs[0]), 2, -1)
        before = None if begin is None else np.moveaxis(g.weight_by_tap(begin), 2, -1)
        parts = [range(tap, tap + 1) for tap in range(len(c.starts))] if lean else [range(len(c.starts))]
        for taps in parts:
            total, cut = sums.reshape(len(taps), *shape[1:]), slice(taps.start, taps.stop)
            _begin(total.reshape(len(taps), *into.shape[1:]), None if before is None else before[cut])
            _add_taps(g, data, grad, taps, total, term, scratch, begin is not None)
            np.copyto(into[cut], total.reshape(len(taps), *into.shape[1:]))

    def _sizes(self, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        c = g.columns()
        n = min(c.length, g.batch)
        return (*c.sizes(g.batch), g.p.num_filter * c.pixels * n * (n > 1), g.arranged_size(lean) * g.rows,
                g.weight_size // len(c.starts) * (self.resumes or g.batch > c.length))

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[1], ins[0])
        c = g.columns()
        filled = g.batch * (2 * c.groups * c.depth * c.width + 2 * (p.num_filter * c.pixels + c.image_size))
        return _algorithms("rows" if g.rows else "columns", self._sizes(g), self._sizes(g, lean=True),
                           (len(c.starts) - 1) * filled, ins[0].dtype, c)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.sums(ins, outs, "_convolution_backward_weight_resume", whole=(2,))


def _begin(total: np.ndarray, running: np.ndarray | None) -> None:
    """Write to `total` what a sum begins with."""
    if running is None:
        total.fill(0)
    else:
        np.copyto(total, running)


def _add_taps(g: Geometry, data: np.ndarray, grad: np.ndarray, taps: range, total: np.ndarray, term: np.ndarray,
              scratch: Sequence[np.ndarray], resumes: bool) -> None:
    """Add the products of some taps of the first axis to `total` (taps, groups, ...), each summed over the chunks; the
    first one takes its place unless it `resumes`."""
    c = g.columns()
    images, matrix, grads = scratch
    fill = Filler(c, images, matrix)
    for s in chunks(len(data), c.length):
        columns, rows = fill(data[s]), grad_matrix(c, grad[s], grads)
        is_first = s.start == 0 and not resumes
        for k, tap in enumerate(taps):
            one = total[k] if is_first else term.reshape(total.shape[1:])
            block = c.block(columns, tap)
            left, right = (block, rows) if g.rows else (rows, block)
            np.matmul(left, right.swapaxes(1, 2), out=one)
            if not is_first:
                np.add(total[k], one, out=total[k])


@register
class _ConvolutionBackwardWeightResume(_ConvolutionBackwardWeight):
    """The running sum of a gradient by weight, and that of a further slice."""

    name = "_convolution_backward_weight_resume"
    resumes = True

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "weight", "running")

    def infer_shape(self, p, ins, outs):
        shape = merge_shapes(*ins[2:], outs[0])
        return [*ins[:2], shape, shape], [shape]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((3, 0),)

    def samples(self) -> Sequence[Sample]:
        def sample(grad: Shape, data: Shape, weight: Shape, **params: Any) -> Sample:
            return Sample({"kernel": weight[2:], "num_filter": weight[0], **params}, (grad, data, weight, weight),
                          differentiable=False)
        return (sample((3, 4, 5, 6), (3, 3, 5, 6), (4, 3, 3, 3), pad=(1, 1)),
                sample((9, 2, 3, 3), (9, 4, 3, 3), (2, 2, 1, 1), num_group=2))


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
        self._begin(ins, out)
        pixels = prod(grad.shape[2:])
        for s in chunks(len(grad), self._rows(grad)):
            out += np.add.reduce(grad[s].reshape(-1, grad.shape[1], pixels), axis=(0, 2))

    def _begin(self, ins: Arrays, out: np.ndarray) -> None:
        out.fill(0)

    @staticmethod
    def _rows(grad: Any) -> int:
        return chunk_rows(prod(grad.shape[1:]) * grad.dtype.itemsize)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", chunk_rows=self._rows(ins[0])),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size), ins[0].nbytes, outs[0].nbytes)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.sums(ins, outs, "_convolution_backward_bias_resume")


@register
class _ConvolutionBackwardBiasResume(_ConvolutionBackwardBias):
    """The running sum of a gradient by bias, and that of a further slice."""

    name = "_convolution_backward_bias_resume"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "running")

    def infer_shape(self, p, ins, outs):
        channels = merge_shapes(ins[1], outs[0], None if ins[0] is None else (ins[0][1],))
        return [ins[0], channels], [channels]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def _begin(self, ins: Arrays, out: np.ndarray) -> None:
        np.copyto(out, ins[1])

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3, 2, 4, 5), (2,)), differentiable=False),)
