"""Batch normalisation in stages, each of which runs on slices of the batch, with the bits of the ops in norm_train.py.

    forward   moments of each slice onto running ones; statistics from them; `_batchnorm_apply` on each slice
    backward  sums of each slice onto running ones; gradients of gamma and beta, and the data gradient from them

Moments and sums are float64 tensors (2, channels). Moments are means and sums of squared deviations; how many elements
they are of is known from the rows before.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Cost, PartialShape, Shape, TensorType
from .channels import Statistics, channel_layout, infer_channels, part_scratch, statistics_scratch
from .norm import BatchNormOp, NormaliseParams, sliced_by_channels
from .norm_train import gradient_vectors, sign_from_data, sloped_parts, write_data_gradient
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import param
from .registry import get_op, register

Types = Sequence[TensorType]
Shapes = tuple[list[PartialShape], list[PartialShape]]
Dtypes = tuple["list[np.dtype | None]", "list[np.dtype | None]"]
_DOUBLE = np.dtype(np.float64)
DOUBLES = ("running", "moments", "sums")
"""Names of the inputs that are totals, float64."""


@dataclass(frozen=True)
class MomentsParams:
    """Parameters of moments and sums a channel."""

    axis: int = param(1, "int", "the channel axis")
    rows_before: int = param(0, "int", "rows of the batch that the running moments are of")


@dataclass(frozen=True)
class StatisticsParams:
    """Parameters of statistics and gradients a channel."""

    count: int = param(1, "int", "elements a channel, in the whole batch")
    eps: float = param(1e-3, "float", "added to the variance")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype of the tensor that is normalised")


@dataclass(frozen=True)
class StagedParams(NormaliseParams):
    """Parameters of the stages of the gradient."""

    count: int = param(1, "int", "elements a channel, in the whole batch")


def _given_or_double(names: Sequence[str], given: list[np.dtype | None], like: np.dtype | None) -> list[Any]:
    return [t or (_DOUBLE if name in DOUBLES else like) for name, t in zip(names, given, strict=True)]


class Summing(Op):
    """Base of the stages that add a slice to a running sum. They must not run again: that takes the whole batch."""

    recompute = "never"
    tensors: ClassVar[tuple[str, ...]] = ("data", "out_grad", "out")
    resume: ClassVar[str]

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        names = self.inputs(p)
        wide = [s for s, name in zip(ins, names, strict=True) if name in self.tensors]
        vectors = [s for s, name in zip(ins, names, strict=True) if name not in (*self.tensors, "running")]
        known = [None if s is None else (s[1],) for s, name in zip(ins, names, strict=True) if name == "running"]
        data, vector = infer_channels(p.axis, merge_shapes(*wide), [*vectors, *known])
        full = [data if name in self.tensors else (2, *vector) if name == "running" else vector for name in names]
        return full, [merge_shapes((2, *vector), outs[0])]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None]) -> Dtypes:
        return _given_or_double(self.inputs(p), ins, ins[0]), [_DOUBLE]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        names = self.inputs(p)
        return ((len(names) - 1, 0),) if names[-1] == "running" else ()

    def begin(self, ins: Arrays, out: np.ndarray, p: Any) -> None:
        """Write what the sum begins with."""
        if self.inputs(p)[-1] == "running":
            np.copyto(out, ins[-1])
        else:
            out.fill(0)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        if not p.axis % len(ins[0].shape):
            return None
        return Sliced.sums(ins, outs, self.resume,
                           whole=[k for k, name in enumerate(self.inputs(p)) if name not in self.tensors])

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        read = sum(t.nbytes for k, t in enumerate(ins) if k not in self.unread(p))
        return Cost(5.0 * ins[0].size, read, outs[0].nbytes)


@register
class BatchNormMoments(Summing):
    """Mean, and sum of squared deviations, a channel."""

    name, resume = "_batchnorm_moments", "_batchnorm_moments_resume"
    Params = MomentsParams

    def algorithms(self, p: MomentsParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        scratch = Workspace.bytes_for(*statistics_scratch(p.axis, ins[0]))
        return (Algorithm("chunks", scratch, chunk_rows=Statistics.rows(p.axis, ins[0])),)

    def slice_params(self, p: MomentsParams, first: int, batch: int, outs: Types) -> MomentsParams:
        return replace(p, rows_before=first)

    def compute(self, p: MomentsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        self.begin(ins, outs[0], p)
        Statistics(p.axis, ins[0], work).merge_moments(outs[0][0], outs[0][1], p.rows_before)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 2, 4, 5),), differentiable=False),
                Sample({"axis": -1}, ((4, 3),), differentiable=False)]


@register
class BatchNormMomentsResume(BatchNormMoments):
    """Running moments, and those of a further slice."""

    name = "_batchnorm_moments_resume"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "running")

    def samples(self) -> Sequence[Sample]:
        return [Sample({"rows_before": 3}, ((3, 2, 4, 5), (2, 2)), low=0.1, high=2.0, differentiable=False)]


class _Vectors(Op):
    """Base of the stages that make vectors a channel from moments or sums of the whole batch."""

    Params = StatisticsParams
    recompute = "cheap"

    def infer_shape(self, p: StatisticsParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        pair: Any = merge_shapes((2, None), ins[0])
        vector: Any = merge_shapes(pair[1:], *ins[1:], *outs)
        return [(2, *vector), *[vector] * (len(ins) - 1)], [vector] * len(outs)

    def infer_dtype(self, p: StatisticsParams, ins: list[np.dtype | None], outs: list[np.dtype | None]) -> Dtypes:
        return _given_or_double(self.inputs(p), ins, p.dtype), [p.dtype] * len(outs)


@register
class BatchNormStatistics(_Vectors):
    """Mean and biased variance of a batch, from its moments, and what rounding takes from the mean."""

    name = "_batchnorm_statistics"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("moments",)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("mean", "var", "rest")

    def compute(self, p: StatisticsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (exact, squares), (mean, var, rest) = ins[0], outs
        mean[...], var[...] = exact, squares / max(1, p.count)
        rest[...] = exact - mean

    def samples(self) -> Sequence[Sample]:
        return [Sample({"count": 12}, ((2, 3),), low=0.1, differentiable=False)]


@register
class BatchNormBackwardParams(_Vectors):
    """Gradients of gamma and beta, from the sums of a batch and its variance."""

    name = "_batchnorm_backward_params"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("sums", "var")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("gamma_grad", "beta_grad")

    def compute(self, p: StatisticsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (sums, products), var = ins
        outs[0][...], outs[1][...] = products * (1 / np.sqrt(var.astype(np.float64) + p.eps)), sums

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (3,)), low=0.1, differentiable=False)]


def _saved(p: StagedParams) -> tuple[str, ...]:
    """The inputs of the gradient before any sums."""
    return get_op("_batchnorm_backward").inputs(p)


def _gradient_scratch(p: StagedParams, ins: Types, is_stored: bool = False) -> int:
    """Workspace bytes of a pass over the gradient: with a part of the sloped one, unless that is stored."""
    alone = p.act_type is not None and not is_stored
    part = [part_scratch(channel_layout(p.axis, ins[0].shape), ins[0].dtype)] if alone else []
    return Workspace.bytes_for(*statistics_scratch(p.axis, ins[1]), *part)


def _gradient_samples(*more: Shape) -> list[Sample]:
    data, vector = (3, 2, 4, 5), (2,)
    saved: tuple[tuple[tuple[Shape, ...], dict[str, Any]], ...] = (
        ((), {}), ((vector, vector), {"act_type": "relu"}), ((data,), {"act_type": "tanh"}),
        ((data,), {"act_type": "relu", "addend": True}))
    return [Sample({"count": 60, "fix_gamma": False, **p}, (data, data, vector, vector, vector, *slope, *more), low=0.1,
                   differentiable=False) for slope, p in saved]


def _stores_slope(p: StagedParams) -> bool:
    """Whether out_grad times the activation's slope is the gradient by an addend, so that it is stored."""
    return p.act_type is not None and p.addend


