"""Images as tensors (mx.sym.image): to_tensor, normalize, crop, flips."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import register


def _check_rank(name: str, data: PartialShape, axes: str) -> None:
    if data is not None and len(data) not in (3, 4):
        raise ShapeError(f"{name}: data {format_shape(data)} must be an image {axes}, or a batch of such")


@register
class ToTensor(Op):
    """Images (..., H, W, C) with values from 0 to 255 as float32 (..., C, H, W) with values from 0 to 1."""

    name = "_image_to_tensor"

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, out = ins[0], outs[0]
        for shape in (data, out):
            _check_rank(self.name, shape, "(height, width, channels)")
        if out is not None:
            data = merge_shapes(data, (*out[:-3], *out[-2:], out[-3]))
        return [data], [None if data is None else (*data[:-3], data[-1], *data[-3:-1])]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return list(ins), [ins[0] if ins[0] == np.float64 else np.dtype(np.float32)]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data = ins[0]
        kind = self.infer_dtype(p, [b.dtype(data)], [None])[1][0]
        assert kind is not None
        rank = len(b.shape(data))
        if b.dtype(data) != kind:
            data = only(b.node("Cast", [data], dtype=kind))
        moved = b.node("transpose", [data], axes=(*range(rank - 3), rank - 1, rank - 3, rank - 2))
        return b.node("_div_scalar", moved, scalar=255.0)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), low=0.0, high=255.0) for shape in ((4, 3, 2), (2, 3, 2, 1))]


@dataclass(frozen=True)
class NormalizeParams:
    """Parameters of normalize."""

    mean: tuple[float, ...] = param((0.0,), "floats", "mean of each channel, or of all")
    std: tuple[float, ...] = param((1.0,), "floats", "deviation of each channel, or of all")


@register
class Normalize(Op):
    """(data - mean) / std, channel by channel of images (..., C, H, W) with one or three channels."""

    name = "_image_normalize"
    Params = NormalizeParams

    def infer_shape(self, p: NormalizeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], outs[0])
        _check_rank(self.name, data, "(channels, height, width)")
        if data is not None and data[-3] is not None:
            for name, values in (("mean", p.mean), ("std", p.std)):
                if len(values) != 1 and len(values) < data[-3]:
                    raise ShapeError(f"{name} {values} has {len(values)} numbers for {data[-3]} channels; give one for "
                                     f"each channel, or one for all")
        if 0 in p.std:
            raise ShapeError(f"std {p.std} has a 0, by which nothing can be divided")
        return [data], [data]

    def expand(self, b: Builder, p: NormalizeParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        shape = b.shape(ins[0])
        axis, channels = len(shape) - 3, shape[-3]
        mean, std = (values * channels if len(values) == 1 else values[:channels] for values in (p.mean, p.std))
        if len(set(zip(mean, std, strict=True))) <= 1:
            return self._part(b, ins[0], (*mean, 0.0)[0], (*std, 1.0)[0])
        parts: list[Entry] = []
        for c in range(channels):
            part = only(b.node("slice_axis", ins, axis=axis, begin=c, end=c + 1))
            parts += self._part(b, part, mean[c], std[c])
        return b.node("Concat", parts, num_args=channels, dim=axis)

    @staticmethod
    def _part(b: Builder, data: Entry, mean: float, std: float) -> Sequence[Entry]:
        return b.node("_div_scalar", b.node("_minus_scalar", [data], scalar=mean), scalar=std)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"mean": (0.1, 0.2, 0.3), "std": (2.0, 0.5, 1.0)}, ((2, 3, 2, 2),)),
                Sample({"mean": 0.5, "std": (0.25,)}, ((3, 2, 4),)), Sample({}, ((1, 2, 2),))]


@dataclass(frozen=True)
class CropParams:
    """Parameters of crop."""

    x: int = param(REQUIRED, "int", "first column")
    y: int = param(REQUIRED, "int", "first row")
    width: int = param(REQUIRED, "int", "columns")
    height: int = param(REQUIRED, "int", "rows")


@register
class CropImage(Op):
    """A rectangle out of images (..., H, W, C)."""

    name = "_image_crop"
    Params = CropParams

    def infer_shape(self, p: CropParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = ins[0]
        _check_rank(self.name, data, "(height, width, channels)")
        if data is None:
            return [None], [outs[0]]
        for what, first, count, length in (("rows", p.y, p.height, data[-3]), ("columns", p.x, p.width, data[-2])):
            if first < 0 or count < 1 or (length is not None and first + count > length):
                raise ShapeError(f"{what} {first} to {first + count} are not within data {format_shape(data)}")
        return [data], [merge_shapes((*data[:-3], p.height, p.width, data[-1]), outs[0])]

    def expand(self, b: Builder, p: CropParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        axis = len(b.shape(ins[0])) - 3
        rows = b.node("slice_axis", ins, axis=axis, begin=p.y, end=p.y + p.height)
        return b.node("slice_axis", rows, axis=axis + 1, begin=p.x, end=p.x + p.width)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"x": 1, "y": 0, "width": 2, "height": 3}, (shape,)) for shape in ((4, 3, 2), (2, 3, 4, 1))]


class _Flip(Op):
    """Base: images (..., H, W, C) mirrored along an axis, counted from the last."""

    axis: ClassVar[int]

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = merge_shapes(ins[0], outs[0])
        _check_rank(self.name, data, "(height, width, channels)")
        return [data], [data]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("reverse", ins, axis=(len(b.shape(ins[0])) + self.axis,))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,)) for shape in ((4, 3, 2), (2, 3, 2, 1))]


@register
class FlipLeftRight(_Flip):
    """Images (..., H, W, C) with their columns in reverse order."""

    name, axis = "_image_flip_left_right", -2


@register
class FlipTopBottom(_Flip):
    """Images (..., H, W, C) with their rows in reverse order."""

    name, axis = "_image_flip_top_bottom", -3
