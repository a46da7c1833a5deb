"""Batch normalisation on a GPU: the launches of kernels/norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType, align
from ...ops.channels import channel_layout
from .channels import THREADS as CHANNEL_THREADS
from .channels import Channels, partition, span_grid
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, float32, int64, kernels_for, pointer
from .operands import require_float32

MOMENTS = 4
"""Floats of the moments of a part (norm.cu: Moments)."""
Types = Sequence[TensorType]
Operands = Sequence[Operand]
Arg = tuple[str, Any]


def _null_or(operand: Operand, held: bool) -> Arg:
    """A pointer, or null for a gamma that is held at 1."""
    return address(0 if held else operand.address)


def _per_part(kernel: str, operands: Sequence[Arg], c: Channels) -> list[Launch]:
    """The launch that sums each part; none where there are none."""
    if not c.parts or not c.channels:
        return []
    return [Launch(kernel, (c.blocks, 1, 1), (CHANNEL_THREADS, 1, 1), (*operands, c.argument()))]


def _per_channel(kernel: str, operands: Sequence[Arg], channels: int) -> list[Launch]:
    """A launch with a thread a channel."""
    return [Launch(kernel, flat_grid(channels), (BLOCK, 1, 1), tuple(operands))] if channels else []


def _per_element(kernel: str, operands: Sequence[Arg], axis: int, data: Operand) -> list[Launch]:
    """An elementwise launch that knows channels."""
    if not data.size:
        return []
    layout = channel_layout(axis, data.shape)
    args = (*operands, int64(data.size), int64(layout[2]), int64(layout[3]))
    return [Launch(kernel, span_grid(data.size), (BLOCK, 1, 1), args)]


def _with_vectors(c: Channels, terms: int, vectors: int) -> int:
    """Workspace bytes of the parts' sums of some terms, then of vectors a channel."""
    return align(c.partial_bytes(terms)) + 4 * vectors * c.channels


@kernels_for("_fill_ones")
class FillOnesKernels(KernelOp):
    """Ones."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_fill_ones", outs)
        return _per_channel("fill_ones_inplace", (pointer(outs[0]), int64(outs[0].size)), outs[0].size)


@kernels_for("_batchnorm_train")
class BatchNormTrainKernels(KernelOp):
    """Moments of the parts, statistics of the channels, and the normalised tensor."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", _with_vectors(partition(p.axis, ins[0].shape), MOMENTS, 2))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_train", (*ins, *outs))
        (data, gamma, beta), (out, mean, var) = ins, outs
        c = partition(p.axis, data.shape)
        scale = work + align(c.partial_bytes(MOMENTS))
        shift = scale + 4 * c.channels
        statistics = (address(work), _null_or(gamma, p.fix_gamma), pointer(beta), pointer(mean), pointer(var),
                      address(scale), float32(p.eps), c.argument())
        normalise = (pointer(data), pointer(mean), address(scale), address(shift), pointer(out))
        return [*_per_part("batchnorm_train_moments", (pointer(data), address(work)), c),
                *_per_channel("batchnorm_train_statistics", statistics, c.channels),
                *_per_element("batchnorm_normalise_inplace", normalise, p.axis, data)]


@kernels_for("_batchnorm_update_moving")
class BatchNormUpdateMovingKernels(KernelOp):
    """Moving statistics, where they lie."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_update_moving", (*ins, *outs))
        keep = p.momentum if ins[4].size else 1.0
        args = (*map(pointer, ins[:4]), *map(pointer, outs), float32(keep), float32(1 - keep), int64(outs[0].size))
        return _per_channel("batchnorm_update_moving_inplace", args, outs[0].size)


@kernels_for("_batchnorm_backward")
class BatchNormBackwardKernels(KernelOp):
    """Sums of the parts, gradients of gamma and beta, and the data gradient."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", _with_vectors(partition(p.axis, ins[0].shape), 2, 3))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_backward", (*ins, *outs))
        grad, data, gamma, mean, var = ins
        c = partition(p.axis, data.shape)
        vectors = address(work + align(c.partial_bytes(2)))
        params = (address(work), _null_or(gamma, p.fix_gamma), pointer(var), pointer(outs[1]), pointer(outs[2]),
                  vectors, float32(p.eps), c.argument())
        terms = (pointer(grad), pointer(data), pointer(mean))
        return [*_per_part("batchnorm_backward_partials", (*terms, address(work)), c),
                *_per_channel("batchnorm_backward_params", params, c.channels),
                *_per_element("batchnorm_backward_data_inplace", (*terms, vectors, pointer(outs[0])), p.axis, data)]


def _scale(p: Any, gamma: Operand, var: Operand, work: int) -> list[Launch]:
    """The launch that writes the channels' scale to workspace."""
    args = (_null_or(gamma, p.fix_gamma), pointer(var), address(work), float32(p.eps), int64(var.size))
    return _per_channel("batchnorm_inference_scale", args, var.size)


@kernels_for("_batchnorm_inference")
class BatchNormInferenceKernels(KernelOp):
    """The channels' scale, and the normalised tensor."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 4 * ins[1].size)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_inference", (*ins, *outs))
        data, gamma, beta, mean, var = ins
        args = (pointer(data), pointer(mean), address(work), pointer(beta), pointer(outs[0]))
        return [*_scale(p, gamma, var, work), *_per_element("batchnorm_normalise_inplace", args, p.axis, data)]


@kernels_for("_batchnorm_inference_backward_data")
class BatchNormInferenceBackwardDataKernels(KernelOp):
    """The channels' scale, and the data gradient."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 4 * ins[1].size)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_inference_backward_data", (*ins, *outs))
        grad, gamma, var = ins
        args = (pointer(grad), address(work), pointer(outs[0]))
        return [*_scale(p, gamma, var, work),
                *_per_element("batchnorm_inference_backward_data_inplace", args, p.axis, grad)]


@kernels_for("_batchnorm_inference_backward_params")
class BatchNormInferenceBackwardParamsKernels(KernelOp):
    """Sums of the parts, and gradients of gamma and beta."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", partition(p.axis, ins[0].shape).partial_bytes(2))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_inference_backward_params", (*ins, *outs))
        grad, data, mean, var = ins
        c = partition(p.axis, grad.shape)
        terms = (pointer(grad), _null_or(data, p.fix_gamma), _null_or(mean, p.fix_gamma), address(work))
        params = (address(work), _null_or(var, p.fix_gamma), pointer(outs[0]), pointer(outs[1]), float32(p.eps),
                  c.argument())
        return [*_per_part("batchnorm_backward_partials", terms, c),
                *_per_channel("batchnorm_inference_backward_params", params, c.channels)]
