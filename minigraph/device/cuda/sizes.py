"""CUDA forms of shape_array and size_array; kernels/sizes.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ...ops.registry import get_op
from ...ops.sizes import FromShape
from .launch import KernelOp, Launch, Operand, dims, int64, kernels_for, pointer


class Sizes(KernelOp):
    """Base: the numbers that the op named `name` gives for data's shape."""

    name: ClassVar[str]

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        op = get_op(self.name)
        assert isinstance(op, FromShape)
        if outs[0].size == 0:
            return ()
        args = (pointer(outs[0]), int64(outs[0].size), dims(op.values(ins[0].shape)))
        return (Launch("sizes_forward", (1, 1, 1), (32, 1, 1), args),)


@kernels_for("shape_array")
class ShapeArray(Sizes):
    """The dimensions of data."""

    name = "shape_array"


@kernels_for("size_array")
class SizeArray(Sizes):
    """The number of elements of data."""

    name = "size_array"
