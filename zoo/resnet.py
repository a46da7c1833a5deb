"""Residual networks of any depth, in both published versions and for small and large images.

version 1: He, Zhang, Ren, Sun. Deep residual learning for image recognition. CVPR 2016, arXiv:1512.03385.
Convolution, normalisation, ReLU; ReLU again after the sum.
version 2: He, Zhang, Ren, Sun. Identity mappings in deep residual networks. ECCV 2016, arXiv:1603.05027.
Normalisation and ReLU before each convolution, nothing after the sum.
wide: Zagoruyko, Komodakis. Wide residual networks. BMVC 2016, arXiv:1605.07146. `widen` multiplies the filters of
all stages (WRN-28-10: units=(4, 4, 4), bottleneck=False, version=2, widen=10); `width_per_group` only those inside
of bottlenecks (Wide ResNet-50-2: 128).
ResNeXt: Xie, Girshick, Dollar, Tu, He. Aggregated residual transformations for deep neural networks. CVPR 2017,
arXiv:1611.05431. ResNeXt-50 32x4d: groups=32, width_per_group=4.

| form | images | stages | units by depth |
| --- | --- | --- | --- |
| small | up to 32 x 32 (CIFAR, MNIST, digits) | 3, of 16, 32, 64 filters | 6n+2 with two 3x3; 9n+2 bottlenecks |
| large | above (ImageNet) | 4, of 64, 128, 256, 512 filters | 18, 34 with two 3x3; 50 and more bottlenecks |

A depth that is both 6n+2 and 9n+2 has bottlenecks from 164 on, as in MXNet's example. A bottleneck (1x1, 3x3, 1x1)
widens its stage's filters fourfold. Where shapes change the shortcut is a 1x1 convolution (option B of the first
paper, which took option A, without parameters, for CIFAR).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import minigraph as mx
from minigraph.base import MXNetError

LARGE_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
               200: (3, 24, 36, 3), 269: (3, 30, 48, 8)}
"""Units of each stage of the large form, by depth."""
_LARGEST_SMALL = 32
_FIRST_LARGE_BOTTLENECK = 50
_SMALL_BOTTLENECKS_FROM = 164
_WIDENING = 4


@dataclass(frozen=True)
class _Style:
    """What all units of one network have in common."""

    version: int
    bottleneck: bool
    stride_on: str
    eps: float
    momentum: float
    groups: int
    width_per_group: int


def get_symbol(num_classes: int = 1000, depth: int | None = None, units: Sequence[int] | str | None = None,
               version: int = 1, image_shape: Sequence[int] | str = (3, 224, 224), bottleneck: bool | None = None,
               stride_on: str = "3x3", eps: float = 2e-5, momentum: float = 0.9, widen: int = 1, groups: int = 1,
               width_per_group: int = 64) -> mx.sym.Symbol:
    """A residual network for images (N, C, H, W) of `image_shape` (C, H, W).

    `depth` counts convolutions off the shortcuts, and the fully connected layer; without it and without `units`
    it is 50, or 20 for small images. `units`, such as (3, 8, 36, 3) or "3,8,36,3", gives each stage's units
    instead; they are bottlenecks unless `bottleneck` is False. `stride_on` is the convolution of a bottleneck
    that halves the image: "3x3" (known as v1.5, and as in MXNet's example) or the first "1x1" (the first
    paper). `eps` and `momentum` are BatchNorm's. `widen` is the factor of the filters of all stages. The 3x3
    convolution of a bottleneck is cut into `groups`, each `width_per_group` / 64 times as wide as a plain one.
    MXNetError says what does not fit.
    """
    shape = _integers(image_shape, "image_shape")
    if len(shape) != 3 or min(shape) < 1:
        raise MXNetError(f"resnet: image_shape must be (channels, height, width), got {shape}")
    if version not in (1, 2) or stride_on not in ("1x1", "3x3"):
        raise MXNetError(f"resnet: version must be 1 or 2 and stride_on '1x1' or '3x3', got {version!r} and "
                         f"{stride_on!r}")
    if min(widen, groups, width_per_group) < 1:
        raise MXNetError(f"resnet: widen, groups and width_per_group must be 1 or more, got {widen}, {groups} and "
                         f"{width_per_group}")
    small = max(shape[1:]) <= _LARGEST_SMALL
    if units is not None:
        stages, wide = _integers(units, "units"), bottleneck is not False
        _check_depth_of_units(depth, stages, wide)
    else:
        stages, wide = _stages(depth or (20 if small else 50), small, bottleneck)
    if not wide and (groups, width_per_group) != (1, 64):
        raise MXNetError("resnet: groups and width_per_group need bottlenecks; give bottleneck=True, or leave them out")
    style = _Style(version, wide, stride_on, eps, momentum, groups, width_per_group)
    return _network(num_classes, stages, small, widen, style)


def _integers(value: Sequence[int] | str, what: str) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise MXNetError(f"resnet: {what} must be integers such as (3, 4, 6, 3) or '3,4,6,3', got {value!r}") from error
    if not numbers or min(numbers) < 1:
        raise MXNetError(f"resnet: {what} must be integers of 1 or more, got {value!r}")
    return numbers


def _stages(depth: int, small: bool, bottleneck: bool | None) -> tuple[tuple[int, ...], bool]:
    """Units of each stage, and whether they are bottlenecks."""
    if not small:
        if depth not in LARGE_UNITS:
            known = ", ".join(map(str, LARGE_UNITS))
            raise MXNetError(f"resnet: no units are known for depth {depth} and images above {_LARGEST_SMALL} pixels; "
                             f"known depths are {known}; for others give units=(a, b, c, d)")
        return LARGE_UNITS[depth], depth >= _FIRST_LARGE_BOTTLENECK if bottleneck is None else bottleneck
    by_two, by_three = (depth - 2) % 6 == 0, (depth - 2) % 9 == 0
    if bottleneck is None:
        bottleneck = by_three and (depth >= _SMALL_BOTTLENECKS_FROM or not by_two)
    fits = by_three if bottleneck else by_two
    if not fits or depth < 8:
        raise MXNetError(f"resnet: depth {depth} is neither 6n+2 (20, 32, 56, 110 ...) nor, with bottlenecks, 9n+2 "
                         f"(164, 1001 ...), as images of up to {_LARGEST_SMALL} pixels need; or give units=(a, b, c)")
    return ((depth - 2) // (9 if bottleneck else 6),) * 3, bottleneck


def _check_depth_of_units(depth: int | None, stages: tuple[int, ...], bottleneck: bool) -> None:
    implied = sum(stages) * (3 if bottleneck else 2) + 2
    if depth is not None and depth != implied:
        raise MXNetError(f"resnet: units {stages} {'with' if bottleneck else 'without'} bottlenecks are {implied} "
                         f"layers, not depth={depth}; give one of the two")


def _network(num_classes: int, stages: tuple[int, ...], small: bool, widen: int, style: _Style) -> mx.sym.Symbol:
    body, channels = _stem(mx.sym.Variable("data"), small, style)
    width = (16 if small else 64) * widen
    for s, count in enumerate(stages, start=1):
        filters = width * (_WIDENING if style.bottleneck else 1)
        for u in range(1, count + 1):
            stride = 2 if s > 1 and u == 1 else 1
            unit = _pre_activation_unit if style.version == 2 else _unit
            body = unit(body, channels, filters, stride, f"stage{s}_unit{u}", style)
            channels = filters
        width *= 2
    if style.version == 2:
        body = _relu(_norm(body, "bn1", style), "relu1")
    body = mx.sym.Pooling(body, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool1")
    body = mx.sym.FullyConnected(mx.sym.Flatten(body, name="flatten"), num_hidden=num_classes, name="fc1")
    return mx.sym.SoftmaxOutput(body, name="softmax")


def _stem(data: mx.sym.Symbol, small: bool, style: _Style) -> tuple[mx.sym.Symbol, int]:
    """The layers before the first stage, and their channels. Version 2 normalises the data, without gamma."""
    body = data
    if style.version == 2:
        body = mx.sym.BatchNorm(body, fix_gamma=True, eps=style.eps, momentum=style.momentum, name="bn_data")
    if small:
        body, channels = _conv(body, 16, 3, 1, "conv0"), 16
        return (body if style.version == 2 else _relu(_norm(body, "bn0", style), "relu0")), channels
    body = _relu(_norm(_conv(body, 64, 7, 2, "conv0"), "bn0", style), "relu0")
    return mx.sym.Pooling(body, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name="pool0"), 64


def _unit(data: mx.sym.Symbol, channels: int, filters: int, stride: int, name: str, style: _Style) -> mx.sym.Symbol:
    """relu(F(data) + shortcut), where F is convolution - norm - relu ... convolution - norm."""
    layers = _layers(filters, stride, style)
    body = data
    for k, (num_filter, kernel, step) in enumerate(layers, start=1):
        body = _norm(_conv(body, num_filter, kernel, step, f"{name}_conv{k}", style), f"{name}_bn{k}", style)
        if k < len(layers):
            body = _relu(body, f"{name}_relu{k}")
    shortcut = data
    if channels != filters or stride != 1:
        shortcut = _norm(_conv(data, filters, 1, stride, f"{name}_sc"), f"{name}_sc_bn", style)
    return _relu(mx.sym.elemwise_add(body, shortcut, name=f"{name}_sum"), f"{name}_relu")


def _pre_activation_unit(data: mx.sym.Symbol, channels: int, filters: int, stride: int, name: str,
                         style: _Style) -> mx.sym.Symbol:
    """F(data) + shortcut, where F is norm - relu - convolution ...; a projection starts behind the first relu."""
    body = first = data
    for k, (num_filter, kernel, step) in enumerate(_layers(filters, stride, style), start=1):
        body = _relu(_norm(body, f"{name}_bn{k}", style), f"{name}_relu{k}")
        first = body if k == 1 else first
        body = _conv(body, num_filter, kernel, step, f"{name}_conv{k}", style)
    shortcut = data
    if channels != filters or stride != 1:
        shortcut = _conv(first, filters, 1, stride, f"{name}_sc")
    return mx.sym.elemwise_add(body, shortcut, name=f"{name}_sum")


def _layers(filters: int, stride: int, style: _Style) -> list[tuple[int, int, int]]:
    """(filters, kernel, stride) of a unit's convolutions."""
    if not style.bottleneck:
        return [(filters, 3, stride), (filters, 3, 1)]
    inner = max(1, filters // _WIDENING * style.width_per_group // 64) * style.groups
    early, late = (stride, 1) if style.stride_on == "1x1" else (1, stride)
    return [(inner, 1, early), (inner, 3, late), (filters, 1, 1)]


def _conv(data: mx.sym.Symbol, num_filter: int, kernel: int, stride: int, name: str,
          style: _Style | None = None) -> mx.sym.Symbol:
    """A convolution without bias that keeps the image's size but for its stride; in the style's groups if 3x3."""
    groups = style.groups if style is not None and kernel == 3 else 1
    pad = kernel // 2
    return mx.sym.Convolution(data, num_filter=num_filter, kernel=(kernel, kernel), stride=(stride, stride),
                              pad=(pad, pad), num_group=groups, no_bias=True, name=name)


def _norm(data: mx.sym.Symbol, name: str, style: _Style) -> mx.sym.Symbol:
    return mx.sym.BatchNorm(data, fix_gamma=False, eps=style.eps, momentum=style.momentum, name=name)


def _relu(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return mx.sym.Activation(data, act_type="relu", name=name)
