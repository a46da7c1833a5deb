"""softmax, its logarithm and the output losses by the kernels of kernels/cpu/softmax.cpp and elemwise.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.loss import SoftmaxOutputBackwardParams, SoftmaxOutputParams, batch_divisor, softmax_view
from ....ops.registry import get_op
from ....ops.softmax import FromOutput, SoftmaxBase
from .call import (
    NativeCall,
    NativeOp,
    Operand,
    Types,
    address,
    define,
    float32,
    float64,
    int64,
    native_for,
    pointer,
)
from .layout import Layouts
from .refusal import Refusal

Operands = Sequence[Operand]
View = tuple[int, int, int]
NULL = address(0)


class PlainOp(NativeOp):
    """Base: plain operands."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), len(outs)),) if 0 not in ins[0].shape[1:] else ()   # they divide by the classes


def forward_call(data: Operand, out: Operand, view: View, logarithm: bool, temperature: float | None) -> NativeCall:
    """The call for a softmax, or its logarithm, over the middle axis of a view."""
    return NativeCall("softmax_forward", (pointer(data), pointer(out), int64(*view, logarithm),
                                          float32(1.0 if temperature is None else temperature), PADDING))


PADDING = ("4x", ())
"""What C++ leaves after a struct's last float to align the next struct."""


class Softmax(PlainOp):
    """A softmax, or its logarithm, over the op's view."""

    def __init__(self, name: str) -> None:
        self.name = name

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        op = get_op(self.name)
        assert isinstance(op, SoftmaxBase)
        view = op.view_of(p, ins[0].shape)
        return [forward_call(ins[0], outs[0], view, self.name == "log_softmax", getattr(p, "temperature", None))]


class SoftmaxBackward(PlainOp):
    """The gradient from the output."""

    def __init__(self, name: str) -> None:
        self.name = name

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        op = get_op(self.name)
        assert isinstance(op, FromOutput)
        args = (*map(pointer, ins), pointer(outs[0]), int64(*op.view_of(p, ins[0].shape)),
                int64(self.name == "_log_softmax_backward"), float32(1.0 if p.temperature is None else p.temperature),
                PADDING)
        return [NativeCall("softmax_backward", args)]


for _name in ("softmax", "log_softmax", "SoftmaxActivation"):
    define(_name, Softmax(_name))
for _name in ("_softmax_backward", "_log_softmax_backward"):
    define(_name, SoftmaxBackward(_name))


@native_for("SoftmaxOutput")
class SoftmaxOutput(PlainOp):
    """softmax(data)."""

    def calls(self, p: SoftmaxOutputParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [forward_call(ins[0], outs[0], softmax_view(p, ins[0].shape), False, None)]


@native_for("_softmax_output_backward")
class SoftmaxOutputBackward(PlainOp):
    """(out - target) times the scale, from labels or from target probabilities."""

    def calls(self, p: SoftmaxOutputBackwardParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        out, label, *above = ins
        if out.shape == label.shape:
            return _from_probabilities(p.grad_scale, out, label, above, outs[0])
        view = softmax_view(p, out.shape)
        spread = p.smooth_alpha / max(view[1] - 1, 1)
        ignored = p.ignore_label if p.use_ignore else None
        refusal = Refusal("SoftmaxOutput: label", label.shape, view[1], ignored, p.first)
        # What is left to divide by is the number of valid labels, which the kernel counts.
        divisor = 1 if p.normalization == "valid" else batch_divisor(p, label.shape, view[2] if p.multi_output else 1)
        args = (pointer(out), pointer(label), pointer(above[0]) if above else NULL, pointer(outs[0]),
                refusal.argument(), int64(*view, p.use_ignore, int(p.ignore_label), p.normalization == "valid"),
                float32(p.ignore_label), float32(spread), float32(1 - p.smooth_alpha - spread), PADDING,
                float64(p.grad_scale / divisor))
        return [NativeCall("softmax_output_backward", args, refusal)]


def _from_probabilities(scale: float, out: Operand, label: Operand, above: Operands,
                        data_grad: Operand) -> list[NativeCall]:
    calls = [_difference("difference_backward", out, label, data_grad, scale)]
    if above:
        product = (pointer(data_grad), pointer(above[0]), pointer(data_grad), int64(data_grad.size))
        calls.append(NativeCall("mul_forward", product))
    return calls


def _difference(kernel: str, out: Operand, label: Operand, data_grad: Operand, scale: float) -> NativeCall:
    return NativeCall(kernel, (pointer(out), pointer(label), pointer(data_grad), int64(data_grad.size),
                               float32(scale), float32(0.0)))


class Prediction(PlainOp):
    """A function of the data; of the label only the shape is used."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall(self.kernel, (pointer(ins[0]), pointer(outs[0]), int64(outs[0].size)))]


define("LinearRegressionOutput", Prediction("copy_forward"))
define("MAERegressionOutput", Prediction("copy_forward"))
define("LogisticRegressionOutput", Prediction("sigmoid_forward"))


@native_for("_regression_backward")
class RegressionBackward(PlainOp):
    """(out - label), or its sign, times the scale."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        out, label = ins
        scale = p.grad_scale * label.shape[0] / max(label.size, 1)
        return [_difference(f"{p.kind}_backward", out, label, outs[0], scale)]
