"""Deconvolution: the adjoint of a convolution, computed by the convolution's own gradients."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .conv import BackwardDataParams
from .conv_geometry import ConvolutionParams
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import get_op, register
from .window import LAYOUTS, check_rank, per_axis

Types = Sequence[TensorType]


@dataclass(frozen=True)
class DeconvolutionParams:
    """Parameters of Deconvolution."""

    kernel: tuple[int, ...] = param(REQUIRED, "shape", "kernel size, (w,), (h, w) or (d, h, w)")
    stride: tuple[int, ...] = param((), "shape", "distance of neighbouring windows in the output; 1 when not given")
    dilate: tuple[int, ...] = param((), "shape", "distance of kernel taps an axis; 1 when not given")
    pad: tuple[int, ...] = param((), "shape", "elements cut from either side of an axis; 0 when not given")
    adj: tuple[int, ...] = param((), "shape", "elements added at the end of an axis; less than the stride")
    target_shape: tuple[int, ...] = param((), "shape", "spatial shape of the output, instead of pad and adj")
    num_filter: int = param(REQUIRED, "int", "number of output channels")
    num_group: int = param(1, "int", "number of channel groups that are convolved apart")
    no_bias: bool = param(True, "bool", "whether there is no bias")
    layout: str | None = param(None, "str", "layout of the data; channels come second", LAYOUTS)


def _margins(p: DeconvolutionParams, spatial: Sequence[int | None]) -> tuple[tuple[int, int] | None, ...]:
    """(pad, adj) of each axis, by MXNet's rule where target_shape asks for a length; None where unknown."""
    stride = per_axis(p.stride, p.kernel, 1, "stride")
    dilate = per_axis(p.dilate, p.kernel, 1, "dilate")
    pad, adj = per_axis(p.pad, p.kernel, 0, "pad"), per_axis(p.adj, p.kernel, 0, "adj")
    if not any(p.target_shape):
        for a, s in zip(adj, stride, strict=True):
            if a >= s:
                raise ShapeError(f"adj {adj} must be less than stride {stride} along each axis")
        return tuple(zip(pad, adj, strict=True))
    target = per_axis(p.target_shape, p.kernel, 0, "target_shape")
    found: list[tuple[int, int] | None] = []
    for x, t, s, d, k in zip(spatial, target, stride, dilate, p.kernel, strict=True):
        if x is None:
            found.append(None)
            continue
        rest = s * (x - 1) + d * (k - 1) + 1 - t
        if rest < 0:
            raise ShapeError(f"target_shape {target} is larger than the output without padding, by {-rest}")
        found.append(((rest + 1) // 2, rest % 2))
    return tuple(found)


def adjoint(p: DeconvolutionParams, data: Shape) -> ConvolutionParams:
    """The convolution from this op's output to its data, whose data gradient the op is."""
    pad = tuple(margin[0] for margin in _margins(p, data[2:]) if margin is not None)
    return ConvolutionParams(kernel=p.kernel, num_filter=data[1], stride=p.stride, dilate=p.dilate, pad=pad,
                             num_group=p.num_group, no_bias=True, layout=p.layout)


def products(p: DeconvolutionParams, data: Shape) -> BackwardDataParams:
    """The data gradient that the op is."""
    return BackwardDataParams(**vars(adjoint(p, data)))


@register
class Deconvolution(Op):
    """Each element of data (N, C, *spatial) adds its multiple of the kernel to the output, plus bias.

    Weight (C, num_filter / num_group, *kernel), output (N, num_filter, *out) with
    out = stride (x - 1) + dilate (kernel - 1) + 1 - 2 pad + adj an axis.
    """

    name = "Deconvolution"
    Params = DeconvolutionParams

    def inputs(self, p: DeconvolutionParams) -> tuple[str, ...]:
        return ("data", "weight") if p.no_bias else ("data", "weight", "bias")

    def infer_shape(self, p: DeconvolutionParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        axes, out = len(p.kernel), outs[0]
        check_rank(ins[0], axes, p.layout)
        check_rank(out, axes, p.layout)
        data = merge_shapes(ins[0] or (None,) * (axes + 2),
                            (None if out is None else out[0], *(None,) * (axes + 1)))
        assert data is not None
        if min(p.num_group, p.num_filter) < 1 or p.num_filter % p.num_group:
            raise ShapeError(f"num_filter {p.num_filter} cannot be parted into num_group {p.num_group} groups")
        if data[1] is not None and data[1] % p.num_group:
            raise ShapeError(f"data {format_shape(data)} has {data[1]} channels, which cannot be parted into "
                             f"num_group {p.num_group} groups")
        if 0 in data[1:]:
            raise ShapeError(f"data {format_shape(data)} is empty along axis {data.index(0, 1)}; only the batch may be")
        weight = merge_shapes(ins[1], (data[1], p.num_filter // p.num_group, *p.kernel))
        assert weight is not None
        data = (data[0], weight[0], *data[2:])
        out = merge_shapes(out, (data[0], p.num_filter, *self._spatial(p, data)))
        return [data, weight, *(merge_shapes(given, (p.num_filter,)) for given in ins[2:])], [out]

    def _spatial(self, p: DeconvolutionParams, data: Sequence[int | None]) -> list[int | None]:
        stride = per_axis(p.stride, p.kernel, 1, "stride")
        dilate = per_axis(p.dilate, p.kernel, 1, "dilate")
        lengths: list[int | None] = []
        for x, s, d, k, margin in zip(data[2:], stride, dilate, p.kernel, _margins(p, data[2:]), strict=True):
            if x is None or margin is None:
                lengths.append(None)
                continue
            lengths.append(s * (x - 1) + d * (k - 1) + 1 - 2 * margin[0] + margin[1])
            if lengths[-1] < 1:  # type: ignore[operator]
                raise ShapeError(f"data {format_shape(tuple(data))} with kernel {p.kernel} and pad {margin[0]} leaves "
                                 f"an output of length {lengths[-1]}; pad less")
        return lengths

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        result: list[Entry | None] = [None] * len(ins)
        if grads[0] is None:
            return result
        conv = vars(adjoint(p, b.shape(ins[0])))
        if not p.no_bias and wanted[2]:
            result[2], = b.node("_convolution_backward_bias", [grads[0]])
        if wanted[1]:
            result[1], = b.node("_convolution_backward_weight", [ins[0], grads[0], ins[1]], **conv)
        if wanted[0]:
            result[0], = b.node("Convolution", [grads[0], ins[1]], **conv)
        return result

    def compute(self, p: DeconvolutionParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, weight, *bias = ins
        conv = products(p, data.shape)
        get_op("_convolution_backward_data").compute(conv, [data, weight, outs[0]], outs, work)
        if bias:
            np.add(outs[0], bias[0].reshape(-1, *(1,) * len(p.kernel)), out=outs[0])

    def algorithms(self, p: DeconvolutionParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        conv = products(p, ins[0].shape)
        return get_op("_convolution_backward_data").algorithms(conv, [ins[0], ins[1], outs[0]], outs)

    def cost(self, p: DeconvolutionParams, ins: Types, outs: Types) -> Cost:
        flops = 2.0 * ins[0].size * prod(ins[1].shape[1:]) + outs[0].size * (not p.no_bias)
        return Cost(flops, sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: DeconvolutionParams, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1, 2))

    def samples(self) -> Sequence[Sample]:
        def sample(data: Shape, **params: Any) -> Sample:
            weight = (data[1], params["num_filter"] // params.get("num_group", 1), *params["kernel"])
            bias = ((params["num_filter"],),) if params.get("no_bias") is False else ()
            return Sample(params, (data, weight, *bias))
        return (sample((2, 3, 4, 5), kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=False),
                sample((3, 4, 3, 4), kernel=(4, 4), num_filter=2, stride=(2, 2), pad=(1, 1)),
                sample((2, 4, 3, 2), kernel=(3, 2), num_filter=6, num_group=2, stride=(2, 3), adj=(1, 2)),
                sample((1, 2, 4, 3), kernel=(4, 4), num_filter=2, stride=(2, 2), target_shape=(7, 6)),
                sample((2, 2, 3, 3), kernel=(2, 2), num_filter=3, dilate=(2, 1), stride=(1, 2), no_bias=False),
                sample((9, 4, 3, 3), kernel=(1, 1), num_filter=3),
                sample((2, 3, 5), kernel=(4,), num_filter=2, stride=(3,), pad=(1,), adj=(1,)),
                sample((1, 2, 2, 3, 2), kernel=(2, 3, 2), num_filter=2, stride=(1, 2, 2), pad=(0, 1, 0)))
