"""Oracles of further layers: deconvolution, norms, padding, products, sequences, recurrent layers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import LOSSES, ORACLES, kind, oracle, reduction

TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def values(given: Sequence[int], count: int, default: int) -> tuple[int, ...]:
    return tuple(given) or (default,) * count


@oracle("Deconvolution")
def deconvolution(p: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> list[Tensor]:
    """A target shape is cut out of the whole output, with the surplus at both ends, the larger half in front."""
    n = len(p.kernel)
    stride, dilate, pad, adj = (values(v, n, d) for v, d in ((p.stride, 1), (p.dilate, 1), (p.pad, 0), (p.adj, 0)))
    transposed = TRANSPOSED[n - 1]
    if not p.target_shape:
        return [transposed(x, weight, bias, stride, pad, adj, p.num_group, dilate)]
    whole = transposed(x, weight, bias, stride, 0, 0, p.num_group, dilate)
    for axis, target in enumerate(p.target_shape, 2):
        whole = whole.narrow(axis, (whole.shape[axis] - target + 1) // 2, target)
    return [whole]


@oracle("LRN")
def lrn(p: Any, x: Tensor) -> list[Tensor]:
    rows = x.reshape(*x.shape[:2], -1)
    means = F.avg_pool1d((rows ** 2).transpose(1, 2), p.nsize, 1, p.nsize // 2)     # of zeros too, past the edge
    out = F.local_response_norm(rows, p.nsize, p.alpha, p.beta, p.knorm)
    return [out.reshape(x.shape), (p.knorm + p.alpha * means).transpose(1, 2).reshape(x.shape)]


@oracle("InstanceNorm")
def instance_norm(p: Any, x: Tensor, gamma: Tensor, beta: Tensor) -> list[Tensor]:
    var, mean = torch.var_mean(x.flatten(2), 2, correction=0)
    return [F.instance_norm(x, weight=gamma, bias=beta, eps=p.eps), mean, torch.rsqrt(var + p.eps)]


@oracle("L2Normalization")
def l2_normalization(p: Any, x: Tensor) -> list[Tensor]:
    axes = {"instance": range(1, x.dim()), "channel": (1,), "spatial": range(2, x.dim())}[p.mode]
    norm = ((x ** 2).sum(tuple(axes), keepdim=True) + p.eps).sqrt()
    return [x / norm, norm.squeeze(tuple(axes))]


@oracle("Pad")
def pad(p: Any, x: Tensor) -> list[Tensor]:
    if p.mode == "constant":
        widths = [w for pair in zip(p.pad_width[-2::-2], p.pad_width[::-2], strict=True) for w in pair]
        return [F.pad(x, widths, value=p.constant_value)]
    assert not any(p.pad_width[:4])
    widths = [w for pair in zip(p.pad_width[-2:3:-2], p.pad_width[:4:-2], strict=True) for w in pair]
    return [F.pad(x, widths, "replicate" if p.mode == "edge" else "reflect")]


@oracle("UpSampling")
def upsampling(p: Any, *ins: Tensor) -> list[Tensor]:
    if p.sample_type == "bilinear":
        return [F.conv_transpose2d(*ins, stride=p.scale, padding=-(-(p.scale - 1) // 2), groups=p.num_filter)]
    size = [d * p.scale for d in ins[0].shape[2:]]
    grown = [F.interpolate(x, size, mode="nearest") for x in ins]
    return [sum(grown[1:], grown[0]) if p.multi_input_mode == "sum" else torch.cat(grown, 1)]


# -- products ------------------------------------------------------------------------------------------------
@oracle("dot")
def dot(p: Any, lhs: Tensor, rhs: Tensor) -> list[Tensor]:
    out = torch.tensordot(lhs, rhs, ([0 if p.transpose_a else -1], [-1 if p.transpose_b else 0]))
    return [out if out.dim() else out.reshape(1)]


@oracle("batch_dot")
def batch_dot(p: Any, lhs: Tensor, rhs: Tensor) -> list[Tensor]:
    return [(lhs.mT if p.transpose_a else lhs) @ (rhs.mT if p.transpose_b else rhs)]


def product(x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim)
    return x


ORACLES["prod"] = reduction(product)
ORACLES["nansum"] = reduction(torch.nansum)
ORACLES["nanprod"] = reduction(lambda x, axes, keepdim: product(torch.where(x.isnan(), 1.0, x), axes, keepdim))


@oracle("norm")
def norm(p: Any, x: Tensor) -> list[Tensor]:
    out = torch.linalg.vector_norm(x, p.ord, p.axis, p.keepdims)
    out = out if p.out_dtype is None else out.to(getattr(torch, p.out_dtype.name))
    return [out if out.dim() else out.reshape(1)]


# -- the support vector machine ------------------------------------------------------------------------------
ORACLES["SVMOutput"] = lambda p, x, label: [x.clone()]


@oracle("SVMOutput", table=LOSSES)
def svm_loss(p: Any, x: Tensor, label: Tensor) -> Tensor:
    sides = 2 * F.one_hot(label.long(), x.shape[-1]).double() - 1
    hinge = F.relu(p.margin - sides * x)
    return p.regularization_coefficient * (hinge if p.use_linear else hinge ** 2).sum()


# -- sequences -----------------------------------------------------------------------------------------------
def time_first(function: Callable[..., Tensor]) -> Any:
    """An oracle that works on (time, batch, ...) and lengths, those of whole sequences where there are none."""
    def apply(p: Any, x: Tensor, *lengths: Tensor) -> list[Tensor]:
        moved = x.transpose(0, p.axis)
        ends = lengths[0].long() if lengths else torch.full((moved.shape[1],), len(moved))
        out = function(p, moved, ends)
        return [out.transpose(0, p.axis) if out.dim() == x.dim() else out]
    return apply


def masked(p: Any, x: Tensor, ends: Tensor) -> Tensor:
    late = torch.arange(len(x))[:, None] >= ends
    return x.masked_fill(late.reshape(*late.shape, *(1,) * (x.dim() - 2)), p.value)


def reversed_to(p: Any, x: Tensor, ends: Tensor) -> Tensor:
    times = torch.arange(len(x))[:, None]
    source = torch.where(times < ends, ends - 1 - times, times)
    return x[source, torch.arange(x.shape[1])]


ORACLES |= {"SequenceMask": time_first(masked), "SequenceReverse": time_first(reversed_to),
            "SequenceLast": time_first(lambda p, x, ends: x[ends - 1, torch.arange(x.shape[1])])}


@oracle("_arange")
def arange(p: Any) -> list[Tensor]:
    bounds = (0, p.start) if p.stop is None else (p.start, p.stop)
    return [torch.arange(*bounds, p.step).repeat_interleave(p.repeat).to(kind(None, p))]


# -- recurrent layers ----------------------------------------------------------------------------------------
@oracle("RNN")
def rnn(p: Any, x: Tensor, flat: Tensor, *states: Tensor) -> list[Tensor]:
    """PyTorch's modules, whose gates stand in the same order, with their weights cut out of the vector."""
    kinds = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    options = {} if p.mode in kinds else {"nonlinearity": p.mode[4:]}
    module = kinds.get(p.mode, torch.nn.RNN)(x.shape[2], p.state_size, p.num_layers, bidirectional=p.bidirectional,
                                             dtype=torch.float64, **options)
    ends = [f"l{layer}{end}" for layer in range(p.num_layers) for end in ("", "_reverse")[:1 + p.bidirectional]]
    order = [f"{word}_{which}_{end}" for word in ("weight", "bias") for end in ends for which in ("ih", "hh")]
    shapes = {name: value.shape for name, value in module.named_parameters()}
    pieces = torch.split(flat, [shapes[name].numel() for name in order])
    weights = {name: piece.reshape(shapes[name]) for name, piece in zip(order, pieces, strict=True)}
    out, last = torch.func.functional_call(module, weights, (x, states if p.mode == "lstm" else states[0]))
    return [out, *(last if isinstance(last, tuple) else (last,))] if p.state_outputs else [out]


