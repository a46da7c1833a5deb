"""CUDA forms of sum, mean, max and min over axes, and their gradients; kernels/reduce.cu."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ...base import Algorithm, MXNetError, Shape, TensorType, align
from ...ops.chunks import MAX_CHUNK
from ...ops.op import format_shape
from ...ops.reduce import kept_shape, reduced_axes
from ..strides import broadcast_strides, merge_axes, strides
from .launch import BLOCK, KernelOp, Launch, Operand, address, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import row_group, row_launch

BLOCK_PIECE = 8192
"""Numbers of a piece that a block reduces: 32 a thread."""


@dataclass(frozen=True)
class Reduction:
    """How a tensor is reduced over axes: sizes and strides of both kinds of axes, and who reduces a piece."""

    kept: tuple[Shape, Shape]
    reduced: tuple[Shape, Shape]
    group: str

    @property
    def outputs(self) -> int:
        """Number of results."""
        return prod(self.kept[0])

    @property
    def length(self) -> int:
        """Numbers reduced to one result."""
        return prod(self.reduced[0])

    @property
    def piece(self) -> int:
        """Numbers of a piece; a warp's row is always one."""
        return {"thread": MAX_CHUNK, "warp": self.length, "block": BLOCK_PIECE}[self.group] or 1

    @property
    def pieces(self) -> int:
        """Pieces of each result."""
        return max(1, -(-self.length // self.piece))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the results of pieces, where there is more than one."""
        return align(4 * self.outputs * self.pieces) if self.pieces > 1 else 0

    def launches(self, kernel: str, source: int, target: int, work: int,
                 divisor: float = 1.0) -> list[Launch]:
        """Reduce the tensor at one address to the results at another, divided by `divisor`. `kernel` is
        sum_forward, max_forward or min_forward."""
        if self.pieces == 1:
            return [self._launch(kernel, source, target, divisor)]
        steps = (self.pieces,), (1,)
        whole = Reduction(((self.outputs,), (self.pieces,)), steps, row_group(self.pieces))
        return [self._launch(kernel, source, work, 1.0),
                whole._launch(kernel, work, target, divisor, self.pieces)]

    def _launch(self, kernel: str, source: int, target: int, divisor: float,
                piece: int | None = None) -> Launch:
        piece = piece or self.piece
        pieces = max(1, -(-self.length // piece))
        args = (address(source), address(target), *map(int64, (self.outputs, pieces, self.length, piece)),
                dims(self.kept[0]), dims(self.kept[1], 0), dims(self.reduced[0]), dims(self.reduced[1], 0),
                single(divisor))
        return row_launch(kernel, self.outputs * pieces, self.group, min(piece, self.length), args)


def reduction(shape: Sequence[int], axes: Sequence[int]) -> Reduction:
    """How to reduce a contiguous tensor over axes."""
    steps = strides(shape)

    def merged(chosen: list[int]) -> tuple[Shape, Shape]:
        sizes, (merged_steps,) = merge_axes([shape[i] for i in chosen], [steps[i] for i in chosen])
        return sizes, merged_steps

    reduced = merged([i for i in range(len(shape)) if i in axes])
    # A group of threads reads neighbours together only where the reduced axes hold the last one.
    rows_are_contiguous = 1 in reduced[1] or not reduced[1]
    group = row_group(prod(reduced[0])) if rows_are_contiguous else "thread"
    return Reduction(merged([i for i in range(len(shape)) if i not in axes]), reduced, group)


class ReduceForward(KernelOp):
    """Base: a reduction by `kernel`."""

    name: ClassVar[str]
    kernel: ClassVar[str]

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        axes = reduced_axes(p, len(ins[0].shape))
        return Algorithm("pieces", reduction(ins[0].shape, axes).workspace_bytes if outs[0].size else 0)

    def divisor(self, data: Operand, out: Operand) -> float:
        """What results are divided by."""
        return 1.0

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        (data,), (out,) = ins, outs
        if out.size == 0:
            return ()
        plan = reduction(data.shape, reduced_axes(p, len(data.shape)))
        return plan.launches(self.kernel, data.address, out.address, work, self.divisor(data, out))


@kernels_for("sum")
class Sum(ReduceForward):
    """The sum over axes."""

    name, kernel = "sum", "sum_forward"


@kernels_for("mean")
class Mean(ReduceForward):
    """The mean over axes."""

    name, kernel = "mean", "sum_forward"

    def divisor(self, data: Operand, out: Operand) -> float:
        return data.size // out.size


class Extremum(ReduceForward):
    """Base of max and min."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        if outs[0].size and not ins[0].size:
            raise MXNetError(
                f"{self.name} over no elements: the input has shape {format_shape(ins[0].shape)}")
        return super().launches(p, ins, outs, work)


@kernels_for("max")
class Max(Extremum):
    """The largest element over axes."""

    name, kernel = "max", "max_forward"


@kernels_for("min")
class Min(Extremum):
    """The smallest element over axes."""

    name, kernel = "min", "min_forward"


def repeated(p: Any, shape: Shape) -> tuple[Shape, Shape]:
    """(sizes, strides) with which a reduced tensor is read beside one of `shape`."""
    kept = kept_shape(shape, reduced_axes(p, len(shape)))
    sizes, (steps,) = merge_axes(shape, broadcast_strides(kept, shape))
    return sizes, steps


class RepeatBackward(KernelOp):
    """Base: grad repeated along the reduced axes."""

    name: ClassVar[str]

    def divisor(self, grad: Operand, out: Operand) -> float:
        """What grad is divided by."""
        return 1.0

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, (out,) = ins[0], outs
        require_float32(self.name, [grad, out])
        if out.size == 0:
            return ()
        sizes, steps = repeated(p, out.shape)
        args = (pointer(grad), pointer(out), int64(out.size), dims(sizes), dims(steps, 0),
                single(self.divisor(grad, out)))
        return (Launch("sum_backward_broadcast", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_sum_backward")
class SumBackward(RepeatBackward):
    """grad repeated along the reduced axes."""

    name = "_sum_backward"


@kernels_for("_mean_backward")
class MeanBackward(RepeatBackward):
    """grad / count repeated along the reduced axes."""

    name = "_mean_backward"

    def divisor(self, grad: Operand, out: Operand) -> float:
        return out.size // max(grad.size, 1)


@kernels_for("_extremum_backward")
class ExtremumBackward(KernelOp):
    """grad wherever data equals the extremum of its group, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_extremum_backward", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        sizes, steps = repeated(p, out.shape)
        args = (*map(pointer, ins), pointer(out), int64(out.size), dims(sizes), dims(steps, 0))
        return (Launch("extremum_backward_broadcast", flat_grid(out.size), (BLOCK, 1, 1), args),)
