"""The stages of batch normalisation on a GPU: the launches of kernels/norm.cu on slices of the batch."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...base import Algorithm, align
from .channels import Channels, partition, partition_layout
from .launch import KernelOp, Launch, Operand, address, float32, float64, kernels_for, pointer
from .norm import NULL, Arg, Operands, Types, act, null_or, per_channel, per_element, per_part
from .norm_train import MOMENTS, make_line
from .operands import require_float32


def _no_parts(channels: int) -> Channels:
    """Channels of which nothing is summed."""
    return replace(partition_layout(0, 1, channels, 1), parts=0)


@kernels_for("_batchnorm_moments", "_batchnorm_moments_resume")
class BatchNormMomentsKernels(KernelOp):
    """Moments of the parts, joined to running ones."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = partition(p.axis, ins[0].shape)
        return Algorithm("kernel", c.partial_bytes(MOMENTS), chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_moments", ins[:1])
        c = partition(p.axis, ins[0].shape)
        running = pointer(ins[1]) if len(ins) > 1 else NULL
        join = (address(work), running, float64(p.rows_before * c.before * c.after), pointer(outs[0]), *[NULL] * 6,
                float32(0), float64(1), c.argument())
        return [*per_part("batchnorm_train_moments", (pointer(ins[0]), address(work)), c),
                *per_channel("batchnorm_train_statistics", join, c.channels)]


@kernels_for("_batchnorm_statistics")
class BatchNormStatisticsKernels(KernelOp):
    """Mean, variance and the rest of the mean, from moments."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_statistics", outs)
        c = _no_parts(outs[0].size)
        args = (NULL, pointer(ins[0]), float64(0), NULL, NULL, NULL, *map(pointer, outs), NULL, float32(p.eps),
                float64(p.count), c.argument())
        return per_channel("batchnorm_train_statistics", args, c.channels)


@kernels_for("_batchnorm_backward_params")
class BatchNormBackwardParamsKernels(KernelOp):
    """Gradients of gamma and beta from sums."""

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_batchnorm_backward_params", (ins[1], *outs))
        c = _no_parts(outs[0].size)
        args = (NULL, pointer(ins[0]), NULL, NULL, pointer(ins[1]), pointer(outs[0]), pointer(outs[1]), NULL,
                float32(p.eps), float64(1), c.argument())
        return per_channel("batchnorm_backward_params", args, c.channels)


class _Gradient(KernelOp):
    """What both passes over the gradient share: the slope of the activation, as `_batchnorm_backward` finds it."""

    @staticmethod
    def terms(p: Any, ins: Operands, saved: Sequence[Operand], line: int) -> tuple[tuple[Arg, ...], list[Launch]]:
        """The first arguments of a pass, and the launch before it that makes the line of the output."""
        grad, data, gamma, mean, var = ins[:5]
        out = address(saved[0].address if len(saved) == 1 else 0)
        made = make_line(p, gamma, saved[0], var, saved[1], line) if len(saved) == 2 else []
        return (pointer(grad), pointer(data), pointer(mean), out, address(line)), made


def _saved(p: Any, ins: Operands, after: int) -> Operands:
    """The inputs between the five first ones and the `after` last."""
    return ins[5:len(ins) - after]


@kernels_for("_batchnorm_backward_sums", "_batchnorm_backward_sums_resume")
class BatchNormBackwardSumsKernels(_Gradient):
    """Sums of the parts, added to running ones, and the sloped gradient where that is one of an addend."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = partition(p.axis, ins[1].shape)
        return Algorithm("kernel", align(c.partial_bytes(2)) + 8 * c.channels, chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        resumes = ins[-1].dtype == outs[0].dtype
        saved = _saved(p, ins, int(resumes))
        require_float32("_batchnorm_backward_sums", (*ins[:5], *saved))
        c = partition(p.axis, ins[1].shape)
        terms, before = self.terms(p, ins, saved, work + align(c.partial_bytes(2)))
        join = (address(work), pointer(ins[-1]) if resumes else NULL, pointer(outs[0]), *[NULL] * 5, float32(0),
                float64(1), c.argument())
        sloped = address(outs[1].address if len(outs) > 1 else 0)
        return [*before,
                *per_part("batchnorm_backward_partials_inplace", (*terms, address(work), sloped, act(p.act_type)), c),
                *per_channel("batchnorm_backward_params", join, c.channels)]


@kernels_for("_batchnorm_backward_data")
class BatchNormBackwardDataKernels(_Gradient):
    """The channels' scale, slope and shift, and the data gradient."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", 4 * 5 * ins[3].size)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        _, data, gamma, mean, var = ins[:5]
        saved, sums = _saved(p, ins, 1), ins[-1]
        require_float32("_batchnorm_backward_data", (*ins[:5], *saved, *outs))
        c = _no_parts(mean.size)
        terms, before = self.terms(p, ins, saved, work + 12 * c.channels)
        params = (NULL, pointer(sums), NULL, null_or(gamma, p.fix_gamma), pointer(var), NULL, NULL, address(work),
                  float32(p.eps), float64(p.count), c.argument())
        made = (address(work), pointer(outs[0]), act(p.act_type))
        return [*before, *per_channel("batchnorm_backward_params", params, c.channels),
                *per_element("batchnorm_backward_data_inplace", (*terms, *made), p.axis, data)]
