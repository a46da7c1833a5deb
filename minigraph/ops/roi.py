"""Regions of interest: ROIPooling, the largest value of each bin, and ROIAlign, means of samples in each bin.

rois (R, 5) hold an image's number and the corners x1, y1, x2, y2 in the coordinates of the whole picture, which
spatial_scale takes to those of data. The number of a picture below 0 marks a row that is not used: its output is 0.
Corners and bins are computed in the dtype of rois, so that every device finds the same bins.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, MXNetError, PartialShape, Shape, TensorType
from .chunks import chunks
from .elemwise import only
from .indexing import PIECE
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]
CHANNELS = 64
"""Channels that are looked through at a time."""
MOST_SAMPLES = 4096
FAR = 2.0**30
"""Coordinates beyond this count as this: no image reaches it, and integers hold it."""


@dataclass(frozen=True)
class RoiPoolingParams:
    """Parameters of ROIPooling, and of its gradient."""

    pooled_size: tuple[int, ...] = param(REQUIRED, "shape", "bins along height and width")
    spatial_scale: float = param(REQUIRED, "float", "pixels of data for one of the picture: 1 / the stride")


@dataclass(frozen=True)
class RoiAlignParams(RoiPoolingParams):
    """Parameters of ROIAlign, and of its gradient."""

    sample_ratio: int = param(-1, "int", "samples of a bin along each axis; as many as the bin has pixels when below 1")
    position_sensitive: bool = param(False, "bool", "whether each bin reads channels of its own: bin (i, j) of output "
                                                    "channel c reads data channel (c height + i) width + j")
    aligned: bool = param(False, "bool", "whether corners are moved by half a pixel, as pixels' centres ask")


class _RoiOp(Op):
    """Base: inputs data and rois, or grad and further ones in a gradient."""

    recompute = "costly"

    def bins(self, p: RoiPoolingParams) -> tuple[int, int]:
        """(height, width) of the output; ShapeError where parameters make no sense."""
        if len(p.pooled_size) != 2 or not all(1 <= d < 2**31 for d in p.pooled_size):
            raise ShapeError(f"pooled_size {p.pooled_size}; give the bins along height and width, at least 1 each")
        if not 0 < p.spatial_scale < math.inf:
            raise ShapeError(f"spatial_scale {p.spatial_scale} must be a finite number above 0")
        return p.pooled_size[0], p.pooled_size[1]

    def channels(self, p: RoiPoolingParams, channels: int | None) -> int | None:
        """Channels of the output from those of data."""
        return channels

    def shapes(self, p: RoiPoolingParams, data: PartialShape, rois: PartialShape, out: PartialShape,
               ) -> tuple[PartialShape, PartialShape, PartialShape]:
        """(data, rois, output), each completed by the others."""
        bins = self.bins(p)
        data, rois = merge_shapes(data, (None,) * 4), merge_shapes(rois, (None, 5))
        assert data is not None and rois is not None
        for axis in (2, 3):
            if data[axis] == 0:
                raise ShapeError(f"data {format_shape(data)} is empty along axis {axis}")
        out = merge_shapes(out, (rois[0], self.channels(p, data[1]), *bins))
        assert out is not None
        return data, (out[0], 5), out

    def cost(self, p: RoiPoolingParams, ins: Types, outs: Types) -> Cost:
        return Cost(8.0 * max(t.size for t in (*ins, *outs)), sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))


def _regions(name: str, rois: np.ndarray, images: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """(row, image, corners) of each region of some image; MXNetError for one of an image that there is not."""
    for row, roi in enumerate(rois):
        if not np.isfinite(roi).all() or roi[0] >= images:
            raise MXNetError(f"{name}: roi {row} is {roi.tolist()}, with an image outside [0, {images}) or a corner "
                             f"that is no number; give an image's number and x1, y1, x2, y2")
        if roi[0] > -1:
            yield row, int(roi[0]), roi[1:]


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -FAR, FAR)


def _edges(first: float, last: float, bins: int, length: int, kind: np.dtype) -> list[tuple[int, int]]:
    """The pixels [begin, end) of each bin of a region of whole pixels from `first` to `last`."""
    extent = kind.type(max(last - first + 1, 1)) / kind.type(bins)
    found = []
    for k in range(bins):
        begin = math.floor(kind.type(k) * extent) + int(first)
        end = math.ceil(kind.type(k + 1) * extent) + int(first)
        found.append((min(max(begin, 0), length), min(max(end, 0), length)))
    return found


def _rounded(values: np.ndarray) -> np.ndarray:
    """Whole numbers, halves away from 0."""
    whole = np.trunc(values)
    return whole + np.copysign(np.abs(values - whole) >= 0.5, values)


def _pooling_bins(p: RoiPoolingParams, corners: np.ndarray, size: Sequence[int],
                  ) -> Iterator[tuple[int, int, slice, slice]]:
    """(bin, bin, rows, columns) of each bin of a region that has pixels."""
    whole = _rounded(_clipped(corners * corners.dtype.type(p.spatial_scale)))
    rows = _edges(whole[1], whole[3], p.pooled_size[0], size[0], corners.dtype)
    columns = _edges(whole[0], whole[2], p.pooled_size[1], size[1], corners.dtype)
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(columns):
            if top < bottom and left < right:
                yield i, j, slice(top, bottom), slice(left, right)


@register
class RoiPooling(_RoiOp):
    """The largest value of data (N, C, H, W) in each bin of each region: (R, C, *pooled_size).

    Corners are rounded to pixels, both of which belong to the region; a bin without pixels has 0. The hidden output
    tells where the value is in its plane, -1 for nowhere. A region of an image that there is not raises. No gradient
    reaches rois.
    """

    name = "ROIPooling"
    Params = RoiPoolingParams

    def inputs(self, p: RoiPoolingParams) -> tuple[str, ...]:
        return ("data", "rois")

    def outputs(self, p: RoiPoolingParams) -> tuple[str, ...]:
        return ("output", "maxidx")

    def visible_outputs(self, p: RoiPoolingParams) -> int:
        return 1

    def infer_shape(self, p: RoiPoolingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, rois, out = self.shapes(p, ins[0], ins[1], merge_shapes(*outs))
        return [data, rois], [out, out]

    def infer_dtype(self, p: RoiPoolingParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        known = next((t for t in (*ins, outs[0]) if t is not None), None)
        return [t or known for t in ins], [outs[0] or known, np.dtype(np.int32)]

    def compute(self, p: RoiPoolingParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (data, rois), (out, places) = ins, outs
        out.fill(0)
        places.fill(-1)
        channels, rows, columns = data.shape[1:]
        scratch = work.array((min(channels, CHANNELS) * rows * columns,), data.dtype)
        for row, image, corners in _regions(self.name, rois, len(data)):
            for i, j, down, right in _pooling_bins(p, corners, (rows, columns)):
                for s in chunks(channels, CHANNELS):
                    given = data[image, s, down, right]
                    part = scratch[:given.size].reshape(given.shape)
                    np.copyto(part, given)
                    flat = part.reshape(len(part), prod(part.shape[1:]))
                    best = flat.argmax(1)
                    out[row, s, i, j] = flat[np.arange(len(flat)), best]
                    y, x = np.divmod(best, right.stop - right.start)
                    places[row, s, i, j] = (down.start + y) * columns + right.start + x

    def algorithms(self, p: RoiPoolingParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        _, channels, rows, columns = ins[0].shape
        shape = (min(channels, CHANNELS) * rows * columns,)
        return (Algorithm("regions", Workspace.bytes_for((shape, ins[0].dtype))),)

    def gradient(self, b: Builder, p: RoiPoolingParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_roi_pooling_backward", [grads[0], ins[1], outs[1], ins[0]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"pooled_size": bins, "spatial_scale": scale}, ((4, 2, 6, 7), (3, 5)), integer={"rois": 4})
                for bins, scale in (((2, 2), 1.0), ((3, 2), 1.7), ((1, 4), 0.5), ((2, 2), 2.5))]


@register
class _RoiPoolingBackward(_RoiOp):
    """grad added where each value was found; of data only the shape is read."""

    name = "_roi_pooling_backward"
    Params = RoiPoolingParams

    def inputs(self, p: RoiPoolingParams) -> tuple[str, ...]:
        return ("grad", "rois", "maxidx", "data")

    def outputs(self, p: RoiPoolingParams) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: RoiPoolingParams) -> tuple[int, ...]:
        return (3,)

    def infer_shape(self, p: RoiPoolingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, rois, out = self.shapes(p, merge_shapes(ins[3], outs[0]), ins[1], merge_shapes(ins[0], ins[2]))
        return [out, rois, out, data], [data]

    def infer_dtype(self, p: RoiPoolingParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        known = next((t for t in (ins[0], ins[1], ins[3], outs[0]) if t is not None), None)
        return [ins[0] or known, ins[1] or known, np.dtype(np.int32), ins[3] or known], [outs[0] or known]

    def compute(self, p: RoiPoolingParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, rois, places, _ = ins
        out = outs[0]
        out.fill(0)
        planes = out.reshape(*out.shape[:2], prod(out.shape[2:]))
        for row, image, _ in _regions("ROIPooling", rois, len(out)):
            for i in range(grad.shape[2]):
                for j in range(grad.shape[3]):
                    for s in chunks(grad.shape[1], PIECE):
                        place = places[row, s, i, j]
                        used = np.flatnonzero(place >= 0)   # each in a plane of its own
                        planes[image, s.start + used, place[used]] += grad[row, s.start + used, i, j]


def _axis_samples(p: RoiAlignParams, begin: np.floating, end: np.floating, bins: int, kind: np.dtype,
                  ) -> tuple[np.floating, np.floating, int]:
    """(begin, length of a bin, samples of a bin) along one axis of a region."""
    half, scale = kind.type(0.5 if p.aligned else 0.0), kind.type(p.spatial_scale)
    first, last = _clipped(np.array([begin, end], kind) * scale - half)
    length = last - first
    if not p.aligned:
        length = max(length, kind.type(1))
    step = length / kind.type(bins)
    return first, step, p.sample_ratio if p.sample_ratio > 0 else math.ceil(step)


def _axis_weights(p: RoiAlignParams, begin: np.floating, end: np.floating, out: np.ndarray) -> slice:
    """Write how much each pixel of an axis counts in each bin, (bins, pixels); return the pixels that count."""
    bins, pixels = out.shape
    kind = out.dtype
    first, step, count = _axis_samples(p, begin, end, bins, kind)
    out.fill(0)
    low, high = pixels, 0
    share = kind.type(1) / kind.type(max(count, 1))
    for k in range(bins):
        start = first + kind.type(k) * step
        # Samples below -1 or beyond the last pixel count as 0: nothing is lost by leaving out what lies farther off.
        skipped = 0 if step <= 0 else max(0, math.floor((-2 - start) * count / step))
        for i in range(skipped, count):
            at = start + (kind.type(i) + kind.type(0.5)) * step / kind.type(count)
            if at > pixels:
                break
            if at < -1:
                continue
            at = max(at, kind.type(0))
            near = min(int(at), pixels - 1)
            rest = at - kind.type(near) if near < pixels - 1 else kind.type(0)
            out[k, near] += (kind.type(1) - rest) * share
            if near < pixels - 1:
                out[k, near + 1] += rest * share
            low, high = min(low, near), max(high, min(near + 2, pixels))
    return slice(low, max(low, high))


class _AlignOp(_RoiOp):
    """What ROIAlign and its gradient share: the output is rows (R, bins, H) x data x columns (R, bins, W)."""

    Params = RoiAlignParams

    def channels(self, p: RoiAlignParams, channels: int | None) -> int | None:  # type: ignore[override]
        height, width = self.bins(p)
        if p.sample_ratio > MOST_SAMPLES:
            raise ShapeError(f"sample_ratio {p.sample_ratio}; {MOST_SAMPLES} samples of a bin along an axis are "
                             f"the most")
        if channels is None or not p.position_sensitive:
            return channels
        if channels % (height * width):
            raise ShapeError(f"{channels} channels cannot be parted among {height} x {width} bins with channels of "
                             f"their own")
        return channels // (height * width)

    def scratch(self, p: RoiAlignParams, data: TensorType, out: TensorType) -> list[tuple[Shape, np.dtype]]:
        """The weights of rows and columns, and the product of an image and the columns."""
        (_, _, rows, columns), (height, width) = data.shape, out.shape[2:]
        between = (out.shape[1], height, width, rows) if p.position_sensitive else (out.shape[1], rows, width)
        return [((height, rows), data.dtype), ((width, columns), data.dtype), (between, data.dtype),
                ((out.shape[1], rows, columns), data.dtype)]

    def weights(self, p: RoiAlignParams, rois: np.ndarray, images: int, rows: np.ndarray, columns: np.ndarray,
                ) -> Iterator[tuple[int, int, slice, slice]]:
        """(row, image, rows, columns) of each region that reads pixels, with its weights set."""
        for row, image, (x1, y1, x2, y2) in _regions("ROIAlign", rois, images):
            down, right = _axis_weights(p, y1, y2, rows), _axis_weights(p, x1, x2, columns)
            if down.start < down.stop and right.start < right.stop:
                yield row, image, down, right


@register
class RoiAlign(_AlignOp):
    """Means of samples of data (N, C, H, W) in each bin of each region: (R, C, *pooled_size).

    A sample is taken between its four nearest pixels; those more than one pixel outside data count as 0. A region of an
    image that there is not raises. No gradient reaches rois.
    """

    name = "_contrib_ROIAlign"

    def inputs(self, p: RoiAlignParams) -> tuple[str, ...]:
        return ("data", "rois")

    def infer_shape(self, p: RoiAlignParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, rois, out = self.shapes(p, ins[0], ins[1], outs[0])
        return [data, rois], [out]

    def algorithms(self, p: RoiAlignParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("regions", Workspace.bytes_for(*self.scratch(p, ins[0], outs[0])[:3])),)

    def compute(self, p: RoiAlignParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (data, rois), (out,) = ins, outs
        kinds = self.scratch(p, TensorType(data.shape, data.dtype), TensorType(out.shape, out.dtype))
        rows, columns, between = (work.array(*kind) for kind in kinds[:3])
        out.fill(0)
        for row, image, down, right in self.weights(p, rois, len(data), rows, columns):
            planes = data[image][:, down, right]
            if p.position_sensitive:
                parted = planes.reshape(*out.shape[1:], *planes.shape[1:])
                part = between[..., down]
                np.einsum("cpqyx,qx->cpqy", parted, columns[:, right], out=part)
                np.einsum("cpqy,py->cpq", part, rows[:, down], out=out[row])
            else:
                part = between[:, down]
                np.matmul(planes, columns[:, right].T, out=part)
                np.matmul(rows[:, down], part, out=out[row])

    def gradient(self, b: Builder, p: RoiAlignParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None, None]
        return [only(b.node("_roi_align_backward", [grads[0], ins[1], ins[0]], **vars(p))), None]

    def samples(self) -> Sequence[Sample]:
        cases = ({"spatial_scale": 1.0}, {"spatial_scale": 1.7, "sample_ratio": 2}, {"spatial_scale": 2.6},
                 {"spatial_scale": 0.9, "aligned": True, "sample_ratio": 3},
                 {"spatial_scale": 1.6, "position_sensitive": True})
        return [Sample({"pooled_size": (2, 3), **case}, ((4, 12, 6, 7), (3, 5)), integer={"rois": 4})
                for case in cases]


@register
class _RoiAlignBackward(_AlignOp):
    """grad shared among the pixels of each sample; of data only the shape is read."""

    name = "_roi_align_backward"

    def inputs(self, p: RoiAlignParams) -> tuple[str, ...]:
        return ("grad", "rois", "data")

    def outputs(self, p: RoiAlignParams) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: RoiAlignParams) -> tuple[int, ...]:
        return (2,)

    def infer_shape(self, p: RoiAlignParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, rois, out = self.shapes(p, merge_shapes(ins[2], outs[0]), ins[1], ins[0])
        return [out, rois, data], [data]

    def algorithms(self, p: RoiAlignParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("regions", Workspace.bytes_for(*self.scratch(p, outs[0], ins[0]))),)

    def compute(self, p: RoiAlignParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (grad, rois, _), (out,) = ins, outs
        kinds = self.scratch(p, TensorType(out.shape, out.dtype), TensorType(grad.shape, grad.dtype))
        rows, columns, between, planes = (work.array(*kind) for kind in kinds)
        out.fill(0)
        for row, image, down, right in self.weights(p, rois, len(out), rows, columns):
            target = out[image][:, down, right]
            if p.position_sensitive:
                parted = target.reshape(*grad.shape[1:], *target.shape[1:])
                for i in range(grad.shape[2]):
                    for j in range(grad.shape[3]):
                        found = planes[:, down, right]
                        np.einsum("c,y,x->cyx", grad[row, :, i, j], rows[i, down], columns[j, right], out=found)
                        np.add(parted[:, i, j], found, out=parted[:, i, j])
            else:
                part, found = between[:, down], planes[:, down, right]
                np.matmul(rows[:, down].T, grad[row], out=part)
                np.matmul(part, columns[:, right], out=found)
                np.add(target, found, out=target)
