"""Oracles of what runs on slices of a batch: rows, running sums, and batch normalisation in stages."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import oracle


@oracle("_take_rows")
def take_rows(p: Any, x: Tensor) -> list[Tensor]:
    return [x.narrow(0, p.first, p.rows)]


@oracle("_first_rows")
def first_rows(p: Any, x: Tensor) -> list[Tensor]:
    """Defined where the slice is the whole."""
    assert p.batch == len(x)
    return [x.clone()]


@oracle("_place_rows")
def place_rows(p: Any, whole: Tensor, x: Tensor) -> list[Tensor]:
    return [torch.cat([whole[:p.first], x, whole[p.first + len(x):]])]


@oracle("_convolution_backward_weight_resume")
def convolution_weight(p: Any, grad: Tensor, data: Tensor, weight: Tensor, running: Tensor) -> list[Tensor]:
    leaf = weight.detach().clone().requires_grad_()
    F.conv2d(data, leaf, padding=p.pad or 0, groups=p.num_group).backward(grad)
    assert leaf.grad is not None
    return [running + leaf.grad]


@oracle("_convolution_backward_bias_resume")
def convolution_bias(p: Any, grad: Tensor, running: Tensor) -> list[Tensor]:
    return [running + grad.sum((0, 2, 3))]


@oracle("_fully_connected_backward_weight_resume")
def dense_weight(p: Any, grad: Tensor, data: Tensor, weight: Tensor, running: Tensor) -> list[Tensor]:
    return [torch.addmm(running, grad.T, data)]


@oracle("_fully_connected_backward_bias_resume")
def dense_bias(p: Any, grad: Tensor, running: Tensor) -> list[Tensor]:
    return [running + grad.sum(0)]


@oracle("_batchnorm_moments")
def moments(p: Any, x: Tensor) -> list[Tensor]:
    rows = x.movedim(p.axis, 0).flatten(1).double()
    var, mean = torch.var_mean(rows, 1, correction=0)
    return [torch.stack([mean, var * rows.shape[1]])]


@oracle("_batchnorm_moments_resume")
def resumed_moments(p: Any, x: Tensor, running: Tensor) -> list[Tensor]:
    """Moments of numbers that have the running ones, followed by the slice."""
    count = p.rows_before * x[0].numel() // x.shape[p.axis]
    spread = (running[1] / count).sqrt()[:, None] * torch.tensor([-1.0, 1.0]).repeat(count // 2).double()
    before = running[0][:, None].double() + spread
    rows = torch.cat([before, x.movedim(p.axis, 0).flatten(1).double()], 1)
    var, mean = torch.var_mean(rows, 1, correction=0)
    return [torch.stack([mean, var * rows.shape[1]])]


@oracle("_batchnorm_statistics")
def statistics(p: Any, found: Tensor) -> list[Tensor]:
    rounded = found[0].to(torch.float32)
    return [found[0], found[1] / p.count, found[0] - rounded.double()]


def sloped(p: Any, grad: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, var: Tensor,
           saved: Sequence[Tensor]) -> Tensor:
    """grad times the slope of the activation, in float64."""
    grad = grad.double()
    if p.act_type is None:
        return grad
    if len(saved) == 1:
        y = saved[0].double()
        return grad * {"relu": (y > 0).double(), "tanh": 1 - y * y, "sigmoid": y * (1 - y)}[p.act_type]
    beta, rest = saved
    scale = vector(torch.ones_like(gamma) if p.fix_gamma else gamma) * torch.rsqrt(vector(var) + p.eps)
    return grad * ((x - vector(mean) - vector(rest)) * scale + vector(beta) > 0)


def vector(v: Tensor) -> Tensor:
    return v[:, None, None].double()


@oracle("_batchnorm_backward_sums", "_batchnorm_backward_sums_resume")
def sums(p: Any, *ins: Tensor) -> list[Tensor]:
    ends = [ins[-1]] if ins[-1].shape == (2, 2) else []
    grad, x, gamma, mean, var, *saved = ins[:len(ins) - len(ends)]
    g = sloped(p, grad, x, gamma, mean, var, saved).movedim(p.axis, 0).flatten(1)
    rows = x.movedim(p.axis, 0).flatten(1).double()
    found = torch.stack([g.sum(1), (g * (rows - mean[:, None])).sum(1)])
    stored = [sloped(p, grad, x, gamma, mean, var, saved)] if p.act_type is not None and p.addend else []
    return [ends[0] + found if ends else found, *stored]


@oracle("_batchnorm_backward_params")
def params(p: Any, found: Tensor, var: Tensor) -> list[Tensor]:
    return [found[1] * torch.rsqrt(var + p.eps), found[0]]


@oracle("_batchnorm_backward_data")
def data(p: Any, *ins: Tensor) -> list[Tensor]:
    grad, x, gamma, mean, var, *saved, found = ins
    g = sloped(p, grad, x, gamma, mean, var, saved)
    scale = vector(torch.ones_like(gamma) if p.fix_gamma else gamma) * torch.rsqrt(vector(var) + p.eps)
    slope = vector(found[1]) / (p.count * (vector(var) + p.eps))
    out = scale * (g - vector(found[0]) / p.count - (x - vector(mean)) * slope)
    return [out]
