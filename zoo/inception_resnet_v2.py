"""Inception-ResNet v2: inception blocks whose joined branches, projected and scaled, are added to their input.

Szegedy, Ioffe, Vanhoucke, Alemi. Inception-v4, Inception-ResNet and the impact of residual connections on learning.
AAAI 2017, arXiv:1602.07261; in the form of TensorFlow's slim models, whose filters the published weights have.
"""
from __future__ import annotations

from typing import Any

import minigraph as mx

from .layers import ConvUnit, Symbol, average_pool, classify, convolution, join, max_pool, relu

_ROW, _COLUMN = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
_ROW3, _COLUMN3 = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
STAGES: tuple[tuple[str, float, int, int, tuple[tuple[tuple[Any, ...], ...], ...]], ...] = (
    ("a", 0.17, 10, 320, (((32,),), ((32,), (32, 3, 1, 1)), ((32,), (48, 3, 1, 1), (64, 3, 1, 1)))),
    ("b", 0.10, 20, 1088, (((192,),), ((128,), (160, *_ROW), (192, *_COLUMN)))),
    ("c", 0.20, 9, 2080, (((192,),), ((192,), (224, *_ROW3), (256, *_COLUMN3)))))
"""Name, scale, number of blocks, channels, and branches of (filters, kernel, stride, pad) of each kind of block."""


def get_symbol(num_classes: int = 1000, blocks: tuple[int, int, int] = (10, 20, 9), width: float = 1.0,
               p: float = 0.2) -> Symbol:
    """Inception-ResNet v2 for images (N, C, H, W) of 75 x 75 or more, usually 299 x 299.

    `blocks` are the numbers of scaled blocks of each kind; one more, unscaled and without ReLU, follows the last.
    `width` is the factor of every filter count, `p` the share of dropout.
    """
    unit = ConvUnit(width, eps=1e-3)
    body = _stem(unit, mx.sym.Variable("data"))
    for (name, scale, _, channels, branches), count, reduce in zip(STAGES, blocks, (_reduce_a, _reduce_b, None),
                                                                   strict=True):
        for k in range(1, count + 1):
            body = relu(_block(unit, body, f"{name}{k}", scale, channels, branches), f"{name}{k}_relu")
        body = reduce(unit, body) if reduce else _block(unit, body, f"{name}{count + 1}", 1.0, channels, branches)
    return classify(unit(body, "last", 1536), num_classes, p)


def _stem(unit: ConvUnit, data: Symbol) -> Symbol:
    body = unit.chain(data, "stem1", (32, 3, 2), (32, 3), (64, 3, 1, 1))
    body = unit.chain(max_pool(body, "pool1"), "stem2", (80,), (192, 3))
    body = max_pool(body, "pool2")
    branches = (unit(body, "stem_1x1", 96), unit.chain(body, "stem_5x5", (48,), (64, 5, 1, 2)),
                unit.chain(body, "stem_3x3", (64,), (96, 3, 1, 1), (96, 3, 1, 1)))
    pooled = unit(average_pool(body, "stem_pool", count_pad=False), "stem_proj", 64)
    return join(*branches, pooled, name="stem")


def _block(unit: ConvUnit, data: Symbol, name: str, scale: float, channels: int,
           branches: tuple[tuple[tuple[Any, ...], ...], ...]) -> Symbol:
    """data + scale * projection of the joined branches. The channels are those of `data`, after `width`."""
    parts = [unit.chain(data, f"{name}_branch{k}", *layers) for k, layers in enumerate(branches, start=1)]
    body = convolution(join(*parts, name=f"{name}_join"), f"{name}_up", _channels(unit, channels))
    return mx.sym.elemwise_add(data, body * scale if scale != 1 else body, name=f"{name}_sum")


def _channels(unit: ConvUnit, channels: int) -> int:
    """Channels of a stage: what the layers that are joined before it have, each rounded alone."""
    first = sum(map(unit.filters, (96, 64, 96, 64)))
    second = first + 2 * unit.filters(384)
    third = second + unit.filters(384) + unit.filters(288) + unit.filters(320)
    return {320: first, 1088: second, 2080: third}[channels]


def _reduce_a(unit: ConvUnit, data: Symbol) -> Symbol:
    branches = (unit(data, "ra_3x3", 384, 3, 2), unit.chain(data, "ra_double", (256,), (256, 3, 1, 1), (384, 3, 2)))
    return join(*branches, max_pool(data, "ra_pool"), name="ra")


def _reduce_b(unit: ConvUnit, data: Symbol) -> Symbol:
    branches = (unit.chain(data, "rb_3x3", (256,), (384, 3, 2)), unit.chain(data, "rb_second", (256,), (288, 3, 2)),
                unit.chain(data, "rb_double", (256,), (288, 3, 1, 1), (320, 3, 2)))
    return join(*branches, max_pool(data, "rb_pool"), name="rb")
