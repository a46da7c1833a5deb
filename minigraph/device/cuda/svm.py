"""CUDA forms of SVMOutput and its gradient; kernels/svm.cu. A label out of range, which raises on the CPU, gives no
gradient here; with poison the program raises (checking.py)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .basic import copy
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import ids_arguments


@kernels_for("SVMOutput")
class SvmOutput(KernelOp):
    """data."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        return copy(ins[0], outs[0])


@kernels_for("_svm_backward")
class SvmBackward(KernelOp):
    """The gradient of the hinge losses."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, label = ins
        (out,) = outs
        require_float32("_svm_backward", [data, out])
        if out.size == 0:
            return ()
        args = (pointer(data), *ids_arguments("_svm_backward", label), pointer(out), int64(out.size),
                int64(data.shape[-1]), single(p.margin), single(p.regularization_coefficient), int32(p.use_linear))
        return (Launch("svm_backward_float32", flat_grid(out.size), (BLOCK, 1, 1), args),)
