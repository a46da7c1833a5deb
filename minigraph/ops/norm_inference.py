"""Batch normalisation by the moving statistics, as evaluation has it, and its gradients."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, Shape
from .channels import Statistics, channel_layout, channel_parts, infer_channels, normalise, parts_of
from .norm import (
    BatchNormOp,
    BatchNormParams,
    Normalisation,
    NormaliseParams,
    StatisticsOp,
    Types,
    scale_of,
    sliced_by_channels,
)
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import param
from .registry import register


@dataclass(frozen=True)
class FoldParams(BatchNormParams):
    """Parameters of a normalisation folded into the weight before it."""

    no_bias: bool = param(False, "bool", "whether the layer before has no bias")


@register
class _BatchNormInference(Normalisation):
    """Normalise by the moving statistics."""

    name = "_batchnorm_inference"
    vectors = ("gamma", "beta", "moving_mean", "moving_var")
    addend_at = 5

    def fold(self, b: Builder, p: NormaliseParams, ins: Sequence[Entry], producer: Op, q: Any,
             sources: Sequence[Entry]) -> Sequence[Entry] | None:
        if producer.weight_rows(q) != p.axis or p.addend or p.act_type is not None:
            return None
        data, weight, *bias = sources
        folded = b.node("_batchnorm_fold", [weight, *ins[1:], *bias], eps=p.eps, fix_gamma=p.fix_gamma,
                        no_bias=not bias)
        return b.node(producer.name, [data, *folded], **{**vars(q), "no_bias": False})

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return sliced_by_channels(self, p, ins, outs)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        result: list[Entry | None] = [None] * len(ins)
        grad = grads[0]
        if grad is None:
            return result
        if p.act_type is not None:
            grad, = b.node("_activation_backward", [grad, outs[0]], act_type=p.act_type)
        result[5:] = [grad] * p.addend
        data, gamma, _, moving_mean, moving_var, *_ = ins
        if wanted[2] or (wanted[1] and not p.fix_gamma):
            gamma_grad, result[2] = b.node("_batchnorm_inference_backward_params",
                                           [grad, data, moving_mean, moving_var], **vars(p))
            result[1] = None if p.fix_gamma else gamma_grad
        if wanted[0]:
            result[0], = b.node("_batchnorm_inference_backward_data", [grad, gamma, moving_var], **vars(p))
        return result

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, gamma, beta, mean, var, *_ = ins
        layout = channel_layout(p.axis, data.shape)
        parts = list(channel_parts(layout, data.dtype.itemsize))
        normalise(data.reshape(layout), mean, scale_of(p, gamma, var), beta, outs[0].reshape(layout), parts,
                  self.epilogue(p, ins, self.take(p, data, work)))

    def samples(self) -> Sequence[Sample]:
        def sample(shape: Shape, **p: Any) -> Sample:
            vector, addend = (shape[p.get("axis", 1)],), (shape,) * p.get("addend", False)
            return Sample(p, (shape, *(vector,) * 4, *addend), low=0.5, high=2.0, differentiable=False)
        return (sample((3, 2, 4), fix_gamma=False, act_type="tanh"), sample((2, 3, 4), addend=True, axis=-1),
                sample((2, 3, 2, 2), fix_gamma=False, addend=True, act_type="relu"))


@register
class _BatchNormFold(BatchNormOp):
    """Weight and bias of a convolution or a dense layer that does what it and a normalisation by the moving statistics
    behind it do: from (weight, gamma, beta, moving_mean, moving_var), and the bias where there is one.

    weight gamma / deviation a filter, and beta + (bias - moving_mean) gamma / deviation.
    """

    name = "_batchnorm_fold"
    Params = FoldParams
    vectors = ("gamma", "beta", "moving_mean", "moving_var")

    def inputs(self, p: FoldParams) -> tuple[str, ...]:
        return ("weight", *self.vectors, *(() if p.no_bias else ("bias",)))

    def outputs(self, p: FoldParams) -> tuple[str, ...]:
        return ("weight", "bias")

    def infer_shape(self, p, ins, outs):
        weight, vector = infer_channels(0, merge_shapes(ins[0], outs[0]), [*ins[1:], outs[1]])
        return [weight, *[vector] * (len(ins) - 1)], [weight, vector]

    def unread(self, p: FoldParams) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def compute(self, p: FoldParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        weight, gamma, beta, mean, var, *bias = ins
        scale = scale_of(p, gamma, var)
        rows = scale.astype(weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1))
        np.multiply(weight, rows, out=outs[0])
        outs[1][...] = beta + ((bias[0] if bias else 0) - mean) * scale

    def samples(self) -> Sequence[Sample]:
        return (Sample({"fix_gamma": False}, ((3, 2, 2, 2), *((3,),) * 5), low=0.5, high=2.0, differentiable=False),
                Sample({"no_bias": True}, ((4, 5), *((4,),) * 4), low=0.5, high=2.0, differentiable=False))


@register
class _BatchNormInferenceBackwardData(BatchNormOp):
    """Data gradient of the inference form, from (out_grad, gamma, moving_var): out_grad gamma / deviation."""

    name = "_batchnorm_inference_backward_data"
    vectors = ("gamma", "moving_var")

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", *self.vectors)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return sliced_by_channels(self, p, ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, gamma, var = ins
        layout = channel_layout(p.axis, grad.shape)
        scale = scale_of(p, gamma, var).astype(grad.dtype)[:, None]
        np.multiply(grad.reshape(layout), scale, out=outs[0].reshape(layout))


@register
class _BatchNormInferenceBackwardParams(StatisticsOp):
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
        sums, products = s.moments(mean, parts_of(grad))
        outs[0][...], outs[1][...] = products / np.sqrt(var.astype(np.float64) + p.eps), sums
