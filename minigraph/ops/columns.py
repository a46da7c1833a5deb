"""Column matrices: images laid out so that a convolution is a few matrix products a chunk.

A full column matrix repeats every pixel once a kernel tap. Here only the taps of the *last* kernel axes are
spread out ("rows"): for a tap of the first axis, the operand is the same matrix from another row on, a
contiguous block that BLAS takes as it is. A 3 x 3 convolution so copies 3 times instead of 9, and adds 3
products. Where the weight is larger than the images, spreading all taps ("columns") is cheaper, since it
takes the weight as it lies. `column_products.py` multiplies, and `tiles.py` cuts images that are too large.
All scratch comes from the caller, as flat arrays of the sizes told here.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod

import numpy as np

from ..base import Shape
from .chunks import chunk_rows
from .window import ALL, clip

LARGE_IMAGE = 256
"""Output pixels from which an image is multiplied alone: its product is written straight to the output."""
SMALL_CHUNK = 8
"""Smaller images are interleaved, that many a product; transposing more runs into cache associativity."""


@dataclass(frozen=True)
class Columns:
    """How images become column matrices: all that depends on sizes alone.

    A matrix is (groups, channels a group * taps, phases * rows * prod(out[1:]) * n): row index by channel and
    tap of the last kernel axes; column index by row of the first spatial axis (sorted by remainder of the
    stride, its phase), position on the other axes, and image, which runs fastest.
    """

    groups: int
    channels: int                       # a group
    spatial: Shape
    out: Shape
    taps: int
    phases: int
    rows: int                           # a phase
    kernel: Shape                       # of as many axes as `spatial` here, as are the next three
    stride: Shape
    dilate: Shape
    pad: Shape
    whole: bool                         # the matrix is the images themselves
    length: int                         # images a chunk

    @cached_property
    def _phase_of(self) -> dict[int, int]:
        """The number of each remainder of the stride that taps of the first axis have, in ascending order."""
        remainders = {tap * self.dilate[0] % self.stride[0] for tap in range(self.kernel[0])}
        return {remainder: k for k, remainder in enumerate(sorted(remainders))}

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """For each tap of the first axis the row at which its block begins."""
        split = [divmod(tap * self.dilate[0], self.stride[0]) for tap in range(self.kernel[0])]
        return tuple(self._phase_of[remainder] * self.rows + whole for whole, remainder in split)

    @cached_property
    def copies(self) -> tuple[tuple[tuple, tuple], ...]:
        """(index of the matrix, index of the images) that fill it; made when it is filled, since kernels may be large,
        and plans ask for sizes alone."""
        step, copies, phases = self.stride[0], [], self._phase_of
        for tap, taps in enumerate(product(*map(range, self.kernel[1:]))):
            for remainder, phase in phases.items():
                cuts = [clip(self.rows, self.spatial[0], step, remainder - self.pad[0])]
                cuts += [clip(self.out[a], self.spatial[a], self.stride[a], taps[a - 1] * self.dilate[a] - self.pad[a])
                         for a in range(1, len(self.out))]
                if None not in cuts:
                    copies.append(((ALL, ALL, tap, phase, *(cut[0] for cut in cuts if cut)),
                                   (ALL, ALL, *(cut[1] for cut in cuts if cut))))
        return tuple(copies)

    @property
    def pixels(self) -> int:
        """Output positions of an image."""
        return prod(self.out)

    @property
    def image_size(self) -> int:
        """Elements of an image."""
        return self.groups * self.channels * prod(self.spatial)

    @property
    def depth(self) -> int:
        """Rows of a matrix."""
        return self.channels * self.taps

    @property
    def width(self) -> int:
        """Columns of a matrix, an image."""
        return self.phases * self.rows * prod(self.out[1:])

    @property
    def disjoint(self) -> bool:
        """Whether the blocks of the first axis' taps cover the matrix without overlap."""
        return self.kernel[0] == self.phases and self.rows == self.out[0]

    def sizes(self, batch: int) -> tuple[int, int]:
        """Elements of scratch for (interleaved images, matrix) of a chunk."""
        n = min(self.length, batch)
        return self.image_size * n * (n > 1), self.groups * self.depth * self.width * n * (not self.whole)

    def interleaved(self, images: np.ndarray) -> np.ndarray:
        """A view of (n, channels, *spatial) images with the image running fastest."""
        view = images.reshape(len(images), self.groups, self.channels, *self.spatial)
        return np.moveaxis(view, 0, -1)

    def shape(self, n: int) -> Shape:
        """The matrix with one axis for each part of its indices, as `copies` index it."""
        return (self.groups, self.channels, self.taps, self.phases, self.rows, *self.out[1:], n)

    def block(self, matrix: np.ndarray, tap: int) -> np.ndarray:
        """The columns that a tap of the first axis multiplies, as a view."""
        inner = matrix.shape[2] // (self.phases * self.rows)
        start = self.starts[tap] * inner
        return matrix[:, :, start:start + self.out[0] * inner]


