"""CUDA forms of ops that repeat a tensor along axes, and their gradients; kernels/shape.cu and broadcast.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from ...base import Algorithm, Shape, TensorType
from ...ops.expanding import Repeated
from ...ops.registry import get_op
from ..strides import broadcast_strides, merge_axes, strides
from .basic import copy
from .broadcast import SumPlan, plan_sum
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


def gather(data: Operand, out: Operand, shape: Sequence[int], steps: Sequence[int]) -> Sequence[Launch]:
    """Launches that write `out`, seen in a shape, from data at steps in elements, which are at least 0."""
    if out.size == 0:
        return ()
    sizes, (x_steps, out_steps) = merge_axes(shape, steps, strides(shape))
    if x_steps == out_steps:
        return copy(data, out)
    args = (pointer(data), pointer(out), int64(out.size), dims(sizes), dims(x_steps, 0))
    return (Launch("transpose_forward_gather", flat_grid(out.size), (BLOCK, 1, 1), args),)


class Broadcasting(KernelOp):
    """Base: data repeated along its axes of length 1."""

    name: ClassVar[str]

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[0], outs
        require_float32(self.name, [data, out])
        return gather(data, out, out.shape, broadcast_strides(data.shape, out.shape))


@kernels_for("broadcast_to")
class BroadcastTo(Broadcasting):
    """data repeated to a shape."""

    name = "broadcast_to"


@kernels_for("broadcast_axis")
class BroadcastAxis(Broadcasting):
    """data repeated along some axes."""

    name = "broadcast_axis"


@kernels_for("broadcast_like")
class BroadcastLike(Broadcasting):
    """data repeated to another tensor's shape."""

    name = "broadcast_like"


def _parted(name: str, p: Any, shape: Shape) -> tuple[Shape, tuple[int, ...]]:
    """(the large tensor's shape parted into axes of data and of copies, which of those are copies)."""
    _, parted, copies = cast(Repeated, get_op(name)).split_shape(p, shape)
    return parted, copies


class Repeat(KernelOp):
    """Base: each element at all its places."""

    name: ClassVar[str]

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out,) = ins, outs
        require_float32(self.name, [data, out])
        parted, copies = _parted(self.name, p, data.shape)
        small = [1 if i in copies else d for i, d in enumerate(parted)]
        return gather(data, out, parted, broadcast_strides(small, parted))


@kernels_for("tile")
class Tile(Repeat):
    """data one beside the other."""

    name = "tile"


@kernels_for("repeat")
class RepeatElements(Repeat):
    """Each element several times in a row."""

    name = "repeat"


class RepeatBackward(KernelOp):
    """Base: the sum of grad over all places of an element of data, whose shape is the output's."""

    name: ClassVar[str]

    def plan(self, p: Any, shape: Shape) -> SumPlan:
        """How the copies are added."""
        return plan_sum(*_parted(self.name, p, shape))

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", self.plan(p, outs[0].shape).workspace_bytes)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, (out,) = ins[0], outs
        require_float32(f"_{self.name}_backward", [grad, out])
        if out.size == 0:
            return ()
        return self.plan(p, out.shape).launches(grad.address, out.address, work)


@kernels_for("_tile_backward")
class TileBackward(RepeatBackward):
    """The gradient of tile."""

    name = "tile"


@kernels_for("_repeat_backward")
class RepeatElementsBackward(RepeatBackward):
    """The gradient of repeat."""

    name = "repeat"
