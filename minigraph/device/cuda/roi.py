"""CUDA forms of ROIPooling and ROIAlign and of their gradients; kernels/roi.cu. A region of an image that there is not,
for which the CPU raises, counts for nothing here."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, kernels_for, pointer
from .operands import require_float32, single


def _regions(p: Any, data: Operand, out: Operand) -> tuple[str, Any]:
    """The kernel argument `Roi`."""
    align = [int(getattr(p, name, 0)) for name in ("sample_ratio", "position_sensitive", "aligned")]
    return "8qf3i", (*data.shape, *out.shape, single(p.spatial_scale)[1], *align)


def _launch(kernel: str, args: Sequence[tuple[str, Any]], threads: int) -> Sequence[Launch]:
    return (Launch(kernel, flat_grid(threads), (BLOCK, 1, 1), tuple(args)),) if threads else ()


@kernels_for("ROIPooling")
class RoiPooling(KernelOp):
    """A thread for each bin of each channel."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("ROIPooling", [*ins, outs[0]])
        args = (*map(pointer, (*ins, *outs)), _regions(p, ins[0], outs[0]))
        return _launch("roi_pooling_forward_float32", args, outs[0].size)


@kernels_for("_roi_pooling_backward")
class RoiPoolingBackward(KernelOp):
    """A thread for each plane of data."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, rois, places, data = ins
        require_float32("_roi_pooling_backward", [grad, rois, *outs])
        args = (*map(pointer, (grad, rois, places, outs[0])), _regions(p, data, grad))
        return _launch("roi_pooling_backward_float32", args, data.shape[0] * data.shape[1])


@kernels_for("_contrib_ROIAlign")
class RoiAlign(KernelOp):
    """A thread for each bin of each channel."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_contrib_ROIAlign", [*ins, *outs])
        args = (*map(pointer, (*ins, *outs)), _regions(p, ins[0], outs[0]))
        return _launch("roi_align_forward_float32", args, outs[0].size)


@kernels_for("_roi_align_backward")
class RoiAlignBackward(KernelOp):
    """A thread for each plane of data."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, rois, data = ins
        require_float32("_roi_align_backward", [grad, rois, *outs])
        args = (*map(pointer, (grad, rois, outs[0])), _regions(p, data, grad))
        return _launch("roi_align_backward_float32", args, data.shape[0] * data.shape[1])
