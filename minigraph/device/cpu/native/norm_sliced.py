"""Batch normalisation in stages, by the kernels of kernels/cpu/norm.cpp that the ops in one piece call too: so a batch
in slices has the bits of the whole."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ops.norm_sliced import DOUBLES, MomentsParams, StagedParams, StatisticsParams
from ....ops.registry import get_op
from .call import NativeCall, NativeOp, Types, native_for
from .channels import channel_shape
from .layout import Layouts
from .norm import (
    MOMENTS,
    PRODUCTS,
    NormOp,
    Operands,
    gradient,
    held,
    line_of,
    moments_of,
    slope_operands,
    slopes_of,
    statistics,
    sums_of,
)


def _have_dtypes(names: Sequence[str], types: Types) -> bool:
    """Whether totals are float64, and all else float32."""
    return all(t.dtype == (np.float64 if name in DOUBLES else np.float32) for name, t in zip(names, types, strict=True))


class _Stage(NormOp):
    """Base of the stages that read the batch."""

    def takes(self, p: Any, ins: Types, outs: Types) -> bool:
        return _have_dtypes(get_op(self.name).inputs(p), ins) and all(
            t.dtype == (np.float64 if self.sums and k == 0 else np.float32) for k, t in enumerate(outs))


@native_for("_batchnorm_moments")
class Moments(_Stage):
    """Moments of the segments, and from them those of the slice and of what came before."""

    name = "_batchnorm_moments"
    sums = MOMENTS
    vectors = 0

    def act_type(self, p: MomentsParams) -> str | None:
        return None

    def calls(self, p: MomentsParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, *running = ins
        shape = channel_shape(p.axis, data)
        row = shape.count // data.shape[0] if data.shape[0] else 0
        return moments_of(data, shape, work, outs[0].address, running[0].address if running else 0, p.rows_before * row)


@native_for("_batchnorm_moments_resume")
class MomentsResume(Moments):
    """The same, from running moments on."""

    name = "_batchnorm_moments_resume"


class _Vectors(NativeOp):
    """Base of the stages that make vectors a channel of totals."""

    name: str

    def takes(self, p: StatisticsParams, ins: Types, outs: Types) -> bool:
        return _have_dtypes(get_op(self.name).inputs(p), ins) and all(t.dtype == np.float32 for t in outs)

    def layouts(self, p: StatisticsParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts.plain(len(ins), len(outs))]


@native_for("_batchnorm_statistics")
class Statistics(_Vectors):
    """Mean, variance and rest."""

    name = "_batchnorm_statistics"

    def calls(self, p: StatisticsParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [statistics(ins[0].address, outs, p.count)]


@native_for("_batchnorm_backward_params")
class BackwardParams(_Vectors):
    """Gradients of gamma and beta."""

    name = "_batchnorm_backward_params"

    def calls(self, p: StatisticsParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [slopes_of(p.eps, ins[0].address, None, ins[1], outs, 0, p.count)]


@native_for("_batchnorm_backward_sums")
class BackwardSums(_Stage):
    """Sums of the segments, and from them those of the slice and of what came before; and the sloped gradient where
    that is one of an addend."""

    name = "_batchnorm_backward_sums"
    tensor = 1
    sums = PRODUCTS

    def act_type(self, p: StagedParams) -> str | None:
        return None

    def calls(self, p: StagedParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (grad, data, gamma, mean, var, *saved), (total, *sloped) = ins, outs
        running = ins[-1].address if get_op(self.name).inputs(p)[-1] == "running" else 0
        shape = channel_shape(p.axis, data)
        line = self.line(shape, work)
        beta, rest, out = slope_operands(p, saved)
        return [line_of(p, gamma, var, line, beta, mean, rest),
                *sums_of(shape, grad, data, out, sloped[0] if sloped else None, line, work, p.act_type, total.address,
                         running)]


@native_for("_batchnorm_backward_sums_resume")
class BackwardSumsResume(BackwardSums):
    """The same, from running sums on."""

    name = "_batchnorm_backward_sums_resume"


@native_for("_batchnorm_backward_data")
class BackwardData(_Stage):
    """The data gradient by the sums of the batch."""

    name = "_batchnorm_backward_data"
    tensor = 1
    vectors = 5

    def calls(self, p: StagedParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        grad, data, gamma, mean, var, *saved = ins
        shape = channel_shape(p.axis, data)
        line = self.line(shape, work)
        slopes = line + 4 * 3 * shape.padded
        beta, rest, out = slope_operands(p, saved)
        return [line_of(p, gamma, var, line, beta, mean, rest),
                slopes_of(p.eps, ins[-1].address, held(p, gamma), var, (), slopes, p.count),
                gradient(shape, grad, data, out, line, slopes, outs[0], p.act_type)]
