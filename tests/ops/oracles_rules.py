"""Oracles of the further optimizers' rules: steps of torch.optim where MXNet's rule is that, else its formula."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .oracles import oracle
from .oracles_update import _settings, _step


def decayed_outside(p: Any, weight: Tensor, grad: Tensor, rest: tuple[Tensor, ...]) -> tuple[float, float, Tensor]:
    """(learning rate, weight decay, clipped gradient)."""
    rate, decay, factor, clip = _settings(p, rest[0], rest[1:])
    return rate, decay, (grad * factor).clamp(-clip, clip)


def decayed_inside(p: Any, weight: Tensor, grad: Tensor, rest: tuple[Tensor, ...]) -> tuple[float, Tensor]:
    """(learning rate, clipped sum of gradient and decay)."""
    rate, decay, factor, clip = _settings(p, rest[0], rest[1:])
    return rate, (grad * factor + decay * weight).clamp(-clip, clip)


@oracle("_adagrad_update")
def adagrad(p: Any, weight: Tensor, grad: Tensor, history: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    history = history + g ** 2
    return [weight - rate * (g / (history + p.epsilon).sqrt() + decay * weight), history]


@oracle("_rmsprop_update")
def rmsprop(p: Any, weight: Tensor, grad: Tensor, n: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, g = decayed_inside(p, weight, grad, rest)
    n = torch.lerp(g ** 2, n, p.gamma1)
    return [weight - rate * g / (n + p.epsilon).sqrt(), n]


@oracle("_rmsprop_centered_update")
def rmsprop_centered(p: Any, weight: Tensor, grad: Tensor, n: Tensor, mean: Tensor, delta: Tensor,
                     *rest: Tensor) -> list[Tensor]:
    rate, g = decayed_inside(p, weight, grad, rest)
    n, mean = torch.lerp(g ** 2, n, p.gamma1), torch.lerp(g, mean, p.gamma1)
    delta = p.gamma2 * delta - rate * g / (n - mean ** 2 + p.epsilon).sqrt()
    return [weight + delta, n, mean, delta]


@oracle("_adadelta_update")
def adadelta(p: Any, weight: Tensor, grad: Tensor, squares: Tensor, moves: Tensor, *rest: Tensor) -> list[Tensor]:
    """A step of PyTorch's at rate 1, and the decay apart."""
    _, decay, g = decayed_outside(p, weight, grad, rest)
    new = weight.clone()
    rule = torch.optim.Adadelta([new], lr=1.0, rho=p.rho, eps=p.epsilon)
    _step(rule, new, g, {"step": torch.tensor(0.0), "square_avg": squares.clone(), "acc_delta": moves.clone()})
    return [new - decay * weight, rule.state[new]["square_avg"], rule.state[new]["acc_delta"]]


@oracle("_ftrl_update")
def ftrl(p: Any, weight: Tensor, grad: Tensor, z: Tensor, n: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    total = n + g ** 2
    z = z + g - (total.sqrt() - n.sqrt()) / rate * weight
    moved = (z.sign() * p.lamda1 - z) / ((p.beta + total.sqrt()) / rate + decay)
    return [torch.where(z.abs() > p.lamda1, moved, 0.0), z, total]


@oracle("_adamax_update")
def adamax(p: Any, weight: Tensor, grad: Tensor, mean: Tensor, bound: Tensor, *rest: Tensor) -> list[Tensor]:
    """Far along, where PyTorch corrects no bias."""
    rate, g = decayed_inside(p, weight, grad, rest)
    new = weight.clone()
    rule = torch.optim.Adamax([new], lr=rate, betas=(p.beta1, p.beta2), eps=0.0)
    _step(rule, new, g, {"step": torch.tensor(1e9), "exp_avg": mean.clone(), "exp_inf": bound.clone()})
    return [new, rule.state[new]["exp_avg"], rule.state[new]["exp_inf"]]


@oracle("_nadam_update")
def nadam(p: Any, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, *rest: Tensor) -> list[Tensor]:
    """The first step, whatever the means."""
    rate, g = decayed_inside(p, weight, grad, rest)
    new = weight.clone()
    rule = torch.optim.NAdam([new], lr=rate, betas=(p.beta1, p.beta2), eps=p.epsilon,
                             momentum_decay=p.schedule_decay)
    _step(rule, new, g, {"step": torch.tensor(0.0), "mu_product": torch.tensor(1.0, dtype=torch.float64),
                         "exp_avg": mean.clone(), "exp_avg_sq": var.clone()})
    return [new, rule.state[new]["exp_avg"], rule.state[new]["exp_avg_sq"]]


@oracle("_signsgd_update")
def signsgd(p: Any, weight: Tensor, grad: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    return [weight - rate * (g.sign() + decay * weight)]


@oracle("_signum_update")
def signum(p: Any, weight: Tensor, grad: Tensor, mom: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    mom = torch.lerp(-(g + decay * weight), mom, p.momentum)
    return [(1 - rate * p.wd_lh) * weight + rate * mom.sign(), mom]


@oracle("_ftml_update")
def ftml(p: Any, weight: Tensor, grad: Tensor, d: Tensor, v: Tensor, z: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, g = decayed_inside(p, weight, grad, rest)
    v = torch.lerp(g ** 2, v, p.beta2)
    now = ((v / (1 - p.beta2)).sqrt() + p.epsilon) / rate
    z = torch.lerp(g, z, p.beta1) - (now - p.beta1 * d) * weight
    return [-z / now, now, v, z]


@oracle("_dcasgd_update")
def dcasgd(p: Any, weight: Tensor, grad: Tensor, mom: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    mom = p.momentum * mom - rate * (g + decay * weight + p.lamda * g ** 2 * mom)
    return [weight + mom, mom]


@oracle("_sgld_update")
def sgld(p: Any, weight: Tensor, grad: Tensor, noise: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    return [weight - rate / 2 * (g + decay * weight) + rate ** 0.5 * noise]


@oracle("_lamb_update")
def lamb(p: Any, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, g = decayed_outside(p, weight, grad, rest)
    mean, var = torch.lerp(g, mean, p.beta1), torch.lerp(g ** 2, var, p.beta2)
    step = mean / (1 - p.beta1) / ((var / (1 - p.beta2)).sqrt() + p.epsilon) + decay * weight
    return [weight - rate * weight.norm() / step.norm() * step, mean, var]


@oracle("_lars_update")
def lars(p: Any, weight: Tensor, grad: Tensor, *rest: Tensor) -> list[Tensor]:
    rate, decay, factor, clip = _settings(p, rest[0], rest[1:])
    rate *= p.eta * weight.norm() / ((grad * factor).norm() + decay * weight.norm() + p.epsilon)
    return [weight - rate * ((grad * factor).clamp(-clip, clip) + decay * weight)]


@oracle("_lars_mom_update")
def lars_mom(p: Any, weight: Tensor, grad: Tensor, mom: Tensor, *rest: Tensor) -> list[Tensor]:
    (moved,) = lars(p, weight, grad, *rest)
    mom = float(rest[0][7]) * mom + (moved - weight)
    return [weight + mom, mom]


@oracle("Custom", "_custom", "_custom_again")
def custom(p: Any, lhs: Tensor, rhs: Tensor, total: Tensor) -> list[Tensor]:
    """The operator in Python of the samples, and the sum that it keeps."""
    return [lhs * rhs, total + (lhs * rhs).sum()][:2 if hasattr(p, "ordinal") else 1]
