"""Column matrices: images laid out so that a convolution is a few matrix products a chunk.

A full column matrix repeats every pixel once a kernel tap. Here only the taps of the *last* kernel axes are
spread out ("rows"): for a tap of the first axis, the operand is the same matrix from another row on, a
contiguous block that BLAS takes as it is. A 3 x 3 convolution so copies 3 times instead of 9, and adds 3
products. Where the weight is larger than the images, spreading all taps ("columns") is cheaper, since it
takes the weight as it lies. All scratch comes from the caller, as flat arrays of the sizes told here.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from ..base import Shape
from .activation import FORWARD
from .chunks import chunk_rows, chunks
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
    starts: tuple[int, ...]             # for each tap of the first axis: the row at which its block begins
    copies: tuple[tuple[tuple, tuple], ...]     # (index of the matrix, index of the images) that fill it
    whole: bool                         # the matrix is the images themselves
    length: int                         # images a chunk

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
        return len(self.starts) == self.phases and self.rows == self.out[0]

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
    step, offsets = stride[0], [tap * dilate[0] for tap in range(kernel[0])]
    phases = sorted({offset % step for offset in offsets})
    height = max(offset // step for offset in offsets) + out[0]
    starts = tuple(phases.index(offset % step) * height + offset // step for offset in offsets)
    copies = []
    for tap, taps in enumerate(product(*map(range, kernel[1:]))):
        for phase, remainder in enumerate(phases):
            cuts = [clip(height, spatial[0], step, remainder - pad[0])]
            cuts += [clip(out[a], spatial[a], stride[a], taps[a - 1] * dilate[a] - pad[a])
                     for a in range(1, len(out))]
            if None not in cuts:
                copies.append(((ALL, ALL, tap, phase, *(cut[0] for cut in cuts if cut)),
                               (ALL, ALL, *(cut[1] for cut in cuts if cut))))
    count = prod(kernel[1:])
    whole = ((count, len(phases), step) == (1, 1, 1) and (height, *out[1:]) == spatial and not any(pad))
    matrix_bytes = groups * channels * count * len(phases) * height * prod(out[1:]) * itemsize
    length = 1 if prod(out) >= LARGE_IMAGE else min(SMALL_CHUNK, chunk_rows(matrix_bytes))
    return Columns(groups, channels, spatial, out, count, len(phases), height, starts, tuple(copies), whole,
                   length)


class TapWeights:
    """The matrices of the first axis' taps of a view (first taps, groups, m, k, other taps), each copied when it is
    asked for: to scratch as large as one of them."""

    def __init__(self, view: np.ndarray, scratch: np.ndarray, swapped: bool = False) -> None:
        self._view, self._scratch, self._swapped = view, scratch, swapped
        self._held = -1

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, tap: int) -> np.ndarray:
        view = self._view[tap]
        matrices = self._scratch[:view.size].reshape(view.shape)
        if self._held != tap:
            np.copyto(matrices, view)
            self._held = tap
        matrices = matrices.reshape(*view.shape[:2], -1)
        return matrices.swapaxes(1, 2) if self._swapped else matrices


Weights = np.ndarray | TapWeights
"""Matrices (taps of the first axis, groups, m, k)."""


class Filler:
    """Fills one column matrix after the other, in the scratch it is given."""

    def __init__(self, columns: Columns, images: np.ndarray, matrix: np.ndarray) -> None:
        self._columns, self._images, self._matrix = columns, images, matrix
        self._cleared = -1      # number of images for which the padding holds zeros

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """The column matrix of (n, channels, *spatial) images, as (groups, depth, width * n)."""
        c, n = self._columns, len(images)
        source = _interleave(c.interleaved(images), self._images)
        if c.whole:
            return source.reshape(c.groups, c.depth, -1)
        matrix = self._matrix[:c.groups * c.depth * c.width * n].reshape(c.shape(n))
        if self._cleared != n:
            matrix.fill(0)
            self._cleared = n
        for into, out_of in c.copies:
            np.copyto(matrix[into], source[out_of])
        return matrix.reshape(c.groups, c.depth, c.width * n)


def _interleave(view: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The values of `view`, whose last axis is the image, contiguous: itself for one image, else copied."""
    if view.shape[-1] == 1:
        return view
    copy = scratch[:view.size].reshape(view.shape)
    np.copyto(copy, view)
    return copy


