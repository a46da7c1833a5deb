"""Batch normalisation by the statistics of the batch on a GPU: launches of kernels/norm.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, align
from .channels import Channels, partition
from .launch import KernelOp, Launch, Operand, address, float32, float64, int64, kernels_for, pointer
from .norm import NULL, Operands, Types, act, addend, null_or, per_channel, per_element, per_part
from .operands import require_float32

MOMENTS = 4
"""Floats of the moments of a part (norm.cu: Moments)."""


def _with_vectors(c: Channels, terms: int, vectors: int) -> int:
    """Workspace bytes of the parts' sums of some terms, then of vectors a channel."""
    return align(c.partial_bytes(terms)) + 4 * vectors * c.channels


@kernels_for("_batchnorm_train")
class BatchNormTrainKernels(KernelOp):
    """Moments of the parts, statistics of the channels, and the normalised tensor."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = partition(p.axis, ins[0].shape)
        return Algorithm("kernel", _with_vectors(c, MOMENTS, 2), chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_train", (*ins, *outs))
        (data, gamma, beta, *_), (out, mean, var, rest) = ins, outs
        c = partition(p.axis, data.shape)
        scale = work + align(c.partial_bytes(MOMENTS))
        shift = scale + 4 * c.channels
        statistics = (address(work), NULL, float64(0), NULL, null_or(gamma, p.fix_gamma), pointer(beta),
                      pointer(mean), pointer(var), pointer(rest), address(scale), float32(p.eps), float64(c.count),
                      c.argument())
        normalise = (pointer(data), pointer(mean), address(scale), address(shift), addend(p, ins, 3), pointer(out),
                     act(p.act_type))
        return [*per_part("batchnorm_train_moments", (pointer(data), address(work)), c),
                *per_channel("batchnorm_train_statistics", statistics, c.channels),
                *per_element("batchnorm_normalise_inplace", normalise, p.axis, data)]


def make_line(p: Any, gamma: Operand, beta: Operand, var: Operand, rest: Operand, line: int) -> list[Launch]:
    """The launch that makes the channels' scale and shift from what the training form kept."""
    args = (null_or(gamma, p.fix_gamma), pointer(beta), pointer(var), pointer(rest), address(line), float32(p.eps),
            int64(var.size))
    return per_channel("batchnorm_apply_line", args, var.size)


@kernels_for("_batchnorm_apply")
class BatchNormApplyKernels(KernelOp):
    """The channels' scale and shift, and the normalised tensor."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 8 * ins[1].size)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_apply", (*ins, *outs))
        data, gamma, beta, *_ = ins
        mean, var, rest = ins[-3:]
        args = (pointer(data), pointer(mean), address(work), address(work + 4 * var.size), addend(p, ins, 3),
                pointer(outs[0]), act(p.act_type))
        return [*make_line(p, gamma, beta, var, rest, work),
                *per_element("batchnorm_normalise_inplace", args, p.axis, data)]


@kernels_for("_batchnorm_backward")
class BatchNormBackwardKernels(KernelOp):
    """Sums of the parts, gradients of gamma and beta, and the data gradient; where the activation's slope is found
    from data, the scale and shift of the output before. Where the sloped gradient is that of an addend, the first pass
    stores it and the last one reads it."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = partition(p.axis, ins[0].shape)
        return Algorithm("kernel", _with_vectors(c, 2, 5), chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_backward", (*ins, *outs))
        grad, data, gamma, mean, var, *saved = ins
        c = partition(p.axis, data.shape)
        line = work + align(c.partial_bytes(2))
        vectors = address(line + 8 * c.channels)
        params = (address(work), NULL, NULL, null_or(gamma, p.fix_gamma), pointer(var), pointer(outs[1]),
                  pointer(outs[2]), vectors, float32(p.eps), float64(c.count), c.argument())
        centred, sloped = (pointer(data), pointer(mean)), [pointer(out) for out in outs[3:]]
        out = address(saved[0].address if len(saved) == 1 else 0)
        first = (pointer(grad), *centred, out, address(line))
        second, act_again = (first, act(p.act_type)) if not sloped else ((*sloped, *centred, NULL, NULL), act(None))
        return [*(make_line(p, gamma, saved[0], var, saved[1], line) if len(saved) == 2 else ()),
                *per_part("batchnorm_backward_partials_inplace",
                          (*first, address(work), *(sloped or [NULL]), act(p.act_type)), c),
                *per_channel("batchnorm_backward_params", params, c.channels),
                *per_element("batchnorm_backward_data_inplace", (*second, vectors, pointer(outs[0]), act_again),
                             p.axis, data)]
