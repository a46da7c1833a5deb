"""Tensors with channels as the kernels of kernels/cpu/channels.h see them, and how work on them is cut."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....base import Shape
from ....ops.channels import channel_layout
from ....ops.chunks import chunk_rows
from .call import Operand, int64
from .layout import BLOCKED, LANES, PLAIN, blocks

SEGMENT = 2048
"""Pixels of a segment: sums over it take so little of the workspace that they cost nothing beside its data."""


@dataclass(frozen=True)
class ChannelShape:
    """(images, channels, pixels) in a layout; sums are made segment by segment, of `group` images or SEGMENT pixels."""

    images: int
    channels: int
    pixels: int
    blocked: bool
    chunk: int

    @classmethod
    def of(cls, axis: int, shape: Shape, layout: str) -> ChannelShape:
        """The view of a tensor with channels on `axis`."""
        batch, before, channels, after = channel_layout(axis, shape)
        rows = chunk_rows(before * channels * after * 4)
        return cls(batch * before, channels, after, layout == BLOCKED, max(1, rows * before))

    @property
    def group(self) -> int:
        """Images of a segment: of one chunk, and no more pixels than a segment should have, where they are small."""
        count = 1
        while 2 * count * self.pixels <= SEGMENT and 2 * count <= self.chunk:
            count *= 2
        return count

    @property
    def segments(self) -> int:
        """Number of segments."""
        of_chunk = -(-self.chunk // self.group) * -(-self.pixels // SEGMENT)
        return -(-self.images // self.chunk) * of_chunk

    @property
    def count(self) -> int:
        """Pixels of a channel."""
        return self.images * self.pixels

    @property
    def padded(self) -> int:
        """Channels, up to whole blocks."""
        return blocks(self.channels) * LANES

    def argument(self) -> tuple[str, Any]:
        """The kernels' struct Channels."""
        return int64(self.images, self.channels, self.pixels, self.blocked, self.chunk, self.group, SEGMENT)


def channel_shape(axis: int, operand: Operand) -> ChannelShape:
    """The view of an operand with channels on `axis`."""
    return ChannelShape.of(axis, operand.shape, operand.layout)


def channel_layouts(axis: int, shape: Shape, zero_stays: bool = True) -> tuple[str, ...]:
    """Layouts of a tensor with channels on `axis`, the best first.

    Blocked where the channels are on axis 1 of an image, and, unless zeros stay zero, where they fill whole blocks.
    """
    if len(shape) > 2 and axis % len(shape) == 1 and (zero_stays or shape[1] % LANES == 0):
        return BLOCKED, PLAIN
    return (PLAIN,)
