"""Oracles of operators that are made of others."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import oracle


@oracle("moments")
def moments(p: Any, x: Tensor) -> list[Tensor]:
    var, mean = torch.var_mean(x, p.axes or tuple(range(x.dim())), correction=0, keepdim=p.keepdims)
    return [v.reshape(v.shape or (1,)) for v in (mean, var)]


@oracle("GroupNorm")
def group_norm(p: Any, x: Tensor, gamma: Tensor, beta: Tensor) -> list[Tensor]:
    each = x.shape[1] // p.num_groups
    return [F.group_norm(x, p.num_groups, gamma.repeat_interleave(each), beta.repeat_interleave(each), p.eps)]


@oracle("_contrib_gradientmultiplier")
def gradient_multiplier(p: Any, x: Tensor) -> list[Tensor]:
    return [x * p.scalar + (x * (1 - p.scalar)).detach()]


@oracle("_image_to_tensor")
def to_tensor(p: Any, x: Tensor) -> list[Tensor]:
    return [x.movedim(-1, -3) / 255]


@oracle("_image_normalize")
def normalize(p: Any, x: Tensor) -> list[Tensor]:
    mean, std = (torch.tensor(v, dtype=x.dtype)[:, None, None] for v in (p.mean, p.std))
    return [(x - mean) / std]


@oracle("_image_crop")
def crop(p: Any, x: Tensor) -> list[Tensor]:
    return [x.narrow(-3, p.y, p.height).narrow(-2, p.x, p.width)]


@oracle("_image_flip_left_right")
def left_right(p: Any, x: Tensor) -> list[Tensor]:
    return [x.flip(-2)]


@oracle("_image_flip_top_bottom")
def top_bottom(p: Any, x: Tensor) -> list[Tensor]:
    return [x.flip(-3)]


@oracle("_contrib_div_sqrt_dim")
def div_sqrt_dim(p: Any, x: Tensor) -> list[Tensor]:
    return [x / math.sqrt(x.shape[-1])]


def heads(p: Any, x: Tensor, parts: int) -> list[Tensor]:
    """Each of the interleaved projections as (batch, heads, length, size)."""
    return list(x.reshape(*x.shape[:2], p.heads, parts, -1).permute(3, 1, 2, 0, 4))


def scores(queries: Tensor, keys: Tensor) -> list[Tensor]:
    return [torch.einsum("bhqs,bhks->bhqk", queries, keys).flatten(0, 1) / math.sqrt(queries.shape[-1])]


def weighted(p: Any, attention: Tensor, values: Tensor) -> list[Tensor]:
    return [torch.einsum("bhqk,bhks->qbhs", attention.unflatten(0, (-1, p.heads)), values).flatten(2)]


@oracle("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(p: Any, x: Tensor) -> list[Tensor]:
    return scores(*heads(p, x, 3)[:2])


@oracle("_contrib_interleaved_matmul_selfatt_valatt")
def selfatt_valatt(p: Any, x: Tensor, attention: Tensor) -> list[Tensor]:
    return weighted(p, attention, heads(p, x, 3)[2])


@oracle("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(p: Any, queries: Tensor, keys: Tensor) -> list[Tensor]:
    return scores(heads(p, queries, 1)[0], heads(p, keys, 2)[0])


@oracle("_contrib_interleaved_matmul_encdec_valatt")
def encdec_valatt(p: Any, keys: Tensor, attention: Tensor) -> list[Tensor]:
    return weighted(p, attention, heads(p, keys, 2)[1])


@oracle("khatri_rao")
def khatri_rao(p: Any, *ins: Tensor) -> list[Tensor]:
    columns = []
    for c in range(ins[0].shape[1]):
        column = torch.ones(1, dtype=ins[0].dtype)
        for x in ins:
            column = torch.kron(column, x[:, c])
        columns.append(column)
    return [torch.stack(columns, 1)]


@oracle("_split_v2")
def split_v2(p: Any, x: Tensor) -> list[Tensor]:
    places = p.indices[1:] if not p.sections else p.sections
    parts = torch.tensor_split(x, places, p.axis)
    return [part.squeeze(p.axis) if p.squeeze_axis else part for part in parts]


@oracle("multi_sum_sq")
def multi_sum_sq(p: Any, *ins: Tensor) -> list[Tensor]:
    return [torch.stack([(x ** 2).sum() for x in ins])]


@oracle("_contrib_arange_like")
def arange_like(p: Any, x: Tensor) -> list[Tensor]:
    count = x.numel() if p.axis is None else x.shape[p.axis]
    numbers = p.start + p.step * (torch.arange(count) // p.repeat).to(x.dtype)
    return [numbers.reshape(x.shape) if p.axis is None else numbers]


@oracle("_np_cumsum")
def cumsum(p: Any, x: Tensor) -> list[Tensor]:
    return [x.flatten().cumsum(0) if p.axis is None else x.cumsum(p.axis)]


# -- linear algebra ------------------------------------------------------------------------------------------
def turned(x: Tensor, transposed: bool) -> Tensor:
    return x.mT if transposed else x


@oracle("_linalg_gemm2")
def gemm2(p: Any, a: Tensor, b: Tensor) -> list[Tensor]:
    return [p.alpha * turned(a, p.transpose_a) @ turned(b, p.transpose_b)]


@oracle("_linalg_gemm")
def gemm(p: Any, a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
    return [gemm2(p, a, b)[0] + p.beta * c]


@oracle("_linalg_syrk")
def syrk(p: Any, a: Tensor) -> list[Tensor]:
    return [p.alpha * turned(a, p.transpose) @ turned(a, not p.transpose)]


@oracle("_linalg_sumlogdiag")
def sumlogdiag(p: Any, a: Tensor) -> list[Tensor]:
    sums = a.diagonal(0, -2, -1).log().sum(-1)
    return [sums.reshape(sums.shape or (1,))]


@oracle("_linalg_extractdiag")
def extractdiag(p: Any, a: Tensor) -> list[Tensor]:
    return [a.diagonal(p.offset, -2, -1)]


@oracle("ravel_multi_index")
def ravel(p: Any, x: Tensor) -> list[Tensor]:
    number = torch.zeros_like(x[0])
    for row, size in zip(x, p.shape, strict=True):
        number = number * size + row
    return [number.detach()]


@oracle("unravel_index")
def unravel(p: Any, x: Tensor) -> list[Tensor]:
    rows, rest = [], x.long()
    for size in p.shape[:0:-1]:
        rows.insert(0, rest % size)
        rest = rest // size
    return [torch.stack([rest, *rows]).to(x.dtype)]


@oracle("batch_take")
def batch_take(p: Any, a: Tensor, indices: Tensor) -> list[Tensor]:
    return [a[torch.arange(len(a)), indices.long()]]


@oracle("_contrib_isnan")
def is_nan(p: Any, x: Tensor) -> list[Tensor]:
    return [torch.isnan(x).to(x.dtype)]


@oracle("_contrib_isinf")
def is_inf(p: Any, x: Tensor) -> list[Tensor]:
    return [torch.isinf(x).to(x.dtype)]


@oracle("_contrib_isfinite")
def is_finite(p: Any, x: Tensor) -> list[Tensor]:
    return [torch.isfinite(x).to(x.dtype)]


@oracle("all_finite", "multi_all_finite")
def all_finite(p: Any, *tensors: Tensor) -> list[Tensor]:
    return [torch.stack([torch.isfinite(x).all() for x in tensors]).all().float().reshape(1)]


@oracle("_eye")
def eye(p: Any) -> list[Tensor]:
    return [torch.ones(p.N, p.M or p.N).triu(p.k).tril(p.k)]


@oracle("_linspace")
def linspace(p: Any) -> list[Tensor]:
    return [torch.linspace(p.start, p.stop, p.num + (not p.endpoint))[:p.num]]


@oracle("_triangle")
def triangle(p: Any, a: Tensor) -> list[Tensor]:
    kept = a.tril(-1) if p.lower else a.triu(1)
    return [kept + p.diagonal * torch.diag_embed(a.diagonal(0, -2, -1))]


def triangular(p: Any, a: Tensor) -> Tensor:
    return turned(a.tril() if p.lower else a.triu(), p.transpose)


@oracle("_linalg_trmm")
def trmm(p: Any, a: Tensor, b: Tensor) -> list[Tensor]:
    a = triangular(p, a)
    return [p.alpha * (b @ a if p.rightside else a @ b)]


@oracle("_linalg_trsm")
def trsm(p: Any, a: Tensor, b: Tensor) -> list[Tensor]:
    inverse = torch.linalg.inv(triangular(p, a))
    return [p.alpha * (b @ inverse if p.rightside else inverse @ b)]


@oracle("_solve_triangular")
def solve_triangular(p: Any, a: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.linalg.inv(triangular(p, a)) @ b]


@oracle("_linalg_potri")
def potri(p: Any, a: Tensor) -> list[Tensor]:
    return [torch.linalg.inv(a.tril() @ a.tril().mT)]


@oracle("_linalg_inverse")
def inverse(p: Any, a: Tensor) -> list[Tensor]:
    return [torch.linalg.inv(a)]


@oracle("_linalg_det")
def det(p: Any, a: Tensor) -> list[Tensor]:
    found = torch.linalg.det(a)
    return [found.reshape(found.shape or (1,))]


@oracle("_linalg_slogdet")
def slogdet(p: Any, a: Tensor) -> list[Tensor]:
    return [found.reshape(found.shape or (1,)) for found in torch.linalg.slogdet(a)]


@oracle("_linalg_potrf")
def potrf(p: Any, a: Tensor) -> list[Tensor]:
    return [torch.linalg.cholesky(a)]


@oracle("_identity_with_attr_like_rhs")
def identity_like(p: Any, lhs: Tensor, rhs: Tensor) -> list[Tensor]:
    return [lhs.clone()]
