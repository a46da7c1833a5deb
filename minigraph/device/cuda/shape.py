"""CUDA forms of views and of reorderings of axes; kernels/shape.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from ...base import Shape
from ...ops.registry import get_op
from ...ops.shape import Permutation
from ..strides import merge_axes, strides
from .basic import copy
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32

TILE = 32
TILE_ROWS = 8
"""Threads of a block that moves tiles of TILE by TILE: (TILE, TILE_ROWS)."""
LEAST_TILED = 8
"""Axes shorter than this are not worth tiles: most of a tile's threads would be idle."""


@kernels_for("_reshape_like", "Flatten", "Reshape", "_contrib_gradientmultiplier", "expand_dims")
class View(KernelOp):
    """The same bytes under another shape: a copy only if the plan gave the output bytes of its own."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return copy(ins[0], outs[0])


class Permute(KernelOp):
    """data with its axes in the order that the op gives."""

    def __init__(self, name: str) -> None:
        self.name = name

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        (data,), (out,) = ins, outs
        if out.size == 0:
            return ()
        order = cast(Permutation, get_op(self.name)).order(p, len(data.shape))
        steps = strides(data.shape)
        sizes, (x_steps, out_steps) = merge_axes(out.shape, [steps[i] for i in order], strides(out.shape))
        if x_steps == out_steps:
            return copy(data, out)
        across = x_steps.index(min(x_steps))
        if across == len(sizes) - 1 or min(sizes[across], sizes[-1]) < LEAST_TILED:
            args = (pointer(data), pointer(out), int64(out.size), dims(sizes), dims(x_steps, 0))
            return (Launch("transpose_forward_gather", flat_grid(out.size), (BLOCK, 1, 1), args),)
        return (_tiled(data, out, across, sizes, x_steps, out_steps),)


@kernels_for("transpose")
class Transpose(Permute):
    """data with its axes in another order."""

    def __init__(self) -> None:
        super().__init__("transpose")


@kernels_for("SwapAxis")
class SwapAxis(Permute):
    """data with two axes exchanged."""

    def __init__(self) -> None:
        super().__init__("SwapAxis")


def _tiled(data: Operand, out: Operand, across: int, sizes: Shape, x_steps: Shape,
           out_steps: Shape) -> Launch:
    """Tiles of the input's last axis, which is axis `across` of the output, and the output's last axis."""
    rest = [i for i in range(len(sizes) - 1) if i != across]
    batch = [sizes[i] for i in rest]
    rows, columns = sizes[-1], sizes[across]
    args = (pointer(data), pointer(out), int64(prod(batch)), int64(rows), int64(columns), int64(x_steps[-1]),
            int64(out_steps[across]), dims(batch), dims([x_steps[i] for i in rest], 0),
            dims([out_steps[i] for i in rest], 0))
    tiles = prod(batch) * -(-rows // TILE) * -(-columns // TILE)
    return Launch("transpose_forward_tiled", flat_grid(tiles * BLOCK), (TILE, TILE_ROWS, 1), args)
