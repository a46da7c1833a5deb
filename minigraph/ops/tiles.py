"""Tiles: the parts of one image that a convolution computes one after the other, so that its scratch stays small.

A tile is a convolution of its own: a box of the output, and the box of the input that it reads. Boxes cover whole rows
(planes, of volumes), or, where one is too large already, parts of one, and so on: an image is cut by its shape alone,
and what a box covers is contiguous in each channel. The adjoint cuts the input, and what lies on the border of two
tiles in the output is multiplied for both.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from ..base import MXNetError, Shape
from .chunks import chunks
from .columns import Columns, column_layout, convolve_sizes, scatter_sizes
from .op import format_shape
from .window import ALL

TILE_BYTES = 32 << 20
"""Scratch that an image may take without being cut: much more than caches hold, so that the rows which neighbours both
read are few, and little beside the tensors of an image that needs more."""

MOST_TILES = 1 << 14
"""Tiles of an image: their scratch together is more than any memory holds, and so are the tensors."""

Box = tuple[slice, ...]


class Window(NamedTuple):
    """The sizes of one convolution, and the form of its column matrices: the parameters of `column_layout`."""

    groups: int
    channels: int                       # a group
    spatial: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    rows: bool
    itemsize: int

    def columns(self) -> Columns:
        """The column matrices of whole images."""
        return column_layout(*self)

    def inputs_of(self, box: Box) -> Box:
        """The input that a box of the output reads; one element of an axis where it reads padding alone."""
        return tuple(_within(o.start * s - p, (o.stop - 1) * s - p + d * (k - 1) + 1, x) for o, s, p, d, k, x
                     in zip(box, self.stride, self.pad, self.dilate, self.kernel, self.spatial, strict=True))

    def outputs_of(self, box: Box) -> Box:
        """The output that reads some of a box of the input; one element of an axis where none does."""
        return tuple(_within(-((d * (k - 1) - p - x.start) // s), (x.stop - 1 + p) // s + 1, o) for x, s, p, d, k, o
                     in zip(box, self.stride, self.pad, self.dilate, self.kernel, self.out, strict=True))

    def part(self, inputs: Box, outputs: Box) -> Window:
        """The convolution of two boxes."""
        pad = tuple(p - o.start * s + x.start for p, o, s, x
                    in zip(self.pad, outputs, self.stride, inputs, strict=True))
        return self._replace(spatial=_lengths(inputs), out=_lengths(outputs), pad=pad)


@dataclass(frozen=True)
class Tile:
    """What indexes a tile in images and in their output, and its column matrices."""

    inputs: Box
    outputs: Box
    columns: Columns


def _within(start: int, stop: int, length: int) -> slice:
    """The part of an axis of a length, at least one element of it."""
    start = max(0, min(start, length - 1))
    return slice(start, max(start + 1, min(stop, length)))


def _lengths(box: Box) -> Shape:
    return tuple(s.stop - s.start for s in box)


@lru_cache(maxsize=1024)
def convolution_tiles(w: Window, filters: int, tile_bytes: int) -> tuple[Tile, ...]:
    """The tiles of a convolution to `filters` channels a group, in ascending order of the output."""
    def size(out: Shape) -> int:
        spatial = tuple(min(x, (o - 1) * s + d * (k - 1) + 1) for o, s, d, k, x
                        in zip(out, w.stride, w.dilate, w.kernel, w.spatial, strict=True))
        return sum(convolve_sizes(column_layout(*w._replace(spatial=spatial, out=out)), 1, filters))
    return _tiles(w, w.out, size, tile_bytes, lambda box: (w.inputs_of(box), box))


@lru_cache(maxsize=1024)
def adjoint_tiles(w: Window, filters: int, tile_bytes: int) -> tuple[Tile, ...]:
    """The tiles of the adjoint of a convolution, in ascending order of the input.

    They do not depend on whether there is an addend, so that bits do not.
    """
    def size(spatial: Shape) -> int:
        out = tuple(min(o, (x - 1 + d * (k - 1)) // s + 1) for o, s, d, k, x
                    in zip(w.out, w.stride, w.dilate, w.kernel, spatial, strict=True))
        return sum(scatter_sizes(column_layout(*w._replace(spatial=spatial, out=out)), 1, filters, True))
    return _tiles(w, w.spatial, size, tile_bytes, lambda box: (box, w.outputs_of(box)))


def _tiles(w: Window, shape: Shape, size: Callable[[Shape], int], tile_bytes: int,
           boxes: Callable[[Box], tuple[Box, Box]]) -> tuple[Tile, ...]:
    """`size` gives the elements of scratch that a box of a shape takes, `boxes` its (input, output)."""
    most = tile_bytes // w.itemsize
    whole = w.columns()
    if whole.length > 1 or not prod(shape) or size(shape) <= most:
        return (Tile((ALL, ALL), (ALL, ALL), whole),)
    tiles = []
    for box in _boxes(shape, size, most):
        inputs, outputs = boxes(box)
        tiles.append(Tile((ALL, ALL, *inputs), (ALL, ALL, *outputs), w.part(inputs, outputs).columns()))
    return tuple(tiles)


def _boxes(shape: Shape, size: Callable[[Shape], int], most: int) -> Iterator[Box]:
    """Boxes of about equal sizes, of at most `most` elements of scratch where one position is: all of the last axes, a
    range of one axis, and one position of those before."""
    last = len(shape) - 1
    for axis, length in enumerate(shape):
        before, after = (1,) * axis, shape[axis + 1:]
        rows = bisect_right(range(1, length + 1), most, key=lambda n: size((*before, n, *after)))
        if rows or axis == last:
            break
    count = prod(shape[:axis]) * -(-length // max(1, rows))
    if count > MOST_TILES:
        raise MXNetError(f"a convolution over an image of {format_shape(shape)} would be computed in {count} parts, of "
                         f"{most} elements of scratch each or one position, and {MOST_TILES} are the most; give a "
                         f"smaller image, pad or kernel")
    step = -(-length // -(-length // max(1, rows)))
    for index in product(*map(range, shape[:axis])):
        for cut in chunks(length, step):
            yield *(slice(i, i + 1) for i in index), cut, *(slice(0, n) for n in after)


def chunk_length(tiles: Sequence[Tile]) -> int:
    """Images a product: a chunk of whole ones, or one that is in tiles."""
    return tiles[0].columns.length if len(tiles) == 1 else 1


def parts(tiles: Sequence[Tile], batch: int) -> Iterator[tuple[slice, Tile]]:
    """The images and the tile of each product, in ascending order."""
    for s in chunks(batch, chunk_length(tiles)):
        for tile in tiles:
            yield s, tile


def most_scratch(tiles: Sequence[Tile], batch: int, sizes: Callable[[Columns, int], Sequence[int]]) -> tuple[int, ...]:
    """The most elements of each scratch array, where `sizes` tells those of column matrices and a number of images."""
    distinct = {id(tile.columns): tile.columns for tile in tiles}.values()
    return tuple(map(max, zip(*(sizes(c, batch if len(tiles) == 1 else min(1, batch)) for c in distinct), strict=True)))
