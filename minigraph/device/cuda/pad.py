"""CUDA forms of Pad and of enlargement by repetition, and their gradients; kernels/pad.cu, shape.cu, broadcast.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, Shape, TensorType
from ..strides import broadcast_strides
from .broadcast import SumPlan, plan_sum
from .expanding import gather
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single


def margins(p: Any, data: Shape, padded: Shape) -> tuple[str, Any]:
    """The kernel argument `Margins`: sizes of data and of the padded tensor, and margins before data."""
    parts = dims(data)[1], dims(padded)[1], dims(p.pad_width[::2], 0)[1]
    return "24q", tuple(number for part in parts for number in part)


@kernels_for("Pad")
class Pad(KernelOp):
    """data with margins."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32("Pad", [data, out])
        if out.size == 0:
            return ()
        args = (pointer(data), pointer(out), int64(out.size), margins(p, data.shape, out.shape),
                single(p.constant_value))
        return (Launch(f"pad_forward_{p.mode}", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("_pad_backward")
class PadBackward(KernelOp):
    """The sum of grad over all places of an element."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, (out,) = ins[0], outs
        require_float32("_pad_backward", [grad, out])
        if out.size == 0:
            return ()
        args = (pointer(grad), pointer(out), int64(out.size), margins(p, out.shape, grad.shape))
        return (Launch(f"pad_backward_{p.mode}", flat_grid(out.size), (BLOCK, 1, 1), args),)


def _parted(p: Any, small: Shape) -> Shape:
    """The large tensor's shape as (images and channels, height, scale, width, scale)."""
    return small[0] * small[1], small[2], p.scale, small[3], p.scale


@kernels_for("_upsample")
class Upsample(KernelOp):
    """Each place repeated both ways."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32("_upsample", [data, out])
        rows, height, _, width, _ = parted = _parted(p, data.shape)
        return gather(data, out, parted, broadcast_strides((rows, height, 1, width, 1), parted))


@kernels_for("_upsample_backward")
class UpsampleBackward(KernelOp):
    """The sum of grad over the places that one was repeated to."""

    @staticmethod
    def _plan(p: Any, small: Shape) -> SumPlan:
        return plan_sum(_parted(p, small), (2, 4))

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", self._plan(p, outs[0].shape).workspace_bytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (grad,), (out,) = ins, outs
        require_float32("_upsample_backward", [grad, out])
        return self._plan(p, out.shape).launches(grad.address, out.address, work) if out.size else ()
