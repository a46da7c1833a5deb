"""Pad, and UpSampling: nearest neighbours and bilinear."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, is_complete, merge_shapes, numbered
from .params import REQUIRED, param
from .pointwise import Found
from .reduce import BackwardLike
from .registry import get_op, register

Block = tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...]]


@dataclass(frozen=True)
class PadParams:
    """Parameters of Pad, and of its gradient."""

    mode: str = param(REQUIRED, "str", "what the margins hold: a constant, the edge repeated, or data mirrored",
                      ("constant", "edge", "reflect"))
    pad_width: tuple[int, ...] = param(REQUIRED, "shape", "(before, after) for each axis, in one row")
    constant_value: float = param(0.0, "float", "value of the margins in mode constant")


def copied_blocks(p: PadParams, shape: Shape) -> Iterator[Block]:
    """(place in the output, place in data it is copied from, axes along which that is one long), block by block.

    The blocks are the 3 ** n combinations of before, within and after along each padded axis. Along an axis
    that is mirrored the source runs backwards; along one where the edge is repeated it is one long.
    """
    choices = []
    for d, before, after in zip(shape, p.pad_width[::2], p.pad_width[1::2], strict=True):
        axis = [(slice(before, before + d), slice(None), False)]
        for width, place in ((before, slice(0, before)), (after, slice(before + d, before + d + after))):
            if width and p.mode == "edge":
                axis.append((place, slice(0, 1) if place.start == 0 else slice(d - 1, d), True))
            elif width:
                first, last = (width, 0) if place.start == 0 else (d - 2, d - 2 - width)
                axis.append((place, slice(first, last if last >= 0 else None, -1), False))
        choices.append(axis)
    for parts in product(*choices):
        yield (tuple(part[0] for part in parts), tuple(part[1] for part in parts),
               tuple(i for i, part in enumerate(parts) if part[2]))


@register
class Pad(Op):
    """data with margins on either side of its axes."""

    name = "Pad"
    aliases = ("pad",)
    Params = PadParams
    recompute = "cheap"

    def infer_shape(self, p: PadParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None:
            return ins, outs
        if len(p.pad_width) != 2 * len(shape) or min(p.pad_width, default=0) < 0:
            raise ShapeError(f"Pad: pad_width {p.pad_width} must have two values of at least 0 for each axis of data "
                             f"{format_shape(shape)}")
        widths = list(zip(p.pad_width[::2], p.pad_width[1::2], strict=True))
        for axis, (d, width) in enumerate(zip(shape, widths, strict=True)):
            if d is not None and (p.mode == "reflect" and max(width) >= max(d, 1) or p.mode == "edge" and any(width)
                                  and not d):
                raise ShapeError(f"Pad: axis {axis} of data {format_shape(shape)} is too short for margins {width} in "
                                 f"mode {p.mode}")
        out = tuple(None if d is None else d + sum(width) for d, width in zip(shape, widths, strict=True))
        return ins, [merge_shapes(out, outs[0])]

    def compute(self, p: PadParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if p.mode == "constant":
            outs[0].fill(p.constant_value)
            np.copyto(outs[0][within(p, ins[0].shape)], ins[0])
            return
        for place, source, _ in copied_blocks(p, ins[0].shape):
            np.copyto(outs[0][place], ins[0][source])

    def gradient(self, b: Builder, p: PadParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_pad_backward", [grads[0], ins[0]], **vars(p)))]

    def samples(self) -> Sequence[Sample]:
        widths = (0, 0, 0, 0, 1, 2, 2, 0)
        return [Sample({"mode": mode, "pad_width": widths, "constant_value": 1.5}, ((2, 3, 3, 4),))
                for mode in ("constant", "edge", "reflect")
                ] + [Sample({"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 1, 2, 1, 0, 2)}, ((1, 2, 2, 3, 3),)),
                     Sample({"mode": "edge", "pad_width": (0, 0, 0, 0, 2, 1, 1, 3, 1, 1)}, ((1, 2, 2, 1, 3),)),
                     Sample({"mode": "constant", "pad_width": (0, 1, 2, 0)}, ((2, 3),))]


def within(p: PadParams, shape: Shape) -> tuple[slice, ...]:
    """The place of data in the output."""
    return tuple(slice(before, before + d) for before, d in zip(p.pad_width[::2], shape, strict=True))


@register
class PadBackward(BackwardLike):
    """The sum of grad over all places that an element was copied to."""

    name, forward = "_pad_backward", Pad
    Params = PadParams

    def _largest(self, p: PadParams, shape: Shape) -> Shape:
        """The largest shape that a repeated edge is summed to."""
        sizes = [()] + [tuple(len(range(d)[s]) for d, s in zip(shape, source, strict=True))
                        for _, source, repeated in copied_blocks(p, shape) if repeated]
        return max(sizes, key=lambda size: prod(size) * bool(size)) or (0,)

    def algorithms(self, p: PadParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for((self._largest(p, outs[0].shape), outs[0].dtype))),)

    def compute(self, p: PadParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, (out,) = ins[0], outs
        np.copyto(out, grad[within(p, out.shape)])
        if p.mode == "constant":
            return
        scratch = work.array((prod(self._largest(p, out.shape)),), out.dtype)
        inside = within(p, out.shape)
        for place, source, repeated in copied_blocks(p, out.shape):
            target, part = out[source], grad[place]
            if place == inside:
                continue
            if repeated:
                part = np.add.reduce(part, axis=repeated, keepdims=True,
                                     out=scratch[:target.size].reshape(target.shape))
            np.add(target, part, out=target)

    def samples(self) -> Sequence[Sample]:
        return ()


@dataclass(frozen=True)
class UpSamplingParams:
    """Parameters of UpSampling."""

    scale: int = param(REQUIRED, "int", "factor of the first input's height and width")
    num_filter: int = param(0, "int", "channels, for bilinear")
    sample_type: str = param(REQUIRED, "str", "repeat the nearest neighbour, or interpolate by a weight",
                             ("nearest", "bilinear"))
    multi_input_mode: str = param("concat", "str", "what to do with several inputs", ("concat", "sum"))
    num_args: int = param(REQUIRED, "int", "number of inputs; for bilinear data alone is told, or data and weight")


@register
class UpSampling(Op):
    """data (N, C, H, W) enlarged; several inputs (nearest) are all enlarged to scale times the first one's size.

    Bilinear is a Deconvolution by channel with a weight (C, 1, k, k), k = 2 scale - scale % 2, which
    `mx.init.Bilinear` fills.
    """

    name = "UpSampling"
    Params = UpSamplingParams
    recompute = "cheap"

    def inputs(self, p: UpSamplingParams) -> tuple[str, ...]:
        if p.sample_type == "bilinear":
            return ("data", "weight")
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def _deconvolution(self, p: UpSamplingParams) -> dict[str, Any]:
        side, pad = 2 * p.scale - p.scale % 2, p.scale // 2
        return {"kernel": (side, side), "stride": (p.scale, p.scale), "pad": (pad, pad), "adj": (),
                "num_filter": p.num_filter, "num_group": p.num_filter, "no_bias": True}

    def infer_shape(self, p: UpSamplingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.scale < 1:
            raise ShapeError(f"UpSampling: scale {p.scale} must be at least 1")
        for shape in ins:
            if shape is not None and len(shape) != 4:
                raise ShapeError(f"UpSampling: input {format_shape(shape)} must be (N, C, H, W)")
            if shape is not None and 0 in shape[2:]:
                raise ShapeError(f"UpSampling: input {format_shape(shape)} is empty along axis {shape.index(0, 2)}")
        if p.sample_type == "bilinear":
            op = get_op("Deconvolution")
            return op.infer_shape(op.Params(**self._deconvolution(p)), ins, outs)
        if not all(map(is_complete, ins)):
            return ins, outs
        (n, _, h, w), channels = ins[0], [shape[1] for shape in ins]  # type: ignore[misc, index]
        for shape in ins:
            self._factor(p, ins[0], shape)  # type: ignore[arg-type]
        total = channels[0] if p.multi_input_mode == "sum" else sum(channels)  # type: ignore[arg-type]
        if p.multi_input_mode == "sum" and len(set(channels)) > 1:
            raise ShapeError(f"UpSampling: inputs of {channels} channels cannot be added")
        return ins, [merge_shapes((n, total, h * p.scale, w * p.scale), outs[0])]  # type: ignore[operator]

    def _factor(self, p: UpSamplingParams, first: Shape, shape: Shape) -> int:
        height, width = first[2] * p.scale, first[3] * p.scale
        factor = height // shape[2]
        if shape[0] != first[0] or (shape[2] * factor, shape[3] * factor) != (height, width):
            raise ShapeError(f"UpSampling: input {format_shape(shape)} cannot be enlarged to the batch {first[0]} and "
                             f"size {height} x {width} of the others")
        return factor

    def expand(self, b: Builder, p: UpSamplingParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        if p.sample_type == "bilinear":
            return b.node("Deconvolution", ins, **self._deconvolution(p))
        first = b.shape(ins[0])
        grown = [only(b.node("_upsample", [e], scale=self._factor(p, first, b.shape(e)))) for e in ins]
        if len(grown) == 1:
            return grown
        if p.multi_input_mode == "sum":
            return b.node("add_n", grown, num_args=len(grown))
        return b.node("Concat", grown, num_args=len(grown), dim=1)

    def samples(self) -> Sequence[Sample]:
        near = {"scale": 2, "sample_type": "nearest"}
        return [Sample({**near, "num_args": 1}, ((2, 3, 2, 3),)),
                Sample({**near, "num_args": 2}, ((1, 2, 2, 3), (1, 1, 4, 6))),
                Sample({**near, "num_args": 2, "multi_input_mode": "sum"}, ((1, 2, 2, 2), (1, 2, 1, 1))),
                Sample({"scale": 2, "sample_type": "bilinear", "num_filter": 2, "num_args": 1},
                       ((1, 2, 3, 3), (2, 1, 4, 4))),
                Sample({"scale": 3, "sample_type": "bilinear", "num_filter": 2, "num_args": 2},
                       ((1, 2, 2, 3), (2, 1, 5, 5)))]


@dataclass(frozen=True)
class ScaleParams:
    """Parameters of the enlargement of one tensor."""

    scale: int = param(REQUIRED, "int", "factor of height and width")


class _Upsampling(Op):
    """Base: a small tensor (N, C, H, W) beside a large one, seen as (N C, H, scale, W, scale)."""

    Params = ScaleParams
    recompute = "cheap"

    def sliced(self, p: ScaleParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    @staticmethod
    def parted(p: ScaleParams, small: Shape) -> tuple[int, ...]:
        """The large tensor's shape as (N C, H, scale, W, scale)."""
        return small[0] * small[1], small[2], p.scale, small[3], p.scale


