"""Inception v4: 149 convolutions in a stem, three kinds of blocks, and two reductions.

Szegedy, Ioffe, Vanhoucke, Alemi. Inception-v4, Inception-ResNet and the impact of residual connections on learning.
AAAI 2017, arXiv:1602.07261.
"""
from __future__ import annotations

import minigraph as mx

from .inception_v3 import COLUMN, ROW
from .layers import ConvUnit, Symbol, average_pool, classify, join, max_pool


def get_symbol(num_classes: int = 1000, blocks: tuple[int, int, int] = (4, 7, 3), width: float = 1.0,
               p: float = 0.2) -> Symbol:
    """Inception v4 for images (N, C, H, W) of 75 x 75 or more, usually 299 x 299.

    `blocks` are the numbers of blocks A, B and C; `width` is the factor of every filter count, `p` dropout's share.
    """
    unit = ConvUnit(width, eps=1e-3)
    body = _stem(unit, mx.sym.Variable("data"))
    for k in range(1, blocks[0] + 1):
        body = _block_a(unit, body, f"a{k}")
    body = _reduction_a(unit, body, "ra")
    for k in range(1, blocks[1] + 1):
        body = _block_b(unit, body, f"b{k}")
    body = _reduction_b(unit, body, "rb")
    for k in range(1, blocks[2] + 1):
        body = _block_c(unit, body, f"c{k}")
    return classify(body, num_classes, p)


def _stem(unit: ConvUnit, data: Symbol) -> Symbol:
    body = unit.chain(data, "stem1", (32, 3, 2), (32, 3), (64, 3, 1, 1))
    body = join(max_pool(body, "stem2_pool"), unit(body, "stem2", 96, 3, 2), name="stem2_join")
    short = unit.chain(body, "stem3_short", (64,), (96, 3))
    long = unit.chain(body, "stem3_long", (64,), (64, *ROW), (64, *COLUMN), (96, 3))
    body = join(short, long, name="stem3_join")
    return join(unit(body, "stem4", 192, 3, 2), max_pool(body, "stem4_pool"), name="stem4_join")


def _pooled(unit: ConvUnit, data: Symbol, name: str, filters: int) -> Symbol:
    return unit(average_pool(data, f"{name}_pool", count_pad=False), f"{name}_proj", filters)


def _block_a(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit(data, f"{name}_1x1", 96), unit.chain(data, f"{name}_3x3", (64,), (96, 3, 1, 1)),
                unit.chain(data, f"{name}_double", (64,), (96, 3, 1, 1), (96, 3, 1, 1)))
    return join(*branches, _pooled(unit, data, name, 96), name=name)


def _reduction_a(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit(data, f"{name}_3x3", 384, 3, 2),
                unit.chain(data, f"{name}_double", (192,), (224, 3, 1, 1), (256, 3, 2)))
    return join(*branches, max_pool(data, f"{name}_pool"), name=name)


def _block_b(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit(data, f"{name}_1x1", 384), unit.chain(data, f"{name}_7x7", (192,), (224, *ROW), (256, *COLUMN)),
                unit.chain(data, f"{name}_double", (192,), (192, *COLUMN), (224, *ROW), (224, *COLUMN), (256, *ROW)))
    return join(*branches, _pooled(unit, data, name, 128), name=name)


def _reduction_b(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit.chain(data, f"{name}_3x3", (192,), (192, 3, 2)),
                unit.chain(data, f"{name}_7x7", (256,), (256, *ROW), (320, *COLUMN), (320, 3, 2)))
    return join(*branches, max_pool(data, f"{name}_pool"), name=name)


def _block_c(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
    short = unit(data, f"{name}_short", 384)
    long = unit.chain(data, f"{name}_long", (384,), (448, *column), (512, *row))
    branches = [unit(part, f"{name}_{of}_{half}", 256, *form) for of, part in (("short", short), ("long", long))
                for half, form in (("row", row), ("column", column))]
    return join(unit(data, f"{name}_1x1", 256), *branches, _pooled(unit, data, name, 256), name=name)