def convolve(c: Columns, images: np.ndarray, weights: Weights, bias: np.ndarray | None, out: np.ndarray,
              scratch: Sequence[np.ndarray], addend: np.ndarray | None = None, act_type: str | None = None) -> None:
    """Write `out` = images convolved with weights (taps of the first axis, groups, filters, depth) + bias + addend.

    `out` may lie on the addend. An activation of FOLLOWING comes last.
    """
    fill, (sums, term) = Filler(c, *scratch[:2]), scratch[2:4]
    filters = out.shape[1] // c.groups
    for s in chunks(len(images), c.length):
        n = s.stop - s.start
        shape = (c.groups, filters, c.pixels * n)
        matrix = fill(images[s])
        direct = n == 1 and addend is None
        total = out[s].reshape(shape) if direct else sums[:prod(shape)].reshape(shape)
        np.matmul(weights[0], c.block(matrix, 0), out=total)
        for tap in range(1, len(weights)):
            one = term[:prod(shape)].reshape(shape)
            np.matmul(weights[tap], c.block(matrix, tap), out=one)
            np.add(total, one, out=total)
        if bias is not None:
            np.add(total, bias.reshape(c.groups, filters, 1), out=total)
        if not direct:
            _part(total, out[s], None if addend is None else addend[s])
        if act_type is not None:
            FORWARD[act_type](out[s], out[s], out[s])


def _part(total: np.ndarray, out: np.ndarray, addend: np.ndarray | None) -> None:
    """Write interleaved images (groups, channels, pixels * n), plus an addend, to `out` (n, channels, *spatial)."""
    groups, channels, n = *total.shape[:2], len(out)
    view = np.moveaxis(total.reshape(groups, channels, -1, n), -1, 0)
    _store(view, out.reshape(view.shape), None if addend is None else addend.reshape(view.shape))


def _store(values: np.ndarray, out: np.ndarray, addend: np.ndarray | None) -> None:
    if addend is None:
        np.copyto(out, values)
    else:
        np.add(values, addend, out=out)


def convolve_sizes(c: Columns, batch: int, filters: int, addend: bool = False) -> tuple[int, int, int, int]:
    """Elements of each scratch array of `convolve` to `filters` channels a group."""
    n = min(c.length, batch)
    product_size = c.groups * filters * c.pixels * n
    return *c.sizes(batch), product_size * (n > 1 or addend), product_size * (len(c.starts) > 1)


def scatter(c: Columns, grad: np.ndarray, weights: Weights, out: np.ndarray,
            scratch: Sequence[np.ndarray], addend: np.ndarray | None = None) -> None:
    """Write `out` = the adjoint of filling, of weights (first taps, groups, depth, filters) times grad, + addend.

    Every element of that product is added to the pixel from which filling copies the same element. `out` may lie on
    the addend.
    """
    images, matrices, grads, term = scratch[:4]
    for s in chunks(len(grad), c.length):
        n = s.stop - s.start
        target = c.interleaved(out[s])
        direct = n == 1 and addend is None
        pixels = target if direct else images[:target.size].reshape(target.shape)
        memory = pixels if c.whole else matrices[:c.groups * c.depth * c.width * n]
        matrix = memory.reshape(c.groups, c.depth, c.width * n)
        _multiply(c, weights, grad_matrix(c, grad[s], grads), matrix, term)
        if not c.whole:
            pixels.fill(0)
            parts = matrix.reshape(c.shape(n))
            for into, out_of in c.copies:
                np.add(pixels[out_of], parts[into], out=pixels[out_of])
        if not direct:
            _store(pixels, target, None if addend is None else c.interleaved(addend[s]))


def scatter_sizes(c: Columns, batch: int, filters: int, addend: bool = False) -> tuple[int, int, int, int]:
    """Elements of each scratch array of `scatter` from `filters` channels a group."""
    n = min(c.length, batch)
    product_size = c.groups * c.depth * c.pixels * n
    images, matrix = c.sizes(batch)
    if addend:
        images = max(images, c.image_size * n)
    return images, matrix, c.groups * filters * c.pixels * n * (n > 1), product_size * (not c.disjoint)


def _multiply(c: Columns, weights: Weights, grad: np.ndarray, matrix: np.ndarray,
              term: np.ndarray) -> None:
    """Write matrix = for each tap of the first axis, its weights times grad, added to the tap's block."""
    if not c.disjoint:
        matrix.fill(0)
    for tap in range(len(weights)):
        block = c.block(matrix, tap)
        if c.disjoint:
            np.matmul(weights[tap], grad, out=block)
        else:
            one = term[:block.size].reshape(block.shape)
            np.matmul(weights[tap], grad, out=one)
            np.add(block, one, out=block)


def grad_matrix(c: Columns, grad: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The output gradient of n images as (groups, filters, pixels * n), the image running fastest."""
    view = np.moveaxis(grad.reshape(len(grad), c.groups, -1, c.pixels), 0, -1)
    return _interleave(view, scratch).reshape(c.groups, view.shape[1], -1)
