"""Images in another size: AdaptiveAvgPooling2D and BilinearResize2D, each two products with matrices of weights."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register


@dataclass(frozen=True)
class WeightsParams:
    """Parameters of the weights along one axis."""

    length: int = param(REQUIRED, "int", "pixels of the input")
    count: int = param(REQUIRED, "int", "pixels of the output")
    kind: str = param(REQUIRED, "str", "means of equal stretches, or between the two nearest pixels, with the "
                                       "outermost centres, or corners, of both images in one place",
                      ("average", "centres", "corners"))
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@register
class _ResizeWeights(Op):
    """How much each pixel of an axis counts in each pixel of the resized one: (count, length)."""

    name = "_resize_weights"
    Params = WeightsParams
    recompute = "cheap"

    def inputs(self, p: WeightsParams) -> tuple[str, ...]:
        return ()

    def infer_shape(self, p: WeightsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if min(p.length, p.count) < 1:
            raise ShapeError(f"{p.length} pixels in {p.count}; both must be at least 1")
        return [], [merge_shapes((p.count, p.length), outs[0])]

    def infer_dtype(self, p: WeightsParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [], [p.dtype]

    def compute(self, p: WeightsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        for k, row in enumerate(outs[0]):
            if p.kind == "average":
                begin, end = k * p.length // p.count, -(-(k + 1) * p.length // p.count)
                row[begin:end] = 1 / (end - begin)
                continue
            if p.kind == "centres":
                at = k * (p.length - 1) / (p.count - 1) if p.count > 1 else 0.0
            else:
                at = max((k + 0.5) * p.length / p.count - 0.5, 0.0)
            near = min(int(at), p.length - 1)
            far = min(near + 1, p.length - 1)
            row[near] += 1 - (at - near)
            row[far] += at - near

    def gradient(self, b: Builder, p: WeightsParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return []

    def samples(self) -> Sequence[Sample]:
        return [Sample({"length": length, "count": count, "kind": kind}, (), differentiable=False)
                for kind in ("average", "centres", "corners") for length, count in ((5, 3), (3, 7), (4, 1), (1, 4))]


class _Resize(Op):
    """Base: images (N, C, H, W) in another height and width."""

    def check(self, data: PartialShape) -> PartialShape:
        """The shape of images; ShapeError for one that is none."""
        data = merge_shapes(data, (None,) * 4)
        assert data is not None
        if 0 in data[1:]:
            raise ShapeError(f"data {format_shape(data)} is empty along axis {data.index(0, 1)}; only the batch may be")
        return data

    def resize(self, b: Builder, data: Entry, size: Sequence[int], kind: str) -> Sequence[Entry]:
        """data with rows and columns of another number, the columns first."""
        found: Sequence[Entry] = [data]
        for count in (size[1], size[0]):
            length = b.shape(only(found))[3]
            if length != count:
                weights = b.node("_resize_weights", [], length=length, count=count, kind=kind, dtype=b.dtype(data))
                found = b.node("dot", [*found, *weights], transpose_b=True)
            found = b.node("transpose", found, axes=(0, 1, 3, 2))
        return found


@dataclass(frozen=True)
class AdaptiveParams:
    """Parameters of AdaptiveAvgPooling2D."""

    output_size: tuple[int, ...] = param((), "shape", "height and width of the output, one number for both; 1 when not "
                                                      "given")


@register
class AdaptiveAveragePooling(_Resize):
    """The means of images (N, C, H, W) over so many stretches, as equal as can be, along height and width."""

    name = "_contrib_AdaptiveAvgPooling2D"
    Params = AdaptiveParams

    def size(self, p: AdaptiveParams) -> tuple[int, int]:
        """(height, width) of the output."""
        size = p.output_size or (1,)
        if len(size) > 2 or not all(1 <= n < 2**31 for n in size):
            raise ShapeError(f"output_size {p.output_size}; give height and width, at least 1 each, or one number")
        return size[0], size[-1]

    def infer_shape(self, p: AdaptiveParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        size, out = self.size(p), outs[0]
        data = self.check(merge_shapes(ins[0], None if out is None else (*out[:2], None, None)))
        assert data is not None
        return [data], [merge_shapes((*data[:2], *size), out)]

    def expand(self, b: Builder, p: AdaptiveParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.resize(b, ins[0], self.size(p), "average")

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,)) for params, shape in (
            ({"output_size": (2, 3)}, (2, 3, 5, 7)), ({"output_size": (4,)}, (1, 2, 3, 4)), ({}, (2, 2, 3, 2)))]


@dataclass(frozen=True)
class BilinearResizeParams:
    """Parameters of BilinearResize2D."""

    height: int = param(1, "int", "height of the output, unless a scale is given")
    width: int = param(1, "int", "width of the output, unless a scale is given")
    scale_height: float | None = param(None, "float", "height of the output over that of data")
    scale_width: float | None = param(None, "float", "width of the output over that of data")
    mode: str = param("size", "str", "the given size or scale; a scale that keeps odd sizes odd; the size of another "
                                     "tensor; or the next smaller or larger even or odd size",
                      ("size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"))
    align_corners: bool = param(True, "bool", "whether the outermost pixels of both images have one centre")


@register
class BilinearResize(_Resize):
    """Images (N, C, H, W) in another size, each pixel between the nearest two along height and width."""

    name = "_contrib_BilinearResize2D"
    Params = BilinearResizeParams

    def inputs(self, p: BilinearResizeParams) -> tuple[str, ...]:
        return ("data", "like") if p.mode == "like" else ("data",)

    def unread(self, p: BilinearResizeParams) -> tuple[int, ...]:
        return (1,) if p.mode == "like" else ()

    def size(self, p: BilinearResizeParams, data: Sequence[int | None], like: PartialShape) -> tuple[int | None, ...]:
        """(height, width) of the output, None where unknown."""
        if p.mode == "like":
            return (None, None) if like is None else tuple(like[2:])
        found = [self._length(p, *given) for given in zip(
            data[2:], (p.height, p.width), (p.scale_height, p.scale_width), strict=True)]
        if any(n is not None and not 1 <= n < 2**31 for n in found):
            raise ShapeError(f"data {format_shape(tuple(data))} would become {found[0]} x {found[1]} pixels; both must "
                             f"be at least 1")
        return tuple(found)

    @staticmethod
    def _length(p: BilinearResizeParams, length: int | None, wanted: int, scale: float | None) -> int | None:
        if scale is not None and not 0 < scale < 2**31:
            raise ShapeError(f"a scale of {scale} must be above 0 and finite")
        if p.mode == "size" and scale is None:
            return wanted
        if length is None:
            return None
        if p.mode in ("size", "odd_scale"):
            if scale is None:
                raise ShapeError("mode odd_scale needs scale_height and scale_width")
            odd = length % 2 if p.mode == "odd_scale" else 0
            return int((length - odd) * scale) + odd
        parity, way = (p.mode.split("_")[1] == "odd"), (1 if p.mode.endswith("up") else -1)
        return length if length % 2 == parity else length + way

    def infer_shape(self, p: BilinearResizeParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        out, like = outs[0], None if p.mode != "like" else self.check(ins[1])
        data = self.check(merge_shapes(ins[0], None if out is None else (*out[:2], None, None)))
        assert data is not None
        out = merge_shapes((*data[:2], *self.size(p, data, like)), out)
        return [data, *([like] if p.mode == "like" else [])], [out]

    def expand(self, b: Builder, p: BilinearResizeParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        size = self.size(p, b.shape(ins[0]), b.shape(ins[-1]))
        return self.resize(b, ins[0], [n for n in size if n is not None], "centres" if p.align_corners else "corners")

    def samples(self) -> Sequence[Sample]:
        data = (2, 3, 4, 5)
        cases = ({"height": 3, "width": 7}, {"height": 7, "width": 2, "align_corners": False},
                 {"scale_height": 1.5, "scale_width": 0.5},
                 {"mode": "odd_scale", "scale_height": 2.0, "scale_width": 0.5}, {"mode": "to_even_down"},
                 {"mode": "to_odd_up", "align_corners": False}, {"height": 1, "width": 5})
        return [*(Sample(case, (data,)) for case in cases), Sample({"mode": "like"}, (data, (1, 1, 6, 3)))]
