"""Layouts of tensors in the CPU's kernels: plain, and blocks of 16 channels.

In `nChw16c` a tensor (N, C, *spatial) lies as (N, ceil(C / 16), *spatial, 16); the channels that fill up the last block
are zero, always.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ....base import Shape, TensorType

PLAIN = ""
BLOCKED = "nChw16c"
LANES = 16
"""Channels of a block."""


@dataclass(frozen=True)
class Layouts:
    """The layouts of an op's inputs and outputs, in order."""

    ins: tuple[str, ...]
    outs: tuple[str, ...]

    @classmethod
    def plain(cls, ins: int, outs: int) -> Layouts:
        """All plain."""
        return cls((PLAIN,) * ins, (PLAIN,) * outs)


def blocks(channels: int) -> int:
    """Blocks of so many channels."""
    return -(-channels // LANES)


def padded_size(shape: Shape, layout: str) -> int:
    """Elements that a tensor takes in a layout, padding included."""
    if layout == PLAIN:
        return prod(shape)
    return shape[0] * blocks(shape[1]) * LANES * prod(shape[2:])


def alike(*types: TensorType) -> Iterator[str]:
    """Layouts in which tensors of one shape can be taken element by element: blocked when they have channels."""
    if len({t.shape for t in types}) == 1:
        if len(types[0].shape) > 2:
            yield BLOCKED
        yield PLAIN