@lru_cache(maxsize=4096)
def column_layout(groups: int, channels: int, spatial: Shape, out: Shape, kernel: Shape, stride: Shape,
                  dilate: Shape, pad: Shape, rows: bool, itemsize: int) -> Columns:
    """The column matrices of a convolution; `channels` are those of a group."""
    if not rows:        # an axis of length one before the others: then all kernel axes are "last" ones
        spatial, out, kernel = (1, *spatial), (1, *out), (1, *kernel)
        stride, dilate, pad = (1, *stride), (1, *dilate), (0, *pad)
    step = stride[0]
    phases = min(kernel[0], step // gcd(step, dilate[0]))
    height = (kernel[0] - 1) * dilate[0] // step + out[0]
    count = prod(kernel[1:])
    whole = ((count, phases, step) == (1, 1, 1) and (height, *out[1:]) == spatial and not any(pad))
    matrix_bytes = groups * channels * count * phases * height * prod(out[1:]) * itemsize
    length = 1 if prod(out) >= LARGE_IMAGE else min(SMALL_CHUNK, chunk_rows(matrix_bytes))
    return Columns(groups, channels, spatial, out, count, phases, height, kernel, stride, dilate, pad,
                   whole, length)


class Filler:
    """Fills one column matrix after the other, in the scratch it is given."""

    def __init__(self, images: np.ndarray, matrix: np.ndarray) -> None:
        self._images, self._matrix = images, matrix
        self._cleared: tuple[Columns | None, int] = None, 0
        """The columns, and the number of images, for which the padding holds zeros."""

    def __call__(self, c: Columns, images: np.ndarray) -> np.ndarray:
        """The column matrix of (n, channels, *spatial) images, as (groups, depth, width * n)."""
        n = len(images)
        source = interleave(c.interleaved(images), self._images)
        if c.whole:
            return source.reshape(c.groups, c.depth, c.width * n)
        matrix = self._matrix[:c.groups * c.depth * c.width * n].reshape(c.shape(n))
        if self._cleared[0] is not c or self._cleared[1] != n:
            matrix.fill(0)
            self._cleared = c, n
        for into, out_of in c.copies:
            np.copyto(matrix[into], source[out_of])
        return matrix.reshape(c.groups, c.depth, c.width * n)


def interleave(view: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The values of `view`, whose last axis is the image, contiguous: itself for one image, else copied."""
    if view.shape[-1] == 1:
        return view
    copy = scratch[:view.size].reshape(view.shape)
    np.copyto(copy, view)
    return copy


def convolve_sizes(c: Columns, batch: int, filters: int, addend: bool = False) -> tuple[int, int, int, int]:
    """Elements of each scratch array of `convolve` to `filters` channels a group."""
    n = min(c.length, batch)
    product_size = c.groups * filters * c.pixels * n
    return *c.sizes(batch), product_size * (n > 1 or addend), product_size * (c.kernel[0] > 1)


def scatter_sizes(c: Columns, batch: int, filters: int, addend: bool = False) -> tuple[int, int, int, int]:
    """Elements of each scratch array of `scatter` from `filters` channels a group."""
    n = min(c.length, batch)
    product_size = c.groups * c.depth * c.pixels * n
    images, matrix = c.sizes(batch)
    if addend:
        images = max(images, c.image_size * n)
    return images, matrix, c.groups * filters * c.pixels * n * (n > 1), product_size * (not c.disjoint)