# -- order ---------------------------------------------------------------------------------------------------
@oracle("topk")
def topk(p: Any, x: Tensor) -> list[Tensor]:
    rows, axis = (x.flatten(), 0) if p.axis is None else (x, p.axis)
    values, ids = torch.topk(rows, p.k if p.k > 0 else rows.shape[axis], axis, largest=not p.is_ascend)
    if p.ret_typ == "mask":
        return [torch.zeros_like(x).scatter(axis, ids, 1.0)]
    return [ids.double()] if p.ret_typ == "indices" else [values, ids.double()]


@oracle("sort")
def sort(p: Any, x: Tensor) -> list[Tensor]:
    rows, axis = (x.flatten(), 0) if p.axis is None else (x, p.axis)
    return [torch.sort(rows, axis, not p.is_ascend)[0]]


@oracle("argsort")
def argsort(p: Any, x: Tensor) -> list[Tensor]:
    rows, axis = (x.flatten(), 0) if p.axis is None else (x, p.axis)
    return [torch.argsort(rows, axis, not p.is_ascend).double()]


# -- spatial transformers ------------------------------------------------------------------------------------
@oracle("GridGenerator")
def grid_generator(p: Any, x: Tensor) -> list[Tensor]:
    if p.transform_type == "affine":
        shape = (len(x), 1, *p.target_shape)
        return [F.affine_grid(x.reshape(-1, 2, 3), shape, align_corners=True).movedim(-1, 1)]
    height, width = x.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    points = x + torch.stack([columns, rows])
    return [points / (torch.tensor([width - 1, height - 1]).reshape(2, 1, 1) / 2) - 1]


@oracle("BilinearSampler")
def bilinear_sampler(p: Any, x: Tensor, grid: Tensor) -> list[Tensor]:
    return [F.grid_sample(x, grid.movedim(1, -1), "bilinear", "zeros", align_corners=True)]


@oracle("SpatialTransformer")
def spatial_transformer(p: Any, x: Tensor, maps: Tensor) -> list[Tensor]:
    grid = F.affine_grid(maps.reshape(-1, 2, 3), (len(x), 1, *p.target_shape), align_corners=True)
    return [F.grid_sample(x, grid, "bilinear", "zeros", align_corners=True)]
