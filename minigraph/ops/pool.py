"""Pooling over one to three spatial axes: maximum, average or sum of windows, or of whole images.

Each tap of the window is one strided operation over a chunk of images, clipped where the window leaves the
image: nothing is padded. The convention "full" is ceil less a last window that begins at or past input + left
pad, where MXNet keeps such a window and pools nothing.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .chunks import chunk_rows, chunks
from .op import Arrays, Encoding, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .registry import get_op, register
from .window import ALL, LAYOUTS, check_rank, clip, per_axis

Types = Sequence[TensorType]
MOST_PLACES = 256
"""Elements of a window of which each has a number in a byte."""


@dataclass(frozen=True)
class PoolingParams:
    """Parameters of Pooling, and of its gradient."""

    kernel: tuple[int, ...] = param((), "shape", "window size, (w,), (h, w) or (d, h, w)")
    pool_type: str = param("max", "str", "what a window gives", ("max", "avg", "sum"))
    global_pool: bool = param(False, "bool", "whether the window is the whole image; kernel is ignored then")
    pooling_convention: str = param("valid", "str", "output size: floor, ceil, or ceil(input / stride)",
                                    ("valid", "full", "same"))
    stride: tuple[int, ...] = param((), "shape", "step of the window an axis; 1 when not given")
    pad: tuple[int, ...] = param((), "shape", "padding on either side of an axis; 0 when not given")
    p_value: int | None = param(None, "int", "exponent of Lp pooling, which is not offered")
    count_include_pad: bool | None = param(None, "bool", "whether averages count padding; yes when not given")
    layout: str | None = param(None, "str", "layout of the data; channels come second", LAYOUTS)


@dataclass(frozen=True)
class Windows:
    """Where windows lie: for each tap in row-major order, which outputs read which inputs; `places` are the numbers of
    these taps, counted with those that no window has in the image."""

    taps: tuple[tuple[tuple[slice, ...], tuple[slice, ...]], ...]
    counts: tuple[tuple[int, ...], ...]         # an axis: elements that each window counts
    disjoint: bool                              # no input lies in two windows
    places: tuple[int, ...]

    @property
    def count(self) -> int | None:
        """Elements that every window counts, or None where windows differ."""
        uniform = all(len(set(axis)) == 1 for axis in self.counts)
        return prod(axis[0] for axis in self.counts) if uniform else None


@register
class Pooling(Op):
    """Maximum, average or sum of each window of data (N, C, *spatial); padding never wins a maximum.

    An average divides by the elements of the window inside the padded image, or with count_include_pad False
    inside the image itself.
    """

    name = "Pooling"
    Params = PoolingParams
    recompute = "cheap"

    def infer_shape(self, p, ins, outs):
        data, out = ins[0], outs[0]
        if p.global_pool and data is None and out is not None:
            data = (None,) * len(out)
        if not p.global_pool:
            check_rank(data, len(p.kernel), p.layout)
            data = data or (None,) * (len(p.kernel) + 2)
        if data is None:
            return [None], [out]
        if 0 in data[2:]:
            raise ShapeError(f"data {format_shape(data)} is empty along axis {data.index(0, 2)}; a window has nothing "
                             f"to take there")
        out = merge_shapes(out, (*data[:2], *_out_spatial(p, data)))
        return [merge_shapes(data, (*out[:2], *data[2:]))], [out]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        if grads[0] is None or not wanted[0]:
            return [None]
        saved = [ins[0], outs[0]] if p.pool_type == "max" and not p.global_pool else [ins[0]]
        return b.node("_pooling_backward", [grads[0], *saved], **vars(p))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, out = ins[0], outs[0]
        if p.global_pool:
            _pool_whole(p, data, out)
            return
        windows = windows_of(p, data.shape[2:], out.shape[2:])
        counts = work.array(*_counts_array(p, data.shape, out.shape, out.dtype))
        divisor = _divisor(p, windows, counts)
        reduce = np.maximum if p.pool_type == "max" else np.add
        for s in image_chunks(data):
            _pool(windows, reduce, data[s], out[s])
            if divisor is not None:
                np.divide(out[s], divisor, out=out[s])

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        counts = _counts_array(p, ins[0].shape, outs[0].shape, outs[0].dtype)
        return (Algorithm(workspace_bytes=Workspace.bytes_for(counts)),)

    def encoded(self, p: Any, encoder: str, q: Any, of: Sequence[int]) -> tuple[str, Any] | None:
        """The winners of data and output."""
        return ("_pooling_with_winners", p) if encoder == "_pooling_winners" and tuple(of) == (0, 1) else None

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        window = prod(ins[0].shape[2:] if p.global_pool else p.kernel)
        return Cost(float(window * outs[0].size), ins[0].nbytes, outs[0].nbytes)

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def samples(self) -> Sequence[Sample]:
        two = {"kernel": (2, 2), "stride": (2, 2)}
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({**two, "pool_type": t, "pooling_convention": c}, (2, 3, 5, 7))
            for t in ("max", "avg", "sum") for c in ("valid", "full", "same")]
        padded = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1)}
        cases += [({**padded, "pool_type": t, "count_include_pad": c}, (2, 2, 6, 5))
                  for t in ("max", "avg") for c in (True, False)]
        cases += [({"global_pool": True, "pool_type": t}, (2, 3, 4, 5)) for t in ("max", "avg", "sum")]
        cases += [({"kernel": (3,), "pool_type": t}, (2, 2, 9)) for t in ("max", "avg")]
        cases += [({"kernel": (2, 2, 3), "stride": (2, 1, 2), "pad": (0, 1, 1), "pool_type": t,
                    "pooling_convention": "full"}, (1, 2, 4, 3, 5)) for t in ("max", "avg")]
        return [Sample(params, (shape,), differentiable=params.get("pool_type") != "max")
                for params, shape in cases]


@register
class _PoolingBackward(Op):
    """Gradient by data, from (out_grad, data) and for a windowed maximum also the output.

    A maximum gives the whole gradient to its first maximal element in row-major order. Averages and sums read
    out_grad alone.
    """

    name = "_pooling_backward"
    Params = PoolingParams
    recompute = "cheap"

    def inputs(self, p: PoolingParams) -> tuple[str, ...]:
        return ("out_grad", "data", "output") if _needs_output(p) else ("out_grad", "data")

    def infer_shape(self, p, ins, outs):
        (data,), (out,) = get_op(Pooling.name).infer_shape(
            p, [merge_shapes(ins[1], outs[0])], [merge_shapes(ins[0], *ins[2:])])
        return [out, data, *[out] * len(ins[2:])], [data]

    def unread(self, p: Any) -> tuple[int, ...]:
        return () if p.pool_type == "max" else (1,)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = [work.array(shape, dtype) for shape, dtype in self._arrays(p, *ins[:2])]
        if p.global_pool:
            _spread_whole(p, ins[0], ins[1], outs[0], scratch)
            return
        windows = windows_of(p, ins[1].shape[2:], ins[0].shape[2:])
        if p.pool_type == "max":
            for s in image_chunks(ins[1]):
                _spread_maximum(windows, ins[0][s], ins[1][s], ins[2][s], outs[0][s], scratch)
        else:
            _spread_evenly(windows, _divisor(p, windows, scratch[0]), ins[0], outs[0], scratch[1])

    def _arrays(self, p: Any, grad: Any, data: Any) -> list[tuple[Shape, Any]]:
        """Scratch: winners (global), masks and terms of a chunk (maximum), or counts and quotients."""
        rows = min(data.shape[0], chunk_rows(prod(data.shape[1:]) * grad.dtype.itemsize))
        part = (rows, *grad.shape[1:])
        if p.global_pool:
            return [(grad.shape[:2], np.intp)] * 2 if p.pool_type == "max" else []
        if p.pool_type == "max":
            return [(part, np.bool_)] * 3 + [(part, grad.dtype)]
        counts = _counts_array(p, data.shape, grad.shape, grad.dtype)
        return [counts, (part if p.pool_type == "avg" else (0,), grad.dtype)]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*self._arrays(p, *ins[:2]))),)

    def encoding(self, p: Any, ins: Types) -> Encoding | None:
        """The place of the first maximal element in each window, in a byte."""
        if not _needs_output(p) or prod(p.kernel) > MOST_PLACES:
            return None
        winners = TensorType(ins[2].shape, np.dtype(np.uint8), ins[2].layout)
        reader = "_pooling_by_winners"
        params = get_op(reader).Params(**vars(p), size=ins[1].shape[2:])
        return Encoding((1, 2), "_pooling_winners", p, winners, reader, params)

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)


def _needs_output(p: PoolingParams) -> bool:
    return p.pool_type == "max" and not p.global_pool


def _out_spatial(p: PoolingParams, data: PartialShape) -> tuple[int | None, ...]:
    assert data is not None
    if p.global_pool:
        if len(data) < 3:
            raise ShapeError(f"data has shape {format_shape(data)}; it needs batch, channels, spatial axes")
        return (1,) * (len(data) - 2)
    stride, pad = per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.pad, p.kernel, 0, "pad")
    if p.pooling_convention == "same" and any(pad):
        raise ShapeError(f"pad {pad}: the convention \"same\" pads by itself; leave pad out")
    for kernel, margin in zip(p.kernel, pad, strict=True):
        if margin >= kernel:
            raise ShapeError(f"pad {pad} must be smaller than kernel {p.kernel} on every axis; else a window "
                             f"would hold padding alone")
    return tuple(None if x is None else _out_length(p, data, x, *sizes)
                 for x, *sizes in zip(data[2:], p.kernel, stride, pad, strict=True))


def _out_length(p: PoolingParams, data: PartialShape, length: int, kernel: int, stride: int, pad: int) -> int:
    room = length + 2 * pad - kernel
    if p.pooling_convention == "same":
        count = -(-length // stride)
    else:
        if room < 0:
            raise ShapeError(f"kernel {p.kernel} is larger than data {format_shape(data)} with pad "
                             f"{p.pad or 0}; pad more or take a smaller kernel")
        count = (room // stride if p.pooling_convention == "valid" else -(-room // stride)) + 1
    # A window must begin before the image ends.
    return min(count, (length + pad - 1) // stride + 1)


@lru_cache(maxsize=1024)
def windows_of(p: PoolingParams, spatial: Shape, out: Shape) -> Windows:
    """The windows over images of `spatial` size that make outputs of the size `out`."""
    stride, pad = per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.pad, p.kernel, 0, "pad")
    taps, places = [], []
    for place, tap in enumerate(product(*map(range, p.kernel))):
        cuts = [clip(o, x, s, t - m) for o, x, s, t, m in zip(out, spatial, stride, tap, pad, strict=True)]
        if None not in cuts:
            taps.append((tuple(cut[0] for cut in cuts if cut), tuple(cut[1] for cut in cuts if cut)))
            places.append(place)
    counts = tuple(tuple(_counted(p, o * s - m, k, x, m) for o in range(n))
                   for n, x, k, s, m in zip(out, spatial, p.kernel, stride, pad, strict=True))
    disjoint = all(s >= k for s, k in zip(stride, p.kernel, strict=True))
    return Windows(tuple(taps), counts, disjoint, tuple(places))


def _counted(p: PoolingParams, start: int, kernel: int, length: int, pad: int) -> int:
    """Elements of an axis that a window beginning at `start` counts in an average."""
    if p.count_include_pad is False:
        return min(start + kernel, length) - max(start, 0)
    return min(start + kernel, length + pad) - start


def _counts_array(p: PoolingParams, data: Shape, out: Shape, dtype: Any) -> tuple[Shape, Any]:
    """Shape and dtype of the counts of an average whose windows differ; else of nothing."""
    if p.pool_type != "avg" or p.global_pool or windows_of(p, data[2:], out[2:]).count is not None:
        return (0,), dtype
    return out[2:], dtype


def _divisor(p: PoolingParams, windows: Windows, counts: np.ndarray) -> np.ndarray | int | None:
    """What an average divides by: a number, or counts written to the scratch array; None if nothing."""
    if p.pool_type != "avg" or windows.count == 1:
        return None
    if windows.count is not None:
        return windows.count
    counts.fill(1)
    for axis, values in enumerate(windows.counts):
        counts *= np.array(values, counts.dtype).reshape(-1, *(1,) * (counts.ndim - axis - 1))
    return counts


def image_chunks(data: np.ndarray) -> Iterator[slice]:
    """The canonical chunks of the images of a batch."""
    return chunks(len(data), chunk_rows(prod(data.shape[1:]) * data.dtype.itemsize))


def _pool(windows: Windows, reduce: np.ufunc, data: np.ndarray, out: np.ndarray) -> None:
    """Reduce the taps of each window into `out`."""
    full = tuple(slice(0, n) for n in out.shape[2:])
    first = next((tap for tap in windows.taps if tap[0] == full), None)
    if first is None:
        out.fill(-np.inf if reduce is np.maximum else 0)
    else:       # a tap that no window lacks: it need not be combined with a neutral value
        np.copyto(out, data[(ALL, ALL, *first[1])])
    for tap in windows.taps:
        if tap is not first:
            part = out[(ALL, ALL, *tap[0])]
            reduce(part, data[(ALL, ALL, *tap[1])], out=part)


def _pool_whole(p: PoolingParams, data: np.ndarray, out: np.ndarray) -> None:
    images, flat = data.reshape(*data.shape[:2], prod(data.shape[2:])), out.reshape(out.shape[:2])
    if p.pool_type == "max":
        np.maximum.reduce(images, axis=2, out=flat)
        return
    np.add.reduce(images, axis=2, out=flat)
    if p.pool_type == "avg":
        np.divide(flat, images.shape[2], out=flat)


def _spread_whole(p: PoolingParams, grad: np.ndarray, data: np.ndarray, out: np.ndarray,
                  scratch: Sequence[np.ndarray]) -> None:
    images = out.reshape(*out.shape[:2], prod(out.shape[2:]))
    if p.pool_type == "max":
        winners, starts = scratch
        np.argmax(data.reshape(images.shape), axis=2, out=winners)
        np.cumsum(np.broadcast_to(np.intp(images.shape[2]), starts.size), out=starts.reshape(-1))
        np.add(winners, starts, out=winners)
        np.subtract(winners, images.shape[2], out=winners)
        out.fill(0)
        out.reshape(-1)[winners.reshape(-1)] = grad.reshape(-1)
    elif p.pool_type == "avg":
        np.divide(grad.reshape(*grad.shape[:2], 1), images.shape[2], out=images)
    else:
        np.copyto(images, grad.reshape(*grad.shape[:2], 1))


def _spread_evenly(windows: Windows, divisor: np.ndarray | int | None, grad: np.ndarray, out: np.ndarray,
                   scratch: np.ndarray) -> None:
    """Write `out` = for each input the sum of grad / divisor over the windows that hold it."""
    for s in image_chunks(out):
        out[s].fill(0)
        share = grad[s]
        if divisor is not None:
            share = np.divide(share, divisor, out=scratch[:len(share)])
        for into, tap in windows.taps:
            part = out[(s, ALL, *tap)]
            if windows.disjoint:
                np.copyto(part, share[(ALL, ALL, *into)])
            else:
                np.add(part, share[(ALL, ALL, *into)], out=part)


def _spread_maximum(windows: Windows, grad: np.ndarray, data: np.ndarray, pooled: np.ndarray,
                    out: np.ndarray, scratch: Sequence[np.ndarray]) -> None:
    """Write `out` = grad at the first maximal element of each window, zero elsewhere."""
    undecided, loses, wins, term = (array[:len(grad)] for array in scratch)
    undecided.fill(True)
    out.fill(0)
    for into, read in windows.taps:
        index, tap = (ALL, ALL, *into), (ALL, ALL, *read)
        still, lose, win = undecided[index], loses[index], wins[index]
        np.less(data[tap], pooled[index], out=lose)
        np.greater(still, lose, out=win)        # undecided and not losing
        np.logical_and(still, lose, out=still)
        part = out[tap]
        if windows.disjoint:
            np.multiply(grad[index], win, out=part)
        else:
            np.multiply(grad[index], win, out=term[index])
            np.add(part, term[index], out=part)
