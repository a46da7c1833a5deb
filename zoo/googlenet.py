"""GoogLeNet: inception blocks of four branches, whose outputs are joined.

Szegedy et al. Going deeper with convolutions. CVPR 2015, arXiv:1409.4842; in torchvision's form, with a batch
normalisation after each convolution, no auxiliary classifiers, and a 3x3 convolution in the branch that had 5x5.
"""
from __future__ import annotations

import minigraph as mx

from .layers import ConvUnit, Symbol, classify, join, max_pool

BLOCKS = {"3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64), "4a": (192, 96, 208, 16, 48, 64),
          "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
          "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128)}
"""Filters of each block: 1x1, 3x3 reduced and 3x3, second 3x3 reduced and second 3x3, after pooling."""


def get_symbol(num_classes: int = 1000, width: float = 1.0, p: float = 0.2) -> Symbol:
    """GoogLeNet for images (N, C, H, W); `width` is the factor of every filter count, `p` the share of dropout."""
    unit = ConvUnit(width, eps=1e-3)
    body = unit(mx.sym.Variable("data"), "conv1", 64, 7, 2, 3)
    body = max_pool(body, "pool1", ceil=True)
    body = unit(unit(body, "conv2", 64), "conv3", 192, 3, 1, 1)
    body = max_pool(body, "pool2", ceil=True)
    for name, filters in BLOCKS.items():
        if name == "4a":
            body = max_pool(body, "pool3", ceil=True)
        if name == "5a":
            body = max_pool(body, "pool4", 2, 2, ceil=True)
        body = _block(unit, body, f"in{name}", filters)
    return classify(body, num_classes, p)


def _block(unit: ConvUnit, data: Symbol, name: str, filters: tuple[int, ...]) -> Symbol:
    one, reduced, three, second_reduced, second, pooled = filters
    branches = (unit(data, f"{name}_1x1", one),
                unit.chain(data, f"{name}_3x3", (reduced,), (three, 3, 1, 1)),
                unit.chain(data, f"{name}_second", (second_reduced,), (second, 3, 1, 1)),
                unit(max_pool(data, f"{name}_pool", 3, 1, 1, ceil=True), f"{name}_proj", pooled))
    return join(*branches, name=name)
