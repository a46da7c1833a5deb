"""MobileNets: convolutions of each channel alone, and 1x1 convolutions across channels.

version 1: Howard et al. MobileNets: efficient convolutional neural networks for mobile vision applications.
arXiv:1704.04861.
version 2: Sandler, Howard, Zhu, Zhmoginov, Chen. MobileNetV2: inverted residuals and linear bottlenecks. CVPR 2018,
arXiv:1801.04381. Blocks widen, filter, and narrow again; the narrow ends are joined by shortcuts.
"""
from __future__ import annotations

import minigraph as mx
from minigraph.base import MXNetError

from .layers import ConvUnit, Symbol, classify, convolution, relu

LAYERS_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""(filters, stride) of each pair of convolutions."""
BLOCKS_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(factor of widening, channels, blocks, stride of the first) of each stage."""
_DIVISOR = 8
_UNIT = ConvUnit()


def get_symbol(num_classes: int = 1000, version: int = 2, width: float = 1.0, p: float | None = None) -> Symbol:
    """MobileNet for images (N, C, H, W); `width` is the factor of the channels, which version 2 rounds to eights.

    `p` is the share of dropout before the classifier, by default 0.2 in version 2 and none in version 1.
    """
    if version not in (1, 2):
        raise MXNetError(f"mobilenet: version must be 1 or 2, got {version!r}")
    if version == 1:
        return classify(_version1(mx.sym.Variable("data"), width), num_classes, p or 0.0)
    return classify(_version2(mx.sym.Variable("data"), width), num_classes, 0.2 if p is None else p)


def _unit(data: Symbol, name: str, filters: int, kernel: int = 1, stride: int = 1, groups: int = 1,
          act: str = "relu6") -> Symbol:
    """Convolution, normalisation, and the activation: relu, relu6, which ends at 6, or linear."""
    body = convolution(data, name, filters, kernel, stride, kernel // 2, groups, bias=False)
    body = _UNIT.norm(body, f"{name}_bn")
    if act == "relu6":
        return mx.sym.clip(body, a_min=0.0, a_max=6.0, name=f"{name}_relu6")
    return relu(body, f"{name}_relu") if act == "relu" else body


def _version1(data: Symbol, width: float) -> Symbol:
    channels = max(1, round(32 * width))
    body = _unit(data, "conv0", channels, 3, 2, act="relu")
    for k, (filters, stride) in enumerate(LAYERS_V1, start=1):
        body = _unit(body, f"conv{k}_dw", channels, 3, stride, groups=channels, act="relu")
        channels = max(1, round(filters * width))
        body = _unit(body, f"conv{k}", channels, act="relu")
    return body


def _eights(channels: float) -> int:
    """The nearest multiple of 8, 8 or more, that is no more than a tenth below."""
    rounded = max(_DIVISOR, int(channels + _DIVISOR / 2) // _DIVISOR * _DIVISOR)
    return rounded + _DIVISOR if rounded < 0.9 * channels else rounded


def _version2(data: Symbol, width: float) -> Symbol:
    channels = _eights(32 * width)
    body = _unit(data, "conv0", channels, 3, 2)
    for s, (factor, filters, count, stride) in enumerate(BLOCKS_V2, start=1):
        filters = _eights(filters * width)
        for k in range(1, count + 1):
            body = _bottleneck(body, f"stage{s}_block{k}", channels, factor, filters, stride if k == 1 else 1)
            channels = filters
    return _unit(body, "last", _eights(1280 * max(1.0, width)))


def _bottleneck(data: Symbol, name: str, channels: int, factor: int, filters: int, stride: int) -> Symbol:
    inner = channels * factor
    body = data if factor == 1 else _unit(data, f"{name}_widen", inner)
    body = _unit(body, f"{name}_dw", inner, 3, stride, groups=inner)
    body = _unit(body, f"{name}_narrow", filters, act="linear")
    if stride != 1 or channels != filters:
        return body
    return mx.sym.elemwise_add(data, body, name=f"{name}_sum")
