"""Inception with batch normalisation.

Ioffe, Szegedy. Batch normalization: accelerating deep network training by reducing internal covariate shift. ICML 2015,
arXiv:1502.03167; in the form of MXNet's example `symbols/inception-bn.py`, whose convolutions have a bias. The first
two poolings round sizes up, which gives the paper's.
"""
from __future__ import annotations

import minigraph as mx

from .layers import ConvUnit, Symbol, average_pool, classify, join, max_pool

BLOCKS: dict[str, tuple[int, int, int, int, int, str, int]] = {
    "3a": (64, 64, 64, 64, 96, "avg", 32), "3b": (64, 64, 96, 64, 96, "avg", 64), "3c": (0, 128, 160, 64, 96, "max", 0),
    "4a": (224, 64, 96, 96, 128, "avg", 128), "4b": (192, 96, 128, 96, 128, "avg", 128),
    "4c": (160, 128, 160, 128, 160, "avg", 128), "4d": (96, 128, 192, 160, 192, "avg", 128),
    "4e": (0, 128, 192, 192, 256, "max", 0), "5a": (352, 192, 320, 160, 224, "avg", 128),
    "5b": (352, 192, 320, 192, 224, "max", 128)}
"""Filters of each block: 1x1, 3x3 reduced and 3x3, double 3x3 reduced and double 3x3, the pooling, and after it. Those
with 0 halve the image."""


def get_symbol(num_classes: int = 1000, width: float = 1.0) -> Symbol:
    """Inception-BN for images (N, C, H, W) above 28 x 28; `width` is the factor of every filter count."""
    unit = ConvUnit(width, bias=True)
    body = max_pool(unit(mx.sym.Variable("data"), "conv1", 64, 7, 2, 3), "pool1", ceil=True)
    body = max_pool(unit.chain(body, "conv2", (64,), (192, 3, 1, 1)), "pool2", ceil=True)
    for name, (one, reduced, three, double_reduced, double, kind, pooled) in BLOCKS.items():
        step, name = (1 if one else 2), f"in{name}"
        branches = [unit(body, f"{name}_1x1", one)] if one else []
        branches.append(unit.chain(body, f"{name}_3x3", (reduced,), (three, 3, step, 1)))
        branches.append(unit.chain(body, f"{name}_double", (double_reduced,), (double, 3, 1, 1), (double, 3, step, 1)))
        pool = average_pool(body, f"{name}_pool") if kind == "avg" else max_pool(body, f"{name}_pool", 3, step, 1)
        branches.append(unit(pool, f"{name}_proj", pooled) if pooled else pool)
        body = join(*branches, name=name)
    return classify(body, num_classes)
