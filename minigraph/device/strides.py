"""Steps in elements through contiguous tensors, as kernels that repeat, permute or cut axes take them."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..base import Shape


def strides(shape: Sequence[int]) -> Shape:
    """Strides in elements of a contiguous tensor."""
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> Shape:
    """Strides in elements, one for each axis of `target`, of a contiguous `shape` that is broadcast to it.

    They are 0 on the axes along which it is repeated. Shapes are aligned at the last axis.
    """
    lead = len(target) - len(shape)
    own = strides(shape)
    return (0,) * lead + tuple(0 if d == 1 else s for d, s in zip(shape, own, strict=True))


def merge_axes(shape: Sequence[int], *operand_strides: Sequence[int]) -> tuple[Shape, tuple[Shape, ...]]:
    """The same traversal with the fewest axes: (shape, strides of each operand).

    Axes of size 1 vanish, and neighbours merge where every operand steps through them evenly; the order of
    elements stays. A kernel then divides less, and tensors of more dimensions than `Dims` holds often fit.
    """
    sizes: list[int] = []
    steps: list[tuple[int, ...]] = []
    for size, step in zip(shape, zip(*operand_strides, strict=True), strict=True):
        if size == 1:
            continue
        if sizes and all(outer == inner * size for outer, inner in zip(steps[-1], step, strict=True)):
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return tuple(sizes), tuple(tuple(step[i] for step in steps) for i in range(len(operand_strides)))
