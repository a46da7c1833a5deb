"""VGG: five groups of 3x3 convolutions, each followed by a pooling that halves the image.

Simonyan, Zisserman. Very deep convolutional networks for large-scale image recognition. ICLR 2015, arXiv:1409.1556.

Depth 11, 13, 16 and 19 are its configurations A, B, D and E. Rhu et al. (vDNN, MICRO 2016, arXiv:1602.08124) deepen
VGG-16 by 20, 40, 60 and 80 convolutions a group to 116, 216, 316 and 416 layers; here every depth 16 + 5n is known.
"""
from __future__ import annotations

from collections.abc import Sequence

import minigraph as mx
from minigraph.base import MXNetError

from .layers import ConvUnit, Symbol, convolution, dropout, max_pool, relu

GROUPS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of each group, by depth."""
_DEEPENED = 16


def get_symbol(num_classes: int = 1000, depth: int = 16, batch_norm: bool = False, hidden: int = 4096, p: float = 0.5,
               filters: Sequence[int] = (64, 128, 256, 512, 512)) -> Symbol:
    """VGG for images (N, C, H, W) of 32 x 32 or more.

    `depth` counts convolutions and fully connected layers. `batch_norm` puts a normalisation before each ReLU of a
    convolution. `filters` are those of each group; `hidden` units a fully connected layer, dropout of share `p`.
    """
    unit = ConvUnit(bias=True)
    body = mx.sym.Variable("data")
    for g, (count, width) in enumerate(zip(_groups(depth), filters, strict=True), start=1):
        for k in range(1, count + 1):
            name = f"conv{g}_{k}"
            body = (unit(body, name, width, 3, 1, 1) if batch_norm
                    else relu(convolution(body, name, width, 3, 1, 1), f"{name}_relu"))
        body = max_pool(body, f"pool{g}", 2, 2)
    body = mx.sym.Flatten(body, name="flatten")
    for k in (6, 7):
        body = relu(mx.sym.FullyConnected(body, num_hidden=hidden, name=f"fc{k}"), f"relu{k}")
        body = dropout(body, f"dropout{k}", p)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=num_classes, name="fc8"), name="softmax")


def _groups(depth: int) -> tuple[int, ...]:
    if depth in GROUPS:
        return GROUPS[depth]
    more, rest = divmod(depth - _DEEPENED, 5)
    if more < 1 or rest:
        raise MXNetError(f"vgg: depth must be one of {', '.join(map(str, GROUPS))}, or 16 + 5n such as 116, 216, 316 "
                         f"and 416, got {depth}")
    return tuple(count + more for count in GROUPS[_DEEPENED])
