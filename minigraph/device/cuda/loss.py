"""CUDA forms of the output losses and of softmax cross-entropy; kernels/loss.cu.

Where the NumPy definition raises for a label out of range, these kernels add nothing to the loss and give its
row a gradient of 0; with poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType, align
from ...ops.loss import batch_divisor, softmax_view
from .basic import copy
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import PER_THREAD
from .rows import ids_arguments, row_group, row_launch
from .softmax import softmax_launches

COUNT_PIECE = 4096
"""Labels of which a block counts the ignored ones: kCountPiece."""
TOTAL_THREADS = 1024


@kernels_for("SoftmaxOutput")
class SoftmaxOutput(KernelOp):
    """softmax(data)."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("SoftmaxOutput", [ins[0], outs[0]])
        return softmax_launches("softmax_forward", [ins[0], outs[0]], softmax_view(p, ins[0].shape))


@kernels_for("_softmax_output_backward")
class SoftmaxOutputBackward(KernelOp):
    """(out - onehot(label)) * grad_scale / n, from labels or from target probabilities."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        if p.normalization != "valid" or ins[0].shape == ins[1].shape:
            return Algorithm("rows")
        return Algorithm("rows", align(4 * _count_pieces(ins[1].size)) + align(4))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        out, label, *above = ins
        require_float32("_softmax_output_backward", [out, *above, *outs])
        if out.size == 0:
            return ()
        from_above = pointer(above[0]) if above else address(0)
        if out.shape == label.shape:
            require_float32("_softmax_output_backward", [label])
            args = (pointer(out), pointer(label), from_above, pointer(outs[0]), int64(out.size),
                    single(p.grad_scale))
            kernel = "softmax_output_backward_probabilities"
            return (Launch(kernel, flat_grid(out.size), (BLOCK, 1, 1), args),)
        if p.normalization != "valid":
            return (_subtract_labels(p, out, label, from_above, outs[0], 0),)
        scale = work + align(4 * _count_pieces(label.size))
        return (*_valid_scale(p, out, label, work, scale),
                _subtract_labels(p, out, label, from_above, outs[0], scale))


def _count_pieces(labels: int) -> int:
    return max(1, -(-labels // COUNT_PIECE))


def _subtract_labels(p: Any, out: Operand, label: Operand, from_above: tuple[str, Any], target: Operand,
                     scale_at: int) -> Launch:
    outer, classes, inner = softmax_view(p, out.shape)
    spread = p.smooth_alpha / max(classes - 1, 1)
    args = (pointer(out), *ids_arguments("_softmax_output_backward", label), from_above, pointer(target),
            *map(int64, (outer * inner, classes, inner)), int32(p.use_ignore), int64(int(p.ignore_label)),
            single(p.ignore_label), single(spread), single(1 - p.smooth_alpha - spread),
            single(p.grad_scale / batch_divisor(p, label.shape, inner if p.multi_output else 1)), address(scale_at))
    return row_launch("softmax_output_backward", outer * inner, row_group(classes, inner), classes, args)


def _valid_scale(p: Any, out: Operand, label: Operand, counts: int, scale: int) -> Sequence[Launch]:
    """grad_scale / the number of labels that are not ignored, to the address `scale`."""
    pieces = _count_pieces(label.size)
    count = (*ids_arguments("_softmax_output_backward", label), address(counts), int64(label.size),
             int64(softmax_view(p, out.shape)[1]), int64(int(p.ignore_label)), single(p.ignore_label))
    total = (address(counts), address(scale), int64(pieces), int64(label.size), ("d", float(p.grad_scale)))
    return (Launch("softmax_output_backward_count", flat_grid(pieces * BLOCK), (BLOCK, 1, 1), count),
            Launch("softmax_output_backward_scale", (1, 1, 1), (TOTAL_THREADS, 1, 1), total))


@kernels_for("LinearRegressionOutput", "MAERegressionOutput")
class RegressionOutput(KernelOp):
    """data."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("a regression output", [ins[0], outs[0]])
        return copy(ins[0], outs[0])


@kernels_for("LogisticRegressionOutput")
class LogisticRegressionOutput(KernelOp):
    """sigmoid(data)."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[0], outs
        require_float32("LogisticRegressionOutput", [data, out])
        if out.size == 0:
            return ()
        args = (pointer(data), pointer(out), int64(out.size))
        return (Launch("logistic_regression_forward", flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), args),)


@kernels_for("_regression_backward")
class RegressionBackward(KernelOp):
    """(out - label), or its sign, times grad_scale / outputs a sample."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        out, label = ins
        require_float32("_regression_backward", [out, *outs])
        if out.size == 0:
            return ()
        scale = p.grad_scale * label.shape[0] / max(label.size, 1)
        args = (pointer(out), *ids_arguments("_regression_backward", label), pointer(outs[0]),
                int64(out.size), single(scale))
        return (Launch(f"regression_backward_{p.kind}", flat_grid(out.size), (BLOCK, 1, 1), args),)


@kernels_for("softmax_cross_entropy")
class SoftmaxCrossEntropy(KernelOp):
    """The cross-entropy of softmax(data) with label, summed over the rows."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("rows", align(4 * ins[0].shape[0]))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, label = ins
        require_float32("softmax_cross_entropy", [data, *outs])
        rows, classes = data.shape
        total = Launch("softmax_cross_entropy_forward_total", (1, 1, 1), (TOTAL_THREADS, 1, 1),
                       (address(work), pointer(outs[0]), int64(rows)))
        if rows == 0:
            return (total,)
        args = (pointer(data), *ids_arguments("softmax_cross_entropy", label), address(work), int64(rows),
                int64(classes))
        return row_launch("softmax_cross_entropy_forward", rows, row_group(classes), classes, args), total


@kernels_for("_softmax_cross_entropy_backward")
class SoftmaxCrossEntropyBackward(KernelOp):
    """grad * (softmax(data) - onehot(label))."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, data, label = ins
        require_float32("_softmax_cross_entropy_backward", [grad, data, *outs])
        if data.size == 0:
            return ()
        rows, classes = data.shape
        args = (pointer(grad), pointer(data), *ids_arguments("_softmax_cross_entropy_backward", label),
                pointer(outs[0]), int64(rows), int64(classes))
        return (row_launch("softmax_cross_entropy_backward", rows, row_group(classes), classes, args),)
