"""im2col and col2im: the windows of images as columns, and columns added back into images; each is the other's
gradient."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Cost, Entry, PartialShape, Shape, TensorType
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register
from .window import ALL, check_rank, clip, per_axis

Types = Sequence[TensorType]


@dataclass(frozen=True)
class WindowParams:
    """Parameters of im2col."""

    kernel: tuple[int, ...] = param(REQUIRED, "shape", "size of a window, (w,), (h, w) or (d, h, w)")
    stride: tuple[int, ...] = param((), "shape", "step of the window an axis; 1 when not given")
    dilate: tuple[int, ...] = param((), "shape", "distance of a window's elements an axis; 1 when not given")
    pad: tuple[int, ...] = param((), "shape", "zeros on either side of an axis; 0 when not given")


@dataclass(frozen=True)
class Col2imParams(WindowParams):
    """Parameters of col2im."""

    output_size: tuple[int, ...] = param(REQUIRED, "shape", "spatial shape of the images")


def window_sizes(p: WindowParams) -> tuple[Shape, Shape, Shape]:
    """(stride, dilate, pad), a value for each axis; ShapeError where they do not fit the kernel."""
    if min(p.kernel, default=1) < 1:
        raise ShapeError(f"kernel {p.kernel} must be at least 1 along each axis")
    return (per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.dilate, p.kernel, 1, "dilate"),
            per_axis(p.pad, p.kernel, 0, "pad"))


def window_counts(p: WindowParams, spatial: Sequence[int | None]) -> tuple[int | None, ...]:
    """How many windows there are along each axis; ShapeError where there is none."""
    counts: list[int | None] = []
    for x, k, s, d, pad in zip(spatial, p.kernel, *window_sizes(p), strict=True):
        count = None if x is None else (x + 2 * pad - d * (k - 1) - 1) // s + 1
        if count is not None and count < 1:
            raise ShapeError(f"a kernel {p.kernel} with dilate {p.dilate} is larger than images of {tuple(spatial)} "
                             f"with pad {p.pad}")
        counts.append(count)
    return tuple(counts)


def _product(values: Sequence[int | None]) -> int | None:
    return None if None in values else prod(v for v in values if v is not None)


class _Windows(Op):
    """Base: images (N, C, *spatial) and columns (N, C * taps, windows)."""

    recompute = "cheap"

    def shapes(self, p: WindowParams, images: PartialShape, columns: PartialShape,
               ) -> tuple[PartialShape, PartialShape]:
        """(images, columns), each completed by the other."""
        axes, taps = len(p.kernel), prod(p.kernel)
        check_rank(images, axes, None)
        images = merge_shapes(images, (None,) * (axes + 2))
        columns = merge_shapes(columns, (None,) * 3)
        assert images is not None and columns is not None
        if columns[1] is not None and columns[1] % taps:
            raise ShapeError(f"columns {format_shape(columns)} have {columns[1]} rows, no multiple of the {taps} "
                             f"elements of a kernel {p.kernel}")
        images = merge_shapes(images, (columns[0], None if columns[1] is None else columns[1] // taps,
                                       *(None,) * axes))
        assert images is not None
        rows = None if images[1] is None else images[1] * taps
        columns = merge_shapes(columns, (images[0], rows, _product(window_counts(p, images[2:]))))
        return images, columns

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(max(ins[0].size, outs[0].size)), ins[0].nbytes, outs[0].nbytes)

    def taps(self, p: WindowParams, images: np.ndarray, columns: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(pixels of images, places of columns) that each tap of the kernel joins, where those are inside."""
        counts = window_counts(p, images.shape[2:])
        apart = columns.reshape(*images.shape[:2], prod(p.kernel), *counts)  # type: ignore[arg-type]
        for number, tap in enumerate(product(*map(range, p.kernel))):
            cuts = [clip(count, x, s, t * d - pad) for count, x, t, s, d, pad in zip(
                counts, images.shape[2:], tap, *window_sizes(p), strict=True)]
            found = [cut for cut in cuts if cut is not None]
            if len(found) == len(cuts):
                pixels: Any = (ALL, ALL, *(inside for _, inside in found))
                places: Any = (ALL, ALL, number, *(outside for outside, _ in found))
                yield images[pixels], apart[places]


@register
class Im2col(_Windows):
    """The windows of images (N, C, *spatial) as columns (N, C * kernel elements, windows)."""

    name = "im2col"
    Params = WindowParams

    def infer_shape(self, p: WindowParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        images, columns = self.shapes(p, ins[0], outs[0])
        return [images], [columns]

    def compute(self, p: WindowParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        for pixels, places in self.taps(p, ins[0], outs[0]):
            np.copyto(places, pixels)

    def gradient(self, b: Builder, p: WindowParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return b.node("col2im", [grads[0]], output_size=b.shape(ins[0])[2:], **vars(p))

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"kernel": (2, 3), "pad": (1, 0)}, (2, 3, 4, 5)), ({"kernel": (3, 3), "stride": (2, 2)}, (1, 2, 7, 6)),
            ({"kernel": (2, 2), "dilate": (2, 1), "pad": (3, 1)}, (2, 2, 4, 4)), ({"kernel": (3,)}, (2, 2, 6)),
            ({"kernel": (2, 1, 2), "stride": (1, 2, 2)}, (1, 2, 3, 3, 4))]
        return [Sample(params, (shape,)) for params, shape in cases]


@register
class Col2im(_Windows):
    """Columns (N, C * kernel elements, windows), each added where its window lies: images (N, C, *output_size)."""

    name = "col2im"
    Params = Col2imParams

    def infer_shape(self, p: Col2imParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if len(p.output_size) != len(p.kernel) or min(p.output_size) < 0:
            raise ShapeError(f"output_size {p.output_size} does not fit kernel {p.kernel}; give a length for each axis")
        images, columns = self.shapes(p, merge_shapes(outs[0], (None, None, *p.output_size)), ins[0])
        return [columns], [images]

    def compute(self, p: Col2imParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(0)
        for pixels, places in self.taps(p, outs[0], ins[0]):
            np.add(pixels, places, out=pixels)

    def gradient(self, b: Builder, p: Col2imParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return b.node("im2col", [grads[0]], kernel=p.kernel, stride=p.stride, dilate=p.dilate, pad=p.pad)

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"kernel": (2, 3), "pad": (1, 0), "output_size": (4, 5)}, (2, 18, 15)),
            ({"kernel": (3, 3), "stride": (2, 2), "output_size": (7, 6)}, (1, 18, 6)),
            ({"kernel": (3,), "dilate": (2,), "output_size": (6,)}, (2, 6, 2)),
            ({"kernel": (2, 1, 2), "output_size": (3, 3, 4)}, (1, 8, 18))]
        return [Sample(params, (shape,)) for params, shape in cases]
