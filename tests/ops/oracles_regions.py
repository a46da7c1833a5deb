"""Oracles of regions of interest and of windows, number by number."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .oracles import oracle


def rounded(x: float) -> int:
    return math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5)


@oracle("ROIPooling")
def roi_pooling(p: Any, data: Tensor, rois: Tensor) -> list[Tensor]:
    height, width = data.shape[2:]
    values, places = [], []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (rounded(c * p.spatial_scale) for c in corners)
        for i in range(p.pooled_size[0]):
            for j in range(p.pooled_size[1]):
                high, wide = (max(b - a + 1, 1) / n for a, b, n in zip((y1, x1), (y2, x2), p.pooled_size, strict=True))
                rows = range(max(math.floor(i * high) + y1, 0), min(math.ceil((i + 1) * high) + y1, height))
                columns = range(max(math.floor(j * wide) + x1, 0), min(math.ceil((j + 1) * wide) + x1, width))
                inside = [r * width + c for r in rows for c in columns]
                if inside:
                    best, place = data[int(image)].flatten(1)[:, inside].max(1)
                    values.append(best)
                    places.append(torch.tensor(inside)[place])
                else:
                    values.append(torch.zeros_like(data[0, :, 0, 0]))
                    places.append(torch.full((data.shape[1],), -1))
    shape = (len(rois), *p.pooled_size, data.shape[1])
    return [torch.stack(found).reshape(shape).permute(0, 3, 1, 2) for found in (values, places)]


def bilinear(plane: Tensor, y: float, x: float) -> Tensor:
    """The value between the four pixels about a point of (C, H, W)."""
    height, width = plane.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros_like(plane[:, 0, 0])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    down, right = y - top, x - left
    bottom, beside = min(top + 1, height - 1), min(left + 1, width - 1)
    return ((plane[:, top, left] * (1 - right) + plane[:, top, beside] * right) * (1 - down)
            + (plane[:, bottom, left] * (1 - right) + plane[:, bottom, beside] * right) * down)


@oracle("_contrib_ROIAlign")
def roi_align(p: Any, data: Tensor, rois: Tensor) -> list[Tensor]:
    bins_h, bins_w = p.pooled_size
    found = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (c * p.spatial_scale - 0.5 * p.aligned for c in corners)
        least = -math.inf if p.aligned else 1.0
        high, wide = max(y2 - y1, least) / bins_h, max(x2 - x1, least) / bins_w
        down, right = (p.sample_ratio if p.sample_ratio > 0 else math.ceil(step) for step in (high, wide))
        for i in range(bins_h):
            for j in range(bins_w):
                total = torch.zeros_like(data[0, :, 0, 0])
                for a in range(down):
                    for b in range(right):
                        total = total + bilinear(data[int(image)], y1 + (i + (a + 0.5) / down) * high,
                                                 x1 + (j + (b + 0.5) / right) * wide)
                total = total / max(max(down, 0) * max(right, 0), 1)
                found.append(total.reshape(-1, bins_h, bins_w)[:, i, j] if p.position_sensitive else total)
    out = torch.stack(found)
    return [out.reshape(len(rois), bins_h, bins_w, -1).permute(0, 3, 1, 2)]


# -- windows -------------------------------------------------------------------------------------------------
def as_planes(p: Any) -> dict[str, Any]:
    """The sizes of windows over one or two axes, as torch takes them."""
    n = len(p.kernel)
    fill = (1,) * (2 - n)
    return {"kernel_size": fill + p.kernel, "stride": fill + (p.stride or (1,) * n),
            "dilation": fill + (p.dilate or (1,) * n), "padding": (0,) * (2 - n) + (p.pad or (0,) * n)}


@oracle("im2col")
def im2col(p: Any, x: Tensor) -> list[Tensor]:
    n = len(p.kernel)
    if n <= 2:
        return [F.unfold(x if n == 2 else x.unsqueeze(2), **as_planes(p))]
    for axis, (k, s) in enumerate(zip(p.kernel, p.stride or (1,) * n, strict=True), 2):
        x = x.unfold(axis, k, s)
    return [x.permute(0, 1, 5, 6, 7, 2, 3, 4).reshape(len(x), -1, math.prod(x.shape[2:5]))]


@oracle("col2im")
def col2im(p: Any, x: Tensor) -> list[Tensor]:
    n = len(p.kernel)
    if n <= 2:
        images = F.fold(x, (1,) * (2 - n) + p.output_size, **as_planes(p))
        return [images if n == 2 else images.squeeze(2)]
    images = torch.zeros(len(x), x.shape[1] // math.prod(p.kernel), *p.output_size, dtype=x.dtype, requires_grad=True)
    return list(torch.autograd.grad(im2col(p, images)[0], images, x, create_graph=True))


@oracle("Correlation")
def correlation(p: Any, first: Tensor, second: Tensor) -> list[Tensor]:
    a, b = (F.pad(x, (p.pad_size,) * 4) for x in (first, second))
    half, steps = p.kernel_size // 2, p.max_displacement // p.stride2
    border = half + p.max_displacement
    height, width = (n - 2 * border for n in a.shape[2:])
    found = []
    for dy in range(-steps, steps + 1):
        for dx in range(-steps, steps + 1):
            total = torch.zeros_like(a[:, 0, :1, :1])
            for h in range(-half, half + 1):
                for w in range(-half, half + 1):
                    y, x = border + h, border + w
                    one = a[:, :, y:y + height:p.stride1, x:x + width:p.stride1]
                    y, x = y + dy * p.stride2, x + dx * p.stride2
                    two = b[:, :, y:y + height:p.stride1, x:x + width:p.stride1]
                    total = total + (one * two if p.is_multiply else (one - two).abs()).sum(1)
            found.append(total / (first.shape[1] * p.kernel_size ** 2))
    return [torch.stack(found, 1)]


# -- sizes ---------------------------------------------------------------------------------------------------
@oracle("_contrib_AdaptiveAvgPooling2D")
def adaptive_average(p: Any, x: Tensor) -> list[Tensor]:
    return [F.adaptive_avg_pool2d(x, (p.output_size or (1,))[0] if len(p.output_size) < 2 else p.output_size)]


@oracle("_contrib_BilinearResize2D")
def bilinear_resize(p: Any, x: Tensor, like: Tensor | None = None) -> list[Tensor]:
    height, width = x.shape[2:]
    size = {"size": (p.height if p.scale_height is None else int(height * p.scale_height),
                     p.width if p.scale_width is None else int(width * p.scale_width)),
            "odd_scale": (8, 3), "to_even_down": (4, 4), "to_odd_up": (5, 5),
            "like": tuple(like.shape[2:]) if like is not None else None}[p.mode]
    return [F.interpolate(x, size, mode="bilinear", align_corners=p.align_corners)]


@oracle("_resize_weights")
def resize_weights(p: Any) -> list[Tensor]:
    """The images of unit vectors."""
    units = torch.eye(p.length, dtype=torch.float64)[:, None, None]
    if p.kind == "average":
        return [F.adaptive_avg_pool2d(units, (1, p.count))[:, 0, 0].T]
    return [F.interpolate(units, (1, p.count), mode="bilinear", align_corners=p.kind == "centres")[:, 0, 0].T]
