"""Elementwise ops by the kernels of kernels/cpu/elemwise.cpp, in any layout that all operands share."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .call import NativeCall, NativeOp, Operand, Types, int64, native_for, pointer
from .layout import Layouts, alike


class Elementwise(NativeOp):
    """One kernel over all stored elements; padding stays zero because the function of zeros is zero."""

    kernel: str

    def takes(self, p: Any) -> bool:
        """Whether the kernel computes the op with these parameters."""
        return True

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        if not self.takes(p):
            return ()
        return [Layouts((layout,) * len(ins), (layout,) * len(outs)) for layout in alike(*ins, *outs)]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall(self.kernel, (*map(pointer, ins), pointer(outs[0]), int64(outs[0].size)))]


@native_for("relu")
class Relu(Elementwise):
    """max(data, 0)."""

    kernel = "relu_forward"


@native_for("Activation")
class Activation(Relu):
    """Activation where it is relu."""

    def takes(self, p: Any) -> bool:
        return p.act_type == "relu"


@native_for("_activation_backward")
class ActivationBackward(Activation):
    """The gradient of relu from its output."""

    kernel = "relu_backward"


@native_for("elemwise_add")
class Add(Elementwise):
    """lhs + rhs."""

    kernel = "add_forward"
