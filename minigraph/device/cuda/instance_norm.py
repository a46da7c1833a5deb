"""CUDA forms of InstanceNorm and L2Normalization, and their gradients; kernels/instance_norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, TensorType, align
from ...ops.instance_norm import norm_view
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import row_group, row_launch


@kernels_for("InstanceNorm")
class InstanceNorm(KernelOp):
    """One launch, a group of threads for each channel of each instance."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("InstanceNorm", [*ins, *outs])
        (images, channels, *places), rows = ins[0].shape, outs[1].size
        length = prod(places)
        if rows == 0:
            return ()
        args = (*map(pointer, (*ins, *outs)), *map(int64, (images * channels, channels, length)), single(p.eps))
        return (row_launch("instance_norm_forward", rows, row_group(length), length, args),)


@kernels_for("_instance_norm_backward")
class InstanceNormBackward(KernelOp):
    """Sums of the rows, gradients of gamma and beta, and last the data gradient."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("sums", align(8 * ins[3].size))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_instance_norm_backward", [*ins, *outs])
        grad, data, gamma, mean, inverse = ins
        data_grad, *vectors = outs
        images, channels, *places = data.shape
        rows, length, sums = images * channels, prod(places), address(work)
        launches = []
        if rows:
            args = (*map(pointer, (grad, data, mean, inverse)), sums, int64(rows), int64(length))
            launches.append(row_launch("instance_norm_backward_sums", rows, row_group(length), length, args))
        if channels:
            args = (sums, *map(pointer, vectors), int64(images), int64(channels))
            launches.append(Launch("instance_norm_backward_params", flat_grid(channels), (BLOCK, 1, 1), args))
        if data_grad.size:
            args = (*map(pointer, ins), sums, pointer(data_grad), *map(int64, (rows, channels, length)))
            grid = flat_grid(data_grad.size)
            launches.append(Launch("instance_norm_backward_data_inplace", grid, (BLOCK, 1, 1), args))
        return launches


def _rows(p: Any, shape: Sequence[int]) -> tuple[int, int, int]:
    """(rows, length, inner): every row is one norm's."""
    outer, length, inner = norm_view(p, tuple(shape))
    return outer * inner, length, inner


@kernels_for("L2Normalization")
class L2Normalization(KernelOp):
    """One launch, a group of threads for each norm."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("L2Normalization", [*ins, *outs])
        rows, length, inner = _rows(p, ins[0].shape)
        if rows == 0:
            return ()
        args = (pointer(ins[0]), *map(pointer, outs), *map(int64, (rows, length, inner)), single(p.eps))
        return (row_launch("l2_normalization_forward", rows, row_group(length, inner), length, args),)


@kernels_for("_l2_normalization_backward")
class L2NormalizationBackward(KernelOp):
    """One launch, a group of threads for each norm."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_l2_normalization_backward", [*ins, *outs])
        rows, length, inner = _rows(p, ins[0].shape)
        if outs[0].size == 0:
            return ()
        args = (*map(pointer, (*ins, *outs)), *map(int64, (rows, length, inner)))
        return (row_launch("l2_normalization_backward", rows, row_group(length, inner), length, args),)
