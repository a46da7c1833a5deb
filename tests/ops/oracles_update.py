"""Oracles of the optimizers' updates: steps of torch.optim, and the norms that clipping needs."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from .oracles import oracle


def _settings(p: Any, control: Tensor, factors: Sequence[Tensor]) -> tuple[float, float, float, float]:
    """(learning rate, weight decay, factor of the gradient, clip) from the control buffer and further factors."""
    words = control.double().tolist()
    factor = words[4] * prod(map(float, factors))
    return words[8 + 2 * p.index], words[9 + 2 * p.index], factor, words[5]


def _step(optimizer: torch.optim.Optimizer, weight: Tensor, grad: Tensor, state: dict[str, Tensor]) -> None:
    weight.grad = grad
    optimizer.state[weight].update(state)
    optimizer.step()


@oracle("_sgd_update")
def sgd(p: Any, weight: Tensor, grad: Tensor, control: Tensor, *scale: Tensor) -> list[Tensor]:
    rate, decay, factor, clip = _settings(p, control, scale)
    new = weight.clone()
    _step(torch.optim.SGD([new], lr=rate, weight_decay=decay), new, (grad * factor).clamp(-clip, clip), {})
    return [new]


@oracle("_sgd_mom_update", "_nag_update")
def momentum(p: Any, weight: Tensor, grad: Tensor, mom: Tensor, control: Tensor, *scale: Tensor,
             nesterov: bool = False) -> list[Tensor]:
    """PyTorch's momentum buffer is MXNet's divided by minus the rate."""
    rate, decay, factor, clip = _settings(p, control, scale)
    new = weight.clone()
    rule = torch.optim.SGD([new], lr=rate, weight_decay=decay, momentum=p.momentum, nesterov=nesterov)
    _step(rule, new, (grad * factor).clamp(-clip, clip), {"momentum_buffer": mom / -rate})
    return [new, rule.state[new]["momentum_buffer"] * -rate]


@oracle("_nag_update")
def nesterov(p: Any, *ins: Tensor) -> list[Tensor]:
    return momentum(p, *ins, nesterov=True)


@oracle("_adam_update")
def adam(p: Any, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, control: Tensor,
         *scale: Tensor) -> list[Tensor]:
    """Far along, where PyTorch corrects no bias; the decay is inside the clip, so it is added by hand."""
    rate, decay, factor, clip = _settings(p, control, scale)
    new = weight.clone()
    rule = torch.optim.Adam([new], lr=rate, betas=(p.beta1, p.beta2), eps=p.epsilon)
    _step(rule, new, (grad * factor + decay * weight).clamp(-clip, clip),
          {"step": torch.tensor(1e9), "exp_avg": mean.clone(), "exp_avg_sq": var.clone()})
    return [new, rule.state[new]["exp_avg"], rule.state[new]["exp_avg_sq"]]


@oracle("_sum_squares")
def sum_squares(p: Any, grad: Tensor, *control: Tensor) -> list[Tensor]:
    return [torch.linalg.vector_norm(grad / float(control[0][3]) if control else grad).square().reshape(1)]


@oracle("_scale_gradient")
def scale_gradient(p: Any, grad: Tensor, control: Tensor) -> list[Tensor]:
    scale = float(control[3])
    return [torch.div(grad, scale) if p.inverse else torch.mul(grad, scale)]


@oracle("_find_nonfinite")
def find_nonfinite(p: Any, grad: Tensor, *found: Tensor) -> list[Tensor]:
    bad = ~torch.isfinite(torch.cat([grad.flatten(), *(1 / (1 - f) for f in found)]))
    return [bad.any().to(torch.float64).reshape(1)]


@oracle("_check_finite")
def check_finite(p: Any, unscale: Tensor, found: Tensor, control: Tensor) -> list[Tensor]:
    return [(1 - found) * (1 / float(control[3]) if p.scaled else 1)]


@oracle("_global_norm_scale")
def global_norm_scale(p: Any, *ins: Tensor) -> list[Tensor]:
    """The factor by which clip_grad_norm_ would shrink a gradient, less PyTorch's 1e-6 in the divisor."""
    rescale, bound = (float(ins[-1][i]) for i in (4, 6))
    norm = abs(rescale) * torch.cat(ins[:-1]).sum().sqrt()
    return [torch.clamp(bound / norm, max=1.0).reshape(1) if bound > 0 else torch.ones(1)]
