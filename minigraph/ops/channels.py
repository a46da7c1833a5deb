"""Statistics a channel: sums over all other axes, a part of the tensor at a time, in planned scratch.

Every tensor is seen as (batch, before, channels, after). A part is a canonical chunk of the batch, or some
channels of one image where that alone is large; sums are taken in the dtype within a part, in float64 across.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ..base import Shape
from .chunks import CHUNK_BYTES, chunk_rows, chunks
from .op import ShapeError, Workspace, format_shape, merge_shapes

Part = tuple[slice, slice, slice]
PRODUCT_WIDTH = 32
"""Elements after the channel axis from which BLAS sums faster, as a product with ones, than NumPy."""


def infer_channels(axis: int, data: Any, vectors: Sequence[Any]) -> tuple[Any, Any]:
    """Shape of data with its channel axis, and shape of the vectors, completed from each other."""
    vector: Any = merge_shapes((None,), *vectors)
    if data is None:
        return None, vector
    if not -len(data) <= axis < len(data):
        raise ShapeError(f"axis {axis} is outside data of shape {format_shape(data)}")
    place = axis % len(data)
    try:
        vector = merge_shapes(vector, (data[place],))
    except ShapeError as error:
        raise ShapeError(f"gamma and beta have shape {format_shape(vector)}, but data {format_shape(data)} "
                         f"has {data[place]} channels on axis {axis}") from error
    return (*data[:place], vector[0], *data[place + 1:]), vector


def channel_layout(axis: int, shape: Shape) -> Shape:
    """`shape` as (batch, before, channels, after); the batch is 1 where axis 0 is the channel axis."""
    axis %= len(shape)
    batch = shape[0] if axis else 1
    return batch, prod(shape[1:axis]), shape[axis], prod(shape[axis + 1:])


def _channel_part(layout: Shape, itemsize: int) -> int:
    """Channels of a part: all, unless one image exceeds a chunk's bytes."""
    image_bytes = prod(layout[1:]) * itemsize
    return layout[2] if image_bytes <= CHUNK_BYTES else max(1, layout[2] * CHUNK_BYTES // image_bytes)


def channel_parts(layout: Shape, itemsize: int) -> Iterator[Part]:
    """The parts of a tensor of this layout, in ascending order."""
    channels = _channel_part(layout, itemsize)
    for s in chunks(layout[0], chunk_rows(prod(layout[1:]) * itemsize)):
        for c in chunks(layout[2], channels):
            yield s, slice(None), c


def statistics_scratch(axis: int, data: Any) -> tuple[tuple[Shape, Any], ...]:
    """Scratch of the statistics: one part of the tensor, and ones."""
    layout, itemsize = channel_layout(axis, data.shape), data.dtype.itemsize
    rows = min(layout[0], chunk_rows(prod(layout[1:]) * itemsize))
    part = rows * layout[1] * _channel_part(layout, itemsize) * layout[3]
    return ((part,), data.dtype), ((layout[3],), data.dtype)


class Statistics:
    """Sums over all but the channel axis, in planned scratch."""

    def __init__(self, axis: int, data: np.ndarray, work: Workspace) -> None:
        self.layout = channel_layout(axis, data.shape)
        self.count = self.layout[0] * self.layout[1] * self.layout[3]
        self.data = data.reshape(self.layout)
        self.parts = list(channel_parts(self.layout, data.dtype.itemsize))
        self._part, self._ones = (work.array(*array) for array in statistics_scratch(axis, data))
        self._ones.fill(1)

    def sum(self, tensor: np.ndarray) -> np.ndarray:
        """Sums of a part (batch, before, channels, after) a channel."""
        if tensor.shape[1] == 1 and tensor.shape[3] >= PRODUCT_WIDTH:
            return np.add.reduce(np.matmul(tensor[:, 0], self._ones), axis=0)
        return np.add.reduce(tensor, axis=(0, 1, 3))

    def centred(self, part: Part, mean: np.ndarray) -> np.ndarray:
        """A part of the data less the mean of its channel, in scratch that the next part takes over."""
        values = self.data[part]
        out = self._part[:values.size].reshape(values.shape)
        return np.subtract(values, mean[part[2], None], out=out)

    def total(self, tensor: np.ndarray) -> np.ndarray:
        """Sums of a whole tensor a channel, over parts in ascending order, in float64."""
        total = np.zeros(self.layout[2])
        for part in self.parts:
            total[part[2]] += self.sum(tensor[part])
        return total

    def moments(self, mean: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Sums of w and of w * (data - mean) a channel in float64; w is data - mean itself when not given."""
        sums, products = np.zeros(self.layout[2]), np.zeros(self.layout[2])
        for part in self.parts:
            centred = self.centred(part, mean)
            w = centred if weight is None else weight[part]
            sums[part[2]] += self.sum(w)
            products[part[2]] += dot(w, centred)
        return sums, products


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums a * b over all axes but the channels' of (batch, before, channels, after)."""
    return np.einsum("nmcl,nmcl->c", a, b)


def normalise(data: np.ndarray, mean: np.ndarray, scale: np.ndarray, shift: np.ndarray, out: np.ndarray,
              parts: Sequence[Part]) -> None:
    """Write out = (data - mean) * scale + shift, a part at a time so that it stays in the cache."""
    mean, scale, shift = (vector.astype(out.dtype, copy=False)[:, None] for vector in (mean, scale, shift))
    for part in parts:
        values = out[part]
        np.subtract(data[part], mean[part[2]], out=values)
        np.multiply(values, scale[part[2]], out=values)
        np.add(values, shift[part[2]], out=values)
