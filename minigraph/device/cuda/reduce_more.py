"""CUDA forms of products over axes, their gradient, and tensors without their NaN; kernels/reduce_more.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import define
from .reduce import ReduceForward, repeated

define("_fill_nan", "fill_nan_forward_float32", lambda p: [single(p.value)])
define("_fill_nan_backward", "fill_nan_backward_float32")


@kernels_for("prod")
class Prod(ReduceForward):
    """The product over axes."""

    name, kernel = "prod", "prod_forward"


@kernels_for("_prod_backward")
class ProdBackward(KernelOp):
    """grad * out / data."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_prod_backward", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        sizes, steps = repeated(p, out.shape)
        args = (*map(pointer, ins), pointer(out), int64(out.size), dims(sizes), dims(steps, 0))
        return (Launch("prod_backward_broadcast", flat_grid(out.size), (BLOCK, 1, 1), args),)
