"""What the CPU's kernels know of layouts (`base.BLOCKED`)."""
from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ....base import BLOCKED, LANES, PLAIN, TRANSPOSED, Layouts, Shape, TensorType, stored_shape

__all__ = ["BLOCKED", "LANES", "PLAIN", "TRANSPOSED", "Layouts", "alike", "blocks", "padded_size"]


def blocks(channels: int) -> int:
    """Blocks of so many channels."""
    return -(-channels // LANES)


def padded_size(shape: Shape, layout: str) -> int:
    """Elements that a tensor takes in a layout, padding included."""
    return prod(stored_shape(shape, layout))


def alike(*types: TensorType) -> Iterator[str]:
    """Layouts in which tensors of one shape can be taken element by element: blocked when they have channels."""
    if len({t.shape for t in types}) == 1:
        if len(types[0].shape) > 2:
            yield BLOCKED
        yield PLAIN
