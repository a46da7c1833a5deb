"""Oracles of what backward reads in the place of whole values, and of the gradients that do."""
from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import oracle


def packed(test: Tensor) -> Tensor:
    """Bits in bytes, those of the first elements lowest; rows of whole bytes stay rows."""
    row = test[0].numel() if test.dim() > 1 else 0
    flat = F.pad(test.reshape(-1).long(), (0, -test.numel() % 8)).reshape(-1, 8)
    found = (flat << torch.arange(8)).sum(1).double()
    return found.reshape(len(test), -1) if row and row % 8 == 0 else found


def unpacked(bits: Tensor, like: Tensor) -> Tensor:
    """The bits of a tensor's elements, as booleans of its shape."""
    flat = bits.reshape(-1, 1).long() >> torch.arange(8) & 1
    return flat.reshape(-1)[:like.numel()].reshape(like.shape).bool()


@oracle("_positive_bits")
def positive(p: Any, x: Tensor) -> list[Tensor]:
    return [packed(x > 0)]


@oracle("_within_bits")
def within(p: Any, x: Tensor) -> list[Tensor]:
    return [packed((x >= p.a_min) & (x <= p.a_max))]


@oracle("_relu_backward_bits")
def relu_backward(p: Any, grad: Tensor, bits: Tensor) -> list[Tensor]:
    return [grad.where(unpacked(bits, grad), torch.zeros(()).double())]


@oracle("_slope_bits")
def slope(p: Any, grad: Tensor, bits: Tensor) -> list[Tensor]:
    return [grad.where(unpacked(bits, grad), p.slope * grad)]


@oracle("_pooling_winners")
def winners(p: Any, x: Tensor, pooled: Tensor) -> list[Tensor]:
    """The places of the first elements that reach `pooled`; 0 where none does."""
    stride, pad = p.stride or (1, 1), p.pad or (0, 0)
    found = torch.zeros_like(pooled)
    for place, (i, j) in reversed(list(enumerate(product(*map(range, p.kernel))))):
        tap = F.pad(x, (pad[1],) * 2 + (pad[0],) * 2, value=-torch.inf)[:, :, i::stride[0], j::stride[1]]
        tap = tap[:, :, :pooled.shape[2], :pooled.shape[3]]
        found = torch.where(tap >= pooled, float(place), found)
    return [found]


@oracle("_pooling_with_winners")
def with_winners(p: Any, x: Tensor) -> list[Tensor]:
    pooled = F.max_pool2d(x, p.kernel, p.stride or 1, p.pad or 0)
    return [pooled, *winners(p, x, pooled)]


@oracle("_pooling_by_winners")
def by_winners(p: Any, grad: Tensor, places: Tensor) -> list[Tensor]:
    stride, pad = p.stride or (1, 1), p.pad or (0, 0)
    spans = [s * (n - 1) + 1 for s, n in zip(stride, grad.shape[2:], strict=True)]
    canvas = torch.zeros(*grad.shape[:2], *(max(n + m, span + k) + m for n, m, span, k in
                                            zip(p.size, pad, spans, p.kernel, strict=True))).double()
    for place, (i, j) in enumerate(product(*map(range, p.kernel))):
        canvas[:, :, i:i + spans[0]:stride[0], j:j + spans[1]:stride[1]] += grad * (places == place)
    return [canvas[:, :, pad[0]:pad[0] + p.size[0], pad[1]:pad[1] + p.size[1]]]
