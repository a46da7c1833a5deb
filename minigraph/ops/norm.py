"""Batch normalisation: a pure normalisation and its gradients, and the update of the moving statistics.

Statistics take two passes over the data: a mean, and then the squares about it with a correction of the mean.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, MXNetError, Shape, TensorType
from .channels import Statistics, channel_layout, channel_parts, infer_channels, normalise, statistics_scratch
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .params import param
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class BatchNormParams:
    """Parameters of BatchNorm, and of the ops that it expands to."""

    eps: float = param(1e-3, "float", "added to the variance")
    momentum: float = param(0.9, "float", "share of the old value that a moving statistic keeps")
    fix_gamma: bool = param(True, "bool", "whether gamma is held at 1")
    use_global_stats: bool = param(False, "bool", "whether training normalises by the moving statistics too")
    output_mean_var: bool = param(False, "bool", "whether mean and variance are visible outputs")
    axis: int = param(1, "int", "the channel axis")


def _scale(p: BatchNormParams, gamma: np.ndarray, var: np.ndarray) -> np.ndarray:
    """gamma / sqrt(var + eps), in float64."""
    inverse = 1 / np.sqrt(var.astype(np.float64) + p.eps)
    return inverse if p.fix_gamma else gamma * inverse


class _BatchNormOp(Op):
    """What the ops of batch normalisation share."""

    Params = BatchNormParams
    recompute = "cheap"
    vectors: tuple[str, ...] = ()
    """Names of the inputs that hold one value a channel."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", *self.vectors)

    def infer_shape(self, p, ins, outs):
        """Inputs before the vectors, and output 0, have the shape of data; all others are vectors."""
        tensors = len(ins) - len(self.vectors)
        known = merge_shapes(*ins[:tensors], outs[0])
        data, vector = infer_channels(p.axis, known, [*ins[tensors:], *outs[1:]])
        return [data] * tensors + [vector] * len(self.vectors), [data] + [vector] * (len(outs) - 1)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        read = sum(t.nbytes for i, t in enumerate(ins) if i not in self.unread(p))
        return Cost(8.0 * ins[0].size, read, sum(t.nbytes for t in outs))


@register
class BatchNorm(_BatchNormOp):
    """Normalise each channel by the biased statistics of the batch, or of the past in evaluation.

    output = gamma (data - mean) / sqrt(var + eps) + beta; moving = momentum moving + (1 - momentum) batch,
    once a training forward. With fix_gamma, gamma acts as 1, is overwritten with 1, and gets no gradient.
    """

    name = "BatchNorm"
    aliases = ("CuDNNBatchNorm",)
    vectors = ("gamma", "beta", "moving_mean", "moving_var")

    def aux(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "mean", "var")

    def visible_outputs(self, p: BatchNormParams) -> int:
        return 3 if p.output_mean_var else 1

    def variable_attrs(self, p: Any) -> dict[str, dict[str, str]]:
        return {"moving_mean": {"__init__": '["zero", {}]'}, "moving_var": {"__init__": '["one", {}]'}}

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data, gamma, beta, moving_mean, moving_var = ins
        if p.fix_gamma:
            gamma, = b.node("_fill_ones", [gamma])
        if not train or p.use_global_stats:
            out, = b.node("_batchnorm_inference", [data, gamma, beta, moving_mean, moving_var], **vars(p))
            return out, moving_mean, moving_var
        out, mean, var = b.node("_batchnorm_train", [data, gamma, beta], **vars(p))
        b.node("_batchnorm_update_moving", [moving_mean, moving_var, mean, var, data], **vars(p))
        return out, mean, var

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"fix_gamma": False}, (3, 2, 4, 5)), ({"fix_gamma": True, "eps": 2e-5}, (2, 3, 3, 3)),
            ({"fix_gamma": False, "axis": -1}, (4, 3, 2)), ({"fix_gamma": False}, (5, 3)),
            ({"fix_gamma": False, "use_global_stats": True}, (2, 3, 6, 6)),
            ({"fix_gamma": False, "axis": 2}, (2, 3, 4, 5))]
        return [Sample(p, (s, *(((s[p.get("axis", 1)],),) * 4)), low=0.5, high=2.0) for p, s in cases]


@register
class _FillOnes(Op):
    """Overwrite a tensor with ones: what holds gamma at 1."""

    name = "_fill_ones"
    recompute = "never"

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        return [None]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(1)

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3,),), differentiable=False),)


class _StatisticsOp(_BatchNormOp):
    """An op that takes statistics, and so needs their scratch."""

    tensor = 0

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        scratch = statistics_scratch(p.axis, ins[self.tensor])
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*scratch)),)