@register
class _Upsample(_Upsampling):
    """Each place repeated `scale` times both ways."""

    name = "_upsample"

    def infer_shape(self, p: ScaleParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not is_complete(ins[0]):
            return ins, outs
        n, c, h, w = ins[0]  # type: ignore[misc]
        return ins, [merge_shapes((n, c, h * p.scale, w * p.scale), outs[0])]  # type: ignore[operator]

    def compute(self, p: ScaleParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        rows, h, _, w, _ = parted = self.parted(p, ins[0].shape)
        np.copyto(outs[0].reshape(parted), ins[0].reshape(rows, h, 1, w, 1))

    def gradient(self, b: Builder, p: ScaleParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_upsample_backward", [grads[0]], scale=p.scale))]


@register
class _UpsampleBackward(_Upsampling):
    """The sum of grad over the places that one was repeated to."""

    name = "_upsample_backward"

    def infer_shape(self, p: ScaleParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if not is_complete(ins[0]):
            return ins, outs
        n, c, h, w = ins[0]  # type: ignore[misc]
        return ins, [merge_shapes((n, c, h // p.scale, w // p.scale), outs[0])]  # type: ignore[operator]

    def compute(self, p: ScaleParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        rows, h, _, w, _ = parted = self.parted(p, outs[0].shape)
        grad, out = ins[0].reshape(parted), outs[0].reshape(rows, h, w)
        out.fill(0)
        for i, j in product(range(p.scale), repeat=2):
            np.add(out, grad[:, :, i, :, j], out=out)
