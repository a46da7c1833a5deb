"""The sizes of a convolution, and the form that its products take: what its operators share."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Shape
from . import tiles
from .columns import Columns
from .params import REQUIRED, param
from .tiles import Tile, Window, adjoint_tiles, convolution_tiles, parts
from .window import LAYOUTS, per_axis

LIGHT_WEIGHT = 20
"""Weight elements a channel, in output pixels, up to which copying the weight ("rows") pays."""


@dataclass(frozen=True)
class ConvolutionParams:
    """Parameters of Convolution, and of its gradients."""

    kernel: tuple[int, ...] = param(REQUIRED, "shape", "kernel size, (w,), (h, w) or (d, h, w)")
    stride: tuple[int, ...] = param((), "shape", "step of the window an axis; 1 when not given")
    dilate: tuple[int, ...] = param((), "shape", "distance of kernel taps an axis; 1 when not given")
    pad: tuple[int, ...] = param((), "shape", "zeros on either side of an axis; 0 when not given")
    num_filter: int = param(REQUIRED, "int", "number of output channels")
    num_group: int = param(1, "int", "number of channel groups that are convolved apart")
    no_bias: bool = param(False, "bool", "whether there is no bias")
    layout: str | None = param(None, "str", "layout of the data; channels come second", LAYOUTS)


class Geometry:
    """The sizes of one convolution, and which form of column matrices its three products take."""

    def __init__(self, p: ConvolutionParams, data: Shape, out: Shape, itemsize: int) -> None:
        self.p, self.batch, self.itemsize = p, data[0], itemsize
        self.groups = p.num_group
        self.channels, self.filters = data[1] // p.num_group, p.num_filter // p.num_group
        self.spatial, self.out = data[2:], out[2:]
        self.stride, self.dilate, self.pad = spatial_params(p)
        # "rows" copies the weight; where that is large, it costs more than it saves.
        self.rows = p.kernel[0] > 1 and prod(p.kernel) * self.filters <= LIGHT_WEIGHT * prod(self.out)
        self.turned = self.rows and prod(self.stride) == 1

    @property
    def _window(self) -> Window:
        return Window(self.groups, self.channels, self.spatial, self.out, self.p.kernel, self.stride, self.dilate,
                      self.pad, self.rows, self.itemsize)

    @property
    def _turned_window(self) -> Window:
        """The output gradient, which the turned weight multiplies to the data gradient."""
        kernel, dilate = self.p.kernel, self.dilate
        pad = tuple(d * (k - 1) - p for d, k, p in zip(dilate, kernel, self.pad, strict=True))
        return Window(self.groups, self.filters, self.out, self.spatial, kernel, self.stride, dilate, pad, True,
                      self.itemsize)

    def columns(self) -> Columns:
        """Column matrices of whole images of the data."""
        return self._window.columns()

    def tiles(self) -> tuple[Tile, ...]:
        """Tiles of the convolution, and of the gradient by weight."""
        return convolution_tiles(self._window, self.filters, tiles.TILE_BYTES)

    def adjoint_tiles(self) -> tuple[Tile, ...]:
        """Tiles of the gradient by data: of a convolution of the output gradient if `turned`."""
        if self.turned:
            return convolution_tiles(self._turned_window, self.channels, tiles.TILE_BYTES)
        return adjoint_tiles(self._window, self.filters, tiles.TILE_BYTES)

    @property
    def weight_size(self) -> int:
        """Elements of the weight."""
        return self.p.num_filter * self.channels * prod(self.p.kernel)

    def arranged_size(self, lean: bool) -> int:
        """Elements of the copy of the weight by taps: all of it, or one tap of the first axis."""
        return self.weight_size // self.p.kernel[0] if lean else self.weight_size

    def rearranged_size(self, parted: Sequence[Tile]) -> int:
        """Elements that copying a tap's weight anew for each product moves, read and written, beyond once."""
        return 2 * self.weight_size * (len(list(parts(parted, self.batch))) - 1)

    def weight_by_tap(self, weight: np.ndarray) -> np.ndarray:
        """A view (first taps, groups, filters, channels, other taps); "columns" has one first tap."""
        first = self.p.kernel[0] if self.rows else 1
        view = weight.reshape(self.groups, self.filters, self.channels, first, prod(self.p.kernel) // first)
        return view.transpose(3, 0, 1, 2, 4)

    def turned_weight(self, weight: np.ndarray) -> np.ndarray:
        """A view (first taps, groups, channels, filters, other taps) with all taps in reverse order."""
        view = weight.reshape(self.groups, self.filters, self.channels, self.p.kernel[0], prod(self.p.kernel[1:]))
        return view[..., ::-1, ::-1].transpose(3, 0, 2, 1, 4)

    def flops(self) -> float:
        """Floating-point operations of the convolution, and of either gradient."""
        return 2.0 * self.batch * prod(self.out) * self.weight_size


def geometry(p: ConvolutionParams, data: Any, out: Any) -> Geometry:
    """The geometry of a convolution from its data and output, arrays or tensor types."""
    return Geometry(p, data.shape, out.shape, out.dtype.itemsize)


def spatial_params(p: ConvolutionParams) -> tuple[Shape, Shape, Shape]:
    """(stride, dilate, pad), a value for each spatial axis; ShapeError where they do not fit the kernel."""
    return (per_axis(p.stride, p.kernel, 1, "stride"), per_axis(p.dilate, p.kernel, 1, "dilate"),
            per_axis(p.pad, p.kernel, 0, "pad"))