@register
class BatchNormBackwardSums(Summing):
    """Sums of grad and of grad (data - mean) a channel, where grad is out_grad times the activation's slope.

    Where that is the gradient by an addend it is stored, and the next stage reads it: so the output is read once only.
    """

    name, resume = "_batchnorm_backward_sums", "_batchnorm_backward_sums_resume"
    Params = StagedParams
    tensors = (*Summing.tensors, "addend_grad")

    def inputs(self, p: StagedParams) -> tuple[str, ...]:
        return _saved(p)

    def outputs(self, p: StagedParams) -> tuple[str, ...]:
        return ("sums", "addend_grad") if _stores_slope(p) else ("sums",)

    def infer_shape(self, p: StagedParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        full, made = super().infer_shape(p, ins, outs)
        return full, [*made, *[merge_shapes(full[1], out) for out in outs[1:]]]

    def infer_dtype(self, p: StagedParams, ins: list[np.dtype | None], outs: list[np.dtype | None]) -> Dtypes:
        full, made = super().infer_dtype(p, ins, outs)
        return full, [*made, *[ins[0] or out for out in outs[1:]]]

    def unread(self, p: StagedParams) -> tuple[int, ...]:
        """gamma where it is held or no slope is found from data."""
        return () if sign_from_data(p) and not p.fix_gamma else (2,)

    def inplace(self, p: StagedParams) -> tuple[tuple[int, int], ...]:
        return (*super().inplace(p), *(((0, 1), (5, 1)) if _stores_slope(p) else ()))

    def sliced(self, p: StagedParams, ins: Types, outs: Types) -> Sliced | None:
        form = super().sliced(p, ins, outs)
        return form and replace(form, outs=tuple(k > 0 for k in range(len(outs))))

    def algorithms(self, p: StagedParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        scratch = _gradient_scratch(p, ins, len(outs) > 1)
        return (Algorithm("chunks", scratch, chunk_rows=Statistics.rows(p.axis, ins[1])),)

    def cost(self, p: StagedParams, ins: Types, outs: Types) -> Cost:
        found = super().cost(p, ins, outs)
        return replace(found, written_bytes=sum(t.nbytes for t in outs))

    def compute(self, p: StagedParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        self.begin(ins, outs[0], p)
        s = Statistics(p.axis, ins[1], work)
        into = outs[1].reshape(s.layout) if len(outs) > 1 else None
        s.add_moments(ins[3], sloped_parts(p, s, ins, work, into), outs[0][0], outs[0][1])

    def samples(self) -> Sequence[Sample]:
        return _gradient_samples()


@register
class BatchNormBackwardSumsResume(BatchNormBackwardSums):
    """Running sums, and those of a further slice."""

    name = "_batchnorm_backward_sums_resume"

    def inputs(self, p: StagedParams) -> tuple[str, ...]:
        return (*_saved(p), "running")

    def samples(self) -> Sequence[Sample]:
        return _gradient_samples((2, 2))


@register
class BatchNormBackwardData(BatchNormOp):
    """The data gradient by the sums of the batch."""

    name = "_batchnorm_backward_data"
    Params = StagedParams

    def inputs(self, p: StagedParams) -> tuple[str, ...]:
        return (*_saved(p), "sums")

    def outputs(self, p: StagedParams) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: StagedParams) -> tuple[int, ...]:
        return (2,) if p.fix_gamma else ()

    def infer_shape(self, p: StagedParams, ins: list[PartialShape], outs: list[PartialShape]) -> Shapes:
        full, made = super().infer_shape(p, [*ins[:-1], None if ins[-1] is None else (ins[-1][1],)], outs)
        return [*full[:-1], (2, *full[3])], made

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None]) -> Dtypes:
        return _given_or_double(self.inputs(p), ins, ins[0]), [ins[0] or t for t in outs]

    def inplace(self, p: StagedParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0)) if p.act_type is None else ((1, 0), (0, 0))

    def algorithms(self, p: StagedParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=_gradient_scratch(p, ins)),)

    def sliced(self, p: StagedParams, ins: Types, outs: Types) -> Sliced | None:
        return sliced_by_channels(self, p, ins, outs)

    def compute(self, p: StagedParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        s = Statistics(p.axis, ins[1], work)
        vectors = gradient_vectors(p, ins[2], ins[4], ins[-1][0], ins[-1][1], p.count)
        write_data_gradient(s, sloped_parts(p, s, ins[:-1], work, None), ins[3], vectors, outs[0].reshape(s.layout))

    def samples(self) -> Sequence[Sample]:
        return [sample for sample in _gradient_samples((2, 2)) if not sample.params.get("addend")]
