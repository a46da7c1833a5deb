"""CUDA forms of softmax, log_softmax and SoftmaxActivation, and their gradients; kernels/softmax.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from ...base import Shape
from ...ops.registry import get_op
from .launch import KernelOp, Launch, Operand, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import row_group, row_launch

View = tuple[int, int, int]
"""(outer, classes, inner) of a softmax."""


def softmax_launches(kernel: str, tensors: Sequence[Operand], view: View,
                     temperature: float | None = None) -> Sequence[Launch]:
    """Launches of a kernel of kernels/softmax.cu on tensors of one view, the output last."""
    outer, classes, inner = view
    rows = outer * inner
    if rows * classes == 0:
        return ()
    args = (*map(pointer, tensors), int64(rows), int64(classes), int64(inner),
            single(1.0 if temperature is None else temperature))
    return (row_launch(kernel, rows, row_group(classes, inner), classes, args),)


class SoftmaxKernel(KernelOp):
    """Base: `kernel` over the view that the op of this name declares."""

    name: ClassVar[str]
    kernel: ClassVar[str]

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(self.name, [*ins, *outs])
        view = _view(self.name, p, ins[0].shape)
        return softmax_launches(self.kernel, [*ins, *outs], view, getattr(p, "temperature", None))


def _view(name: str, p: Any, shape: Shape) -> View:
    return cast(Any, get_op(name)).view_of(p, shape)


@kernels_for("softmax")
class Softmax(SoftmaxKernel):
    """exp(data) / sum(exp(data)) along an axis."""

    name, kernel = "softmax", "softmax_forward"


@kernels_for("SoftmaxActivation")
class SoftmaxActivation(SoftmaxKernel):
    """softmax over all of each instance, or over its channels at each place."""

    name, kernel = "SoftmaxActivation", "softmax_forward"


@kernels_for("_softmax_backward")
class SoftmaxBackward(SoftmaxKernel):
    """(grad - sum(grad * out)) * out / temperature."""

    name, kernel = "_softmax_backward", "softmax_backward"


@kernels_for("log_softmax")
class LogSoftmax(SoftmaxKernel):
    """data - log(sum(exp(data))) along an axis."""

    name, kernel = "log_softmax", "log_softmax_forward"


@kernels_for("_log_softmax_backward")
class LogSoftmaxBackward(SoftmaxKernel):
    """(grad - exp(out) * sum(grad)) / temperature."""

    name, kernel = "_log_softmax_backward", "log_softmax_backward"
