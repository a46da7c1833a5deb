"""Oracles of regions of interest and of windows, number by number."""
from __future__ import annotations

import math
from typing import Any

import torch
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
