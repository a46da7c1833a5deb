"""CUDA forms of the elementwise ops of tensors of one shape; kernels/elemwise.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..strides import broadcast_strides, merge_axes
from .basic import copy
from .launch import BLOCK, KernelOp, Launch, Operand, dims, flat_grid, int64, kernels_for, pointer
from .operands import require_float32
from .pointwise import PER_THREAD, define

for _op in ("elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div"):
    define(_op, f"{_op}_forward_float32")
for _op in ("power", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal", "lesser",
            "lesser_equal"):
    define(f"_{_op}", f"{_op}_forward_float32")
define("_power_backward_lhs", "power_backward_lhs_float32")
define("_power_backward_rhs", "power_backward_rhs_float32")
define("_multiply_compare", lambda p: f"multiply_compare_forward_{p.compare}")


@kernels_for("_div_backward_rhs")
class DivideBackwardRhs(KernelOp):
    """-grad * out / rhs with rhs broadcast to the shape of grad."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_div_backward_rhs", [*ins, *outs])
        if outs[0].size == 0:
            return ()
        shape, (steps,) = merge_axes(outs[0].shape, broadcast_strides(ins[1].shape, outs[0].shape))
        args = (*map(pointer, ins), pointer(outs[0]), int64(outs[0].size), dims(shape), dims(steps, 0))
        return (Launch("div_backward_rhs_broadcast", flat_grid(outs[0].size), (BLOCK, 1, 1), args),)


@kernels_for("add_n")
class AddN(KernelOp):
    """Any number of inputs, added in ascending order: pairs first, then one at a time to the output."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("add_n", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        if len(ins) == 1:
            return copy(ins[0], out)
        launches = [_flat("elemwise_add_forward_float32", ins[:2], out)]
        launches += [_flat("elemwise_add_forward_float32", [out, term], out) for term in ins[2:]]
        return launches


def _flat(kernel: str, ins: Sequence[Operand], out: Operand) -> Launch:
    args = (*map(pointer, ins), pointer(out), int64(out.size))
    return Launch(kernel, flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), args)
