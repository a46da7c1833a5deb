"""Batch normalisation by the moving statistics on a GPU: launches of kernels/norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm
from .channels import partition
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, float32, int64, kernels_for, pointer
from .norm import NULL, Operands, Types, act, addend, null_or, per_channel, per_element, per_part
from .operands import require_float32


def _scale(p: Any, gamma: Operand, var: Operand, work: int) -> list[Launch]:
    """The launch that writes the channels' scale to workspace."""
    args = (null_or(gamma, p.fix_gamma), pointer(var), address(work), float32(p.eps), int64(var.size))
    return per_channel("batchnorm_inference_scale", args, var.size)


@kernels_for("_batchnorm_inference")
class BatchNormInferenceKernels(KernelOp):
    """The channels' scale, and the normalised tensor."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 4 * ins[1].size)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_inference", (*ins, *outs))
        data, gamma, beta, mean, var, *_ = ins
        args = (pointer(data), pointer(mean), address(work), pointer(beta), addend(p, ins, 5), pointer(outs[0]),
                act(p.act_type))
        return [*_scale(p, gamma, var, work), *per_element("batchnorm_normalise_inplace", args, p.axis, data)]


@kernels_for("_batchnorm_fold")
class BatchNormFoldKernels(KernelOp):
    """A thread an element of the weight; the first of a row makes the bias too."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_fold", (*ins, *outs))
        weight, gamma, *vectors = ins[:5]
        if not weight.size:
            return ()
        bias = address(0 if p.no_bias else ins[5].address)
        args = (pointer(weight), null_or(gamma, p.fix_gamma), *map(pointer, vectors), bias, *map(pointer, outs),
                float32(p.eps), int64(weight.size), int64(weight.shape[0]))
        return (Launch("batchnorm_fold", flat_grid(weight.size), (BLOCK, 1, 1), args),)


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
                *per_element("batchnorm_inference_backward_data_inplace", args, p.axis, grad)]


@kernels_for("_batchnorm_inference_backward_params")
class BatchNormInferenceBackwardParamsKernels(KernelOp):
    """Sums of the parts, and gradients of gamma and beta."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", partition(p.axis, ins[0].shape).partial_bytes(2))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_inference_backward_params", (*ins, *outs))
        grad, data, mean, var = ins
        c = partition(p.axis, grad.shape)
        terms = (pointer(grad), null_or(data, p.fix_gamma), null_or(mean, p.fix_gamma), NULL, NULL,
                 address(work), NULL, act(None))
        params = (address(work), null_or(var, p.fix_gamma), pointer(outs[0]), pointer(outs[1]), float32(p.eps),
                  c.argument())
        return [*per_part("batchnorm_backward_partials_inplace", terms, c),
                *per_channel("batchnorm_inference_backward_params", params, c.channels)]
