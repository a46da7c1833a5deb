"""Oracles of the wider operator set: transcendental functions, remainders, rounding, selection, more shapes."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import COMPARISONS, ORACLES, oracle, scalar, simple


def modulo(x: Tensor, y: Tensor) -> Tensor:
    """The remainder with the sign of y, 0 where y is 0."""
    return torch.where(y == 0, torch.zeros_like(x), torch.remainder(x, torch.where(y == 0, 1.0, y)))


def cbrt(x: Tensor) -> Tensor:
    return x.sign() * x.abs() ** (1 / 3)


FUNCTIONS = {
    "rsqrt": torch.rsqrt, "cbrt": cbrt, "rcbrt": lambda x: 1 / cbrt(x), "log1p": torch.log1p, "expm1": torch.expm1,
    "log2": torch.log2, "log10": torch.log10, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "arcsin": torch.asin, "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh, "degrees": torch.rad2deg,
    "radians": torch.deg2rad, "erf": torch.erf, "erfinv": torch.erfinv, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc,
    "fix": torch.fix, "round": lambda x: x.sign() * torch.floor(x.abs() + 0.5),
    "rint": lambda x: torch.ceil(x - 0.5), "broadcast_power": torch.pow, "broadcast_maximum": torch.maximum,
    "broadcast_minimum": torch.minimum, "broadcast_hypot": torch.hypot, "broadcast_mod": modulo,
    "gamma": lambda x: torch.special.gammaln(x).exp(), "gammaln": torch.lgamma,
    "_logical_and": torch.logical_and, "_logical_or": torch.logical_or, "_logical_xor": torch.logical_xor,
    "broadcast_logical_and": torch.logical_and, "broadcast_logical_or": torch.logical_or,
    "broadcast_logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
    "_mod": modulo, "_hypot": torch.hypot, "argmax_channel": lambda x: x.argmax(1).double()}
ORACLES |= {name: simple(f) for name, f in FUNCTIONS.items()}
ORACLES |= {f"broadcast_{name}": simple(lambda a, b, f=f: f(a, b).double()) for name, f in COMPARISONS.items()}
ORACLES |= {"_mod_scalar": scalar(modulo), "_rmod_scalar": scalar(lambda x, s: modulo(s, x)),
            "_hypot_scalar": scalar(torch.hypot), "_logical_and_scalar": scalar(torch.logical_and),
            "_logical_or_scalar": scalar(torch.logical_or), "_logical_xor_scalar": scalar(torch.logical_xor)}
ORACLES |= {
    "clip": lambda p, x: [x.clamp(p.a_min, p.a_max)],
    "shape_array": lambda p, x: [torch.tensor(x.shape)],
    "size_array": lambda p, x: [torch.tensor([x.numel()])],
    "softmin": lambda p, x: [F.softmin(x / (p.temperature or 1), p.axis)],
    "diag": lambda p, x: [torch.diag(x, p.k) if x.dim() == 1 else torch.diagonal(x, p.k, p.axis1, p.axis2)],
    "_fill_nan": lambda p, x: [torch.nan_to_num(x, nan=p.value)],
    "hard_sigmoid": lambda p, x: [(p.alpha * x + p.beta).clamp(0, 1)],
    "smooth_l1": lambda p, x: [F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=p.scalar ** -2)],
    "broadcast_to": lambda p, x: [x.expand([new or old for new, old in zip(p.shape, x.shape, strict=True)])],
    "tile": lambda p, x: [torch.tile(x, p.reps)],
    "repeat": lambda p, x: [torch.repeat_interleave(x, p.repeats, p.axis)],
    "reverse": lambda p, x: [x.flip(p.axis)],
    "stack": lambda p, *ins: [torch.stack(ins, p.axis)],
    "where": lambda p, condition, x, y: [torch.where(
        condition.reshape(condition.shape + (1,) * (x.dim() - condition.dim())) != 0, x, y)],
}


@oracle("broadcast_axis")
def broadcast_axis(p: Any, x: Tensor) -> list[Tensor]:
    sizes = list(x.shape)
    for axis, size in zip(p.axis, p.size, strict=True):
        sizes[axis] = size
    return [x.expand(sizes)]


@oracle("broadcast_like")
def broadcast_like(p: Any, x: Tensor, like: Tensor) -> list[Tensor]:
    if p.lhs_axes is None:
        return [x.expand_as(like)]
    sizes = list(x.shape)
    for left, right in zip(p.lhs_axes, p.rhs_axes, strict=True):
        sizes[left] = like.shape[right]
    return [x.expand(sizes)]


@oracle("argmax", "argmin")
def extremum_index(p: Any, x: Tensor, find: Any = torch.argmax) -> list[Tensor]:
    """Over all of data the result keeps one axis, or as many as data has."""
    if p.axis is not None:
        return [find(x, p.axis, p.keepdims).double()]
    return [find(x).double().reshape([1] * (x.dim() if p.keepdims else 1))]


@oracle("argmin")
def argmin(p: Any, x: Tensor) -> list[Tensor]:
    return extremum_index(p, -x)


@oracle("gather_nd")
def gather_nd(p: Any, x: Tensor, ids: Tensor) -> list[Tensor]:
    return [x[tuple(ids.long())]]


@oracle("scatter_nd")
def scatter_nd(p: Any, x: Tensor, ids: Tensor) -> list[Tensor]:
    return [torch.zeros(p.shape, dtype=x.dtype).index_put(tuple(ids.long()), x, accumulate=True)]


@oracle("squeeze")
def squeeze(p: Any, x: Tensor) -> list[Tensor]:
    out = x.squeeze() if p.axis is None else x.squeeze(p.axis)
    return [out if out.dim() else out.reshape(1)]


@oracle("reshape_like")
def reshape_like(p: Any, x: Tensor, like: Tensor) -> list[Tensor]:
    axes = list(range(x.dim()))[p.lhs_begin:p.lhs_end]
    shape = [*x.shape[:axes[0]], *like.shape[p.rhs_begin:p.rhs_end], *x.shape[axes[-1] + 1:]]
    return [x.reshape(shape)]


@oracle("slice_like")
def slice_like(p: Any, x: Tensor, like: Tensor) -> list[Tensor]:
    for axis in p.axes or range(x.dim()):
        x = x.narrow(axis, 0, like.shape[axis])
    return [x]


@oracle("Crop")
def crop(p: Any, x: Tensor, *like: Tensor) -> list[Tensor]:
    height, width = like[0].shape[2:] if like else p.h_w
    top, left = p.offset
    if p.center_crop:
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    return [F.pad(x, (-left, left + width - x.shape[3], -top, top + height - x.shape[2]))]


@oracle("depth_to_space")
def depth_to_space(p: Any, x: Tensor) -> list[Tensor]:
    """A pixel shuffle whose blocks, not channels, come first."""
    blocks = x.unflatten(1, (p.block_size ** 2, -1)).transpose(1, 2).flatten(1, 2)
    return [F.pixel_shuffle(blocks, p.block_size)]


@oracle("space_to_depth")
def space_to_depth(p: Any, x: Tensor) -> list[Tensor]:
    blocks = F.pixel_unshuffle(x, p.block_size)
    return [blocks.unflatten(1, (-1, p.block_size ** 2)).transpose(1, 2).flatten(1, 2)]
