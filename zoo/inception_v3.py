"""Inception v3: 5x5 and 7x7 convolutions taken apart.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna. Rethinking the inception architecture for computer vision. CVPR 2016,
arXiv:1512.00567; in torchvision's form.
"""
from __future__ import annotations

import minigraph as mx

from .layers import ConvUnit, Symbol, average_pool, classify, join, max_pool

_AUXILIARY_WEIGHT = 0.4
"""Weight of the auxiliary classifier's loss beside the main one's."""
ROW, COLUMN = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
"""(kernel, stride, pad) of the two halves of a 7x7 convolution."""
_ROW3, _COLUMN3 = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))


def get_symbol(num_classes: int = 1000, aux: bool = False, width: float = 1.0, p: float = 0.5) -> Symbol:
    """Inception v3 for images (N, C, H, W) of 75 x 75 or more, usually 299 x 299.

    With `aux` there is a second output, of an auxiliary classifier on the same labels, for images of 299 x 299 (or
    others that leave 17 x 17 pixels there). `width` is the factor of every filter count, `p` the share of dropout.
    """
    unit = ConvUnit(width, eps=1e-3)
    body = unit.chain(mx.sym.Variable("data"), "stem1", (32, 3, 2), (32, 3), (64, 3, 1, 1))
    body = unit.chain(max_pool(body, "pool1"), "stem2", (80,), (192, 3))
    body = max_pool(body, "pool2")
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        body = _block_a(unit, body, name, pooled)
    body = _reduction_a(unit, body, "6a")
    for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        body = _block_b(unit, body, name, inner)
    label = mx.sym.Variable("softmax_label")
    side = _auxiliary(unit, body, num_classes, label) if aux else None
    body = _reduction_b(unit, body, "7a")
    for name in ("7b", "7c"):
        body = _block_c(unit, body, name)
    main = classify(body, num_classes, p, label)
    return main if side is None else mx.sym.Group([main, side])


def _pooled(unit: ConvUnit, data: Symbol, name: str, filters: int) -> Symbol:
    return unit(average_pool(data, f"{name}_pool"), f"{name}_proj", filters)


def _block_a(unit: ConvUnit, data: Symbol, name: str, pooled: int) -> Symbol:
    branches = (unit(data, f"{name}_1x1", 64), unit.chain(data, f"{name}_5x5", (48,), (64, 5, 1, 2)),
                unit.chain(data, f"{name}_3x3", (64,), (96, 3, 1, 1), (96, 3, 1, 1)))
    return join(*branches, _pooled(unit, data, name, pooled), name=name)


def _reduction_a(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit(data, f"{name}_3x3", 384, 3, 2),
                unit.chain(data, f"{name}_double", (64,), (96, 3, 1, 1), (96, 3, 2)))
    return join(*branches, max_pool(data, f"{name}_pool"), name=name)


def _block_b(unit: ConvUnit, data: Symbol, name: str, inner: int) -> Symbol:
    branches = (unit(data, f"{name}_1x1", 192),
                unit.chain(data, f"{name}_7x7", (inner,), (inner, *ROW), (192, *COLUMN)),
                unit.chain(data, f"{name}_double", (inner,), (inner, *COLUMN), (inner, *ROW), (inner, *COLUMN),
                           (192, *ROW)))
    return join(*branches, _pooled(unit, data, name, 192), name=name)


def _auxiliary(unit: ConvUnit, data: Symbol, num_classes: int, label: Symbol) -> Symbol:
    body = average_pool(data, "aux_pool", 5, 3, 0)
    body = unit.chain(body, "aux", (128,), (768, 5))
    body = mx.sym.Pooling(body, global_pool=True, kernel=(1, 1), pool_type="avg", name="aux_global_pool")
    body = mx.sym.FullyConnected(mx.sym.Flatten(body, name="aux_flatten"), num_hidden=num_classes, name="aux_fc")
    return mx.sym.SoftmaxOutput(body, label, grad_scale=_AUXILIARY_WEIGHT, name="aux")


def _reduction_b(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    branches = (unit.chain(data, f"{name}_3x3", (192,), (320, 3, 2)),
                unit.chain(data, f"{name}_7x7", (192,), (192, *ROW), (192, *COLUMN), (192, 3, 2)))
    return join(*branches, max_pool(data, f"{name}_pool"), name=name)


def _block_c(unit: ConvUnit, data: Symbol, name: str) -> Symbol:
    three = unit(data, f"{name}_3x3", 384)
    double = unit.chain(data, f"{name}_double", (448,), (384, 3, 1, 1))
    branches = [unit(part, f"{name}_{of}_{half}", 384, *form) for of, part in (("3x3", three), ("double", double))
                for half, form in (("row", _ROW3), ("column", _COLUMN3))]
    return join(unit(data, f"{name}_1x1", 320), *branches, _pooled(unit, data, name, 192), name=name)
