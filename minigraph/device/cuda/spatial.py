"""CUDA forms of sampling grids and of bilinear sampling, and gradients; kernels/spatial.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .basic import fill
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


@kernels_for("_grid_points")
class GridPoints(KernelOp):
    """A grid's points, or a pixel's length."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_grid_points", outs)
        (out,), sizes = outs, (int64(p.height), int64(p.width))
        if p.form == "pixel":
            return (Launch("grid_points_forward_pixel", (1, 1, 1), (1, 1, 1), (pointer(out), *sizes)),)
        args = (pointer(out), int64(out.size), *sizes)
        return (Launch("grid_points_forward_planes", flat_grid(out.size), (BLOCK, 1, 1), args),)


def _sampling(data: Operand, grid: Operand) -> tuple[str, Any]:
    """The kernel argument `Sampling`."""
    return "5q", (*data.shape, prod(grid.shape[2:]))


def _launch(kernel: str, args: Sequence[tuple[str, Any]], threads: int) -> Sequence[Launch]:
    return (Launch(kernel, flat_grid(threads), (BLOCK, 1, 1), tuple(args)),) if threads else ()


@kernels_for("BilinearSampler")
class BilinearSampler(KernelOp):
    """A thread for each place of the output."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("BilinearSampler", [*ins, *outs])
        if not ins[0].size:     # no pixel to take: all points lie outside
            return fill(outs[0], 0)
        args = (*map(pointer, (*ins, outs[0])), _sampling(*ins))
        return _launch("bilinear_sampler_forward_float32", args, outs[0].size)


@kernels_for("_bilinear_sampler_backward")
class BilinearSamplerBackward(KernelOp):
    """A thread for each channel of an image, and one for each point."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_bilinear_sampler_backward", [*ins, *outs])
        grad, data, grid = ins
        if not data.size:
            return fill(outs[1], 0)
        sizes = _sampling(data, grid)
        of_data = (pointer(grad), pointer(grid), pointer(outs[0]), sizes)
        of_grid = (*map(pointer, ins), pointer(outs[1]), sizes)
        return (*_launch("bilinear_sampler_backward_data", of_data, prod(data.shape[:2])),
                *_launch("bilinear_sampler_backward_grid", of_grid, outs[1].size // 2))
