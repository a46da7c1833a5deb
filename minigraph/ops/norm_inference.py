"""Batch normalisation by the moving statistics, as evaluation has it, and its gradients."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Builder, Entry, Shape
from .channels import Statistics, channel_layout, channel_parts, infer_channels, normalise, parts_of
from .norm import BatchNormOp, Normalisation, StatisticsOp, scale_of
from .op import Arrays, Sample, Workspace, merge_shapes
from .registry import register


@register
class _BatchNormInference(Normalisation):
    """Normalise by the moving statistics."""

    name = "_batchnorm_inference"
    vectors = ("gamma", "beta", "moving_mean", "moving_var")
    addend_at = 5

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,) if p.axis else ()

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

    def split(self, p: Any) -> tuple[int, ...]:
        return (0,) if p.axis else ()

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