@register
class _BatchNormTrain(_StatisticsOp):
    """Normalise by the statistics of the batch, outputs too; an empty batch has mean and variance 0."""

    name = "_batchnorm_train"
    vectors = ("gamma", "beta")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "mean", "var")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        refuse_statistics_gradient("BatchNorm", grads)
        if grads[0] is None or not any(wanted):
            return [None] * 3
        saved = [ins[0], ins[1], outs[1], outs[2]]
        data, gamma, beta = b.node("_batchnorm_backward", [grads[0], *saved], **vars(p))
        return [data, None if p.fix_gamma else gamma, beta]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, gamma, beta = ins
        out, mean, var = outs
        s = Statistics(p.axis, data, work)
        exact, variance = self._statistics(s, mean)
        mean[...], var[...] = exact, variance
        scale, rounding = _scale(p, gamma, variance), exact - mean
        normalise(s.data, mean, scale, beta - rounding * scale, out.reshape(s.layout), s.parts)

    @staticmethod
    def _statistics(s: Statistics, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance in float64; `first` receives the rounded mean of the first pass.

        The second pass sums what is left beside squares, which corrects the mean that the first one rounded.
        """
        count = max(1, s.count)
        first[...] = s.total(s.data) / count
        rest, squares = s.moments(first)
        rest /= count
        return first + rest, np.maximum(squares / count - rest * rest, 0)


def refuse_statistics_gradient(name: str, grads: Sequence[Entry | None]) -> None:
    """Raise when a gradient arrives at the outputs after the first, the statistics."""
    if any(grad is not None for grad in grads[1:]):
        raise MXNetError(f"{name} has no gradient by way of its statistics outputs; block them by BlockGrad")


@register
class _BatchNormUpdateMoving(_BatchNormOp):
    """Move the statistics towards those of the batch; an empty batch leaves them as they are."""

    name = "_batchnorm_update_moving"
    recompute = "never"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var", "mean", "var", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var")

    def infer_shape(self, p, ins, outs):
        data, vector = infer_channels(p.axis, ins[4], [*ins[:4], *outs])
        return [vector] * 4 + [data], [vector] * 2

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 1))

    def unread(self, p: Any) -> tuple[int, ...]:
        return (4,)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        return [None] * 5

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        keep = p.momentum if ins[4].size else 1.0
        for moving, batch, out in zip(ins[:2], ins[2:4], outs, strict=True):
            np.multiply(moving, keep, out=out)
            out += (1 - keep) * batch


@register
class _BatchNormBackward(_StatisticsOp):
    """Gradients of the training form, from (out_grad, data, gamma, mean, var)."""

    name = "_batchnorm_backward"
    vectors = ("gamma", "mean", "var")
    tensor = 1

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", *self.vectors)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad", "gamma_grad", "beta_grad")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,) if p.fix_gamma else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, gamma, mean, var = ins
        s = Statistics(p.axis, data, work)
        grad = grad.reshape(s.layout)
        sums, products = s.moments(mean, grad)
        inverse, scale = 1 / np.sqrt(var.astype(np.float64) + p.eps), _scale(p, gamma, var)
        outs[1][...], outs[2][...] = products * inverse, sums
        slope = -scale * inverse * inverse * products / max(1, s.count)
        shift = -scale * sums / max(1, s.count)
        self._data_gradient(s, grad, mean, [scale, slope, shift], outs[0].reshape(s.layout))

    @staticmethod
    def _data_gradient(s: Statistics, grad: np.ndarray, mean: np.ndarray, vectors: Sequence[np.ndarray],
                       out: np.ndarray) -> None:
        """Write out = grad * scale + (data - mean) * slope + shift."""
        scale, slope, shift = (vector.astype(out.dtype)[:, None] for vector in vectors)
        for part in s.parts:
            term = s.centred(part, mean)
            np.multiply(term, slope[part[2]], out=term)
            np.add(term, shift[part[2]], out=term)
            np.multiply(grad[part], scale[part[2]], out=out[part])
            np.add(out[part], term, out=out[part])


@register
class _BatchNormInference(_BatchNormOp):
    """Normalise by the moving statistics."""

    name = "_batchnorm_inference"
    vectors = ("gamma", "beta", "moving_mean", "moving_var")

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,) if p.axis else ()

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        result: list[Entry | None] = [None] * 5
        if grads[0] is None:
            return result
        data, gamma, _, moving_mean, moving_var = ins
        if wanted[2] or (wanted[1] and not p.fix_gamma):
            gamma_grad, result[2] = b.node("_batchnorm_inference_backward_params",
                                           [grads[0], data, moving_mean, moving_var], **vars(p))
            result[1] = None if p.fix_gamma else gamma_grad
        if wanted[0]:
            result[0], = b.node("_batchnorm_inference_backward_data", [grads[0], gamma, moving_var],
                                **vars(p))
        return result

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, gamma, beta, mean, var = ins
        layout = channel_layout(p.axis, data.shape)
        parts = list(channel_parts(layout, data.dtype.itemsize))
        normalise(data.reshape(layout), mean, _scale(p, gamma, var), beta, outs[0].reshape(layout), parts)


@register
class _BatchNormInferenceBackwardData(_BatchNormOp):
    """Data gradient of the inference form, from (out_grad, gamma, moving_var): out_grad gamma / deviation."""

    name = "_batchnorm_inference_backward_data"
    vectors = ("gamma", "moving_var")

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", *self.vectors)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,) if p.axis else ()

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, gamma, var = ins
        layout = channel_layout(p.axis, grad.shape)
        scale = _scale(p, gamma, var).astype(grad.dtype)[:, None]
        np.multiply(grad.reshape(layout), scale, out=outs[0].reshape(layout))


@register
class _BatchNormInferenceBackwardParams(_StatisticsOp):
    """Gradients by gamma and beta of the inference form, from (out_grad, data, moving_mean, moving_var).

    With fix_gamma only out_grad is read, and gamma's gradient is zero.
    """

    name = "_batchnorm_inference_backward_params"
    vectors = ("moving_mean", "moving_var")

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", *self.vectors)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("gamma_grad", "beta_grad")

    def infer_shape(self, p, ins, outs):
        data, vector = infer_channels(p.axis, merge_shapes(*ins[:2]), [*ins[2:], *outs])
        return [data] * 2 + [vector] * 2, [vector] * 2

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1, 2, 3) if p.fix_gamma else ()

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, mean, var = ins
        s = Statistics(p.axis, data, work)
        grad = grad.reshape(s.layout)
        if p.fix_gamma:
            outs[0][...], outs[1][...] = 0, s.total(grad)
            return
        sums, products = s.moments(mean, grad)
        outs[0][...], outs[1][...] = products / np.sqrt(var.astype(np.float64) + p.eps), sums
