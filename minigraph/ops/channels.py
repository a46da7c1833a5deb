"""Statistics a channel: sums over all other axes, a part of the tensor at a time, in planned scratch.

Every tensor is seen as (batch, before, channels, after). A part is a canonical chunk of the batch, or some
channels of one image where that alone is large; sums are taken in the dtype within a part, in float64 across.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Shape
from .activation import FORWARD
from .chunks import CHUNK_BYTES, chunk_rows, chunks
from .op import ShapeError, Workspace, format_shape, merge_shapes

Part = tuple[slice, slice, slice]
PartOf = Callable[[Part], np.ndarray]
"""What gives the parts of a tensor, perhaps by computing them."""
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
    """Channels of a part, at least 1: all, unless one image exceeds a chunk's bytes."""
    image_bytes = prod(layout[1:]) * itemsize
    return max(1, layout[2] if image_bytes <= CHUNK_BYTES else layout[2] * CHUNK_BYTES // image_bytes)


def channel_parts(layout: Shape, itemsize: int) -> Iterator[Part]:
    """The parts of a tensor of this layout, in ascending order."""
    channels = _channel_part(layout, itemsize)
    for s in chunks(layout[0], chunk_rows(prod(layout[1:]) * itemsize)):
        for c in chunks(layout[2], channels):
            yield s, slice(None), c


def statistics_scratch(axis: int, data: Any) -> tuple[tuple[Shape, Any], ...]:
    """Scratch of the statistics: one part of the tensor, and ones."""
    layout = channel_layout(axis, data.shape)
    return part_scratch(layout, data.dtype), ((layout[3],), data.dtype)


def part_scratch(layout: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
    """Scratch for the largest part of a tensor of this layout."""
    rows = min(layout[0], chunk_rows(prod(layout[1:]) * dtype.itemsize))
    return (rows * layout[1] * _channel_part(layout, dtype.itemsize) * layout[3],), dtype


class Statistics:
    """Sums over all but the channel axis, in planned scratch."""

    def __init__(self, axis: int, data: np.ndarray, work: Workspace) -> None:
        self.layout = channel_layout(axis, data.shape)
        self.count = self.layout[0] * self.layout[1] * self.layout[3]
        self.data = data.reshape(self.layout)
        self.parts = list(channel_parts(self.layout, data.dtype.itemsize))
        self.part, self._ones = (work.array(*array) for array in statistics_scratch(axis, data))
        self._ones.fill(1)

    def sum(self, tensor: np.ndarray) -> np.ndarray:
        """Sums of a part (batch, before, channels, after) a channel."""
        if tensor.shape[1] == 1 and tensor.shape[3] >= PRODUCT_WIDTH:
            return np.add.reduce(np.matmul(tensor[:, 0], self._ones), axis=0)
        return np.add.reduce(tensor, axis=(0, 1, 3))

    def centred(self, part: Part, mean: np.ndarray) -> np.ndarray:
        """A part of the data less the means of its channels, in scratch that the next part takes over."""
        return np.subtract(self.data[part], mean[:, None], out=self.scratch(part))

    def scratch(self, part: Part) -> np.ndarray:
        """The scratch of a part."""
        values = self.data[part]
        return self.part[:values.size].reshape(values.shape)

    def total(self, tensor: np.ndarray) -> np.ndarray:
        """Sums of a whole tensor a channel, over parts in ascending order, in float64."""
        total = np.zeros(self.layout[2])
        for part in self.parts:
            total[part[2]] += self.sum(tensor[part])
        return total

    def moments(self, mean: np.ndarray, weight: PartOf) -> tuple[np.ndarray, np.ndarray]:
        """Sums of weight and of weight * (data - mean) a channel in float64.

        What gives the weight may use the scratch of the part, but the weight must not lie there.
        """
        sums, products = np.zeros(self.layout[2]), np.zeros(self.layout[2])
        self.add_moments(mean, weight, sums, products)
        return sums, products

    def merge_moments(self, means: np.ndarray, squares: np.ndarray, rows_before: int = 0) -> None:
        """Add this tensor to moments a channel: float64 `means` and sums of `squares` of deviations from them, which
        are those of `rows_before` rows.

        A part is centred by its mean, and once more by the mean of what the rounding of that left; parts are merged in
        ascending order by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
        variances", 1979.
        """
        row = self.layout[1] * self.layout[3]
        for part in self.parts:
            images, _, c = part
            before, count = (rows_before + images.start) * row, (images.stop - images.start) * row
            if not count:
                continue
            first = (self.sum(self.data[part]) / count).astype(self.data.dtype, copy=False)
            centred = self.centred(part, first)
            rest = self.sum(centred).astype(np.float64)
            spread = np.maximum(dot(centred, centred) - rest * rest / count, 0)
            apart = first + rest / count - means[c]
            means[c] += apart * (count / (before + count))
            squares[c] += spread + apart * apart * (before * (count / (before + count)))

    def add_moments(self, mean: np.ndarray, weight: PartOf, sums: np.ndarray, products: np.ndarray) -> None:
        """As `moments`, added to `sums` and `products`."""
        for part in self.parts:
            w = weight(part)
            centred = self.centred(part, mean[part[2]])
            sums[part[2]] += self.sum(w)
            products[part[2]] += dot(w, centred)

    @staticmethod
    def rows(axis: int, data: Any) -> int:
        """Rows of a canonical chunk of the batch."""
        return chunk_rows(prod(channel_layout(axis, data.shape)[1:]) * data.dtype.itemsize)


def parts_of(tensor: np.ndarray) -> PartOf:
    """The parts of a tensor (batch, before, channels, after)."""
    return lambda part: tensor[part]


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums a * b over all axes but the channels' of (batch, before, channels, after)."""
    return np.einsum("nmcl,nmcl->c", a, b)


@dataclass(frozen=True)
class Epilogue:
    """What follows the normalisation of each part while it is in the cache: `addend` (batch, before, channels, after)
    is added, for which `scratch` holds a part, so that the output may lie on it; then comes an activation."""

    act_type: str | None = None
    addend: np.ndarray | None = None
    scratch: np.ndarray | None = None

    def place(self, values: np.ndarray) -> np.ndarray:
        """Where a part is normalised whose output is `values`."""
        return values if self.scratch is None else self.scratch[:values.size].reshape(values.shape)

    def finish(self, part: Part, normalised: np.ndarray, values: np.ndarray) -> None:
        """Write the output of a part."""
        if self.addend is not None:
            np.add(normalised, self.addend[part], out=values)
        if self.act_type is not None:
            FORWARD[self.act_type](values, values, values)


def normalise(data: np.ndarray, mean: np.ndarray, scale: np.ndarray, shift: np.ndarray, out: np.ndarray,
              parts: Sequence[Part], epilogue: Epilogue = Epilogue()) -> None:
    """Write out = (data - mean) * scale + shift and what follows, a part at a time so that it stays in the cache."""
    vectors = [vector.astype(out.dtype, copy=False)[:, None] for vector in (mean, scale, shift)]
    for part in parts:
        values = out[part]
        normalised = epilogue.place(values)
        normalise_part(data[part], part[2], vectors, normalised)
        epilogue.finish(part, normalised, values)


def normalise_part(values: np.ndarray, channels: slice, vectors: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Write out = (values - mean) * scale + shift for a part with these channels; the vectors are columns."""
    mean, scale, shift = vectors
    np.subtract(values, mean[channels], out=out)
    np.multiply(out, scale[channels], out=out)
    np.add(out, shift[channels], out=out)
