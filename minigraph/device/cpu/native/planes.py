"""Planes of tensors with channels on axis 1, as the kernels of kernels/cpu/planes.h see them."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ....base import Shape
from .call import int64
from .layout import BLOCKED, LANES, blocks

ROWS, BLOCKS, COLUMNS = 0, 1, 2
"""Forms: a channel of an image; a block of channels of an image; channels side by side, where there are no pixels."""


@dataclass(frozen=True)
class Planes:
    """The view of a tensor as (images, channels, pixels) in one of the forms."""

    images: int
    channels: int
    pixels: int
    form: int

    @classmethod
    def of(cls, shape: Shape, layout: str, columns: bool = False) -> Planes:
        """The view of (N, C, *spatial); with `columns`, one without pixels is taken by columns."""
        pixels = prod(shape[2:])
        form = BLOCKS if layout == BLOCKED else COLUMNS if columns and pixels == 1 else ROWS
        return cls(shape[0], shape[1], pixels, form)

    @property
    def count(self) -> int:
        """Number of planes."""
        units = self.channels if self.form == ROWS else blocks(self.channels)
        return units if self.form == COLUMNS else self.images * units

    @property
    def lane_count(self) -> int:
        """Lanes of a number for each channel of each plane."""
        return self.count * LANES

    def argument(self) -> tuple[str, Any]:
        """The kernels' struct Planes."""
        return int64(self.images, self.channels, self.pixels, self.form)
