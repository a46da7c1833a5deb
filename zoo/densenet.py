"""DenseNet: every layer reads the joined outputs of all layers before it in its block.

Huang, Liu, van der Maaten, Weinberger. Densely connected convolutional networks. CVPR 2017, arXiv:1608.06993; its
ImageNet form with bottlenecks and compression (DenseNet-BC). DenseNet-161 grows by 48 channels a layer, others by 32.
"""
from __future__ import annotations

from collections.abc import Sequence

import minigraph as mx
from minigraph.base import MXNetError

from .layers import ConvUnit, Symbol, average_pool, classify, join, max_pool, relu

BLOCKS = {121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32), 264: (6, 12, 64, 48)}
"""Layers of each block, by depth."""
_WIDE = 161
_BOTTLENECK = 4
"""Channels of the 1x1 convolution of a layer, in units of its growth."""


def get_symbol(num_classes: int = 1000, depth: int = 121, blocks: Sequence[int] | None = None,
               growth: int | None = None, p: float = 0.0) -> Symbol:
    """DenseNet for images (N, C, H, W) of 32 x 32 or more.

    `blocks` gives the layers of each block instead of `depth`. `growth` is the number of channels that a layer adds;
    the first convolution has twice as many. `p` is the share of dropout after each layer.
    """
    if blocks is None and depth not in BLOCKS:
        raise MXNetError(f"densenet: depth must be one of {', '.join(map(str, BLOCKS))}, got {depth}; for others give "
                         f"blocks=(a, b, c, d)")
    layers = BLOCKS[depth] if blocks is None else tuple(blocks)
    growth = growth or (48 if blocks is None and depth == _WIDE else 32)
    unit = ConvUnit()
    channels = 2 * growth
    body = max_pool(unit(mx.sym.Variable("data"), "conv0", channels, 7, 2, 3), "pool0", pad=1)
    for b, count in enumerate(layers, start=1):
        for k in range(1, count + 1):
            body = _layer(unit, body, f"block{b}_layer{k}", growth, p)
        channels += count * growth
        if b < len(layers):
            channels //= 2
            body = unit.convolution(_pre(unit, body, f"transition{b}"), f"transition{b}_conv", channels)
            body = average_pool(body, f"transition{b}_pool", 2, 2, 0)
    return classify(_pre(unit, body, "last"), num_classes)


def _pre(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    return relu(unit.norm(data, f"{name}_bn"), f"{name}_relu")


def _layer(unit: ConvUnit, data: Symbol, name: str, growth: int, p: float) -> Symbol:
    """`data` joined with what the layer makes of it."""
    body = unit.convolution(_pre(unit, data, f"{name}_1"), f"{name}_conv1", _BOTTLENECK * growth)
    body = unit.convolution(_pre(unit, body, f"{name}_2"), f"{name}_conv2", growth, 3, 1, 1)
    if p:
        body = mx.sym.Dropout(body, p=p, name=f"{name}_dropout")
    return join(data, body, name=f"{name}_join")
