"""The layers that several networks of the zoo are made of: convolutions with normalisation, pooling, classifiers."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import minigraph as mx

Symbol = mx.sym.Symbol
Extent = int | Sequence[int]
"""A size along every axis of an image, or one for each."""


def extents(value: Extent, dims: int = 2) -> tuple[int, ...]:
    """`value` as one number for each axis of the image."""
    return (value,) * dims if isinstance(value, int) else tuple(value)


@dataclass(frozen=True)
class ConvUnit:
    """Convolution, batch normalisation, ReLU, all of one network alike; calling it adds one to a symbol.

    `width` is the factor of every number of filters, rounded, but at least 1. The convolution has no bias unless
    `bias`. Layers are called NAME, NAME_bn and NAME_relu.
    """

    width: float = 1.0
    eps: float = 1e-5
    momentum: float = 0.9
    bias: bool = False

    def __call__(self, data: Symbol, name: str, filters: int, kernel: Extent = 1, stride: Extent = 1,
                 pad: Extent = 0) -> Symbol:
        """relu(norm(convolution(data))) with `filters` times `width` channels."""
        body = self.convolution(data, name, filters, kernel, stride, pad)
        return relu(self.norm(body, f"{name}_bn"), f"{name}_relu")

    def chain(self, data: Symbol, name: str, *layers: tuple[Any, ...]) -> Symbol:
        """Units NAME_1, NAME_2 and so on, one for each (filters, kernel, stride, pad)."""
        for k, layer in enumerate(layers, start=1):
            data = self(data, f"{name}_{k}", *layer)
        return data

    def convolution(self, data: Symbol, name: str, filters: int, kernel: Extent = 1, stride: Extent = 1,
                    pad: Extent = 0) -> Symbol:
        """The convolution alone."""
        return convolution(data, name, self.filters(filters), kernel, stride, pad, bias=self.bias)

    def norm(self, data: Symbol, name: str) -> Symbol:
        """Batch normalisation with a learned scale."""
        return mx.sym.BatchNorm(data, fix_gamma=False, eps=self.eps, momentum=self.momentum, name=name)

    def filters(self, count: int) -> int:
        """A number of filters times `width`."""
        return max(1, round(count * self.width))


def convolution(data: Symbol, name: str, filters: int, kernel: Extent = 1, stride: Extent = 1, pad: Extent = 0,
                groups: int = 1, bias: bool = True, dims: int = 2) -> Symbol:
    """A convolution of `dims` axes."""
    return mx.sym.Convolution(data, num_filter=filters, kernel=extents(kernel, dims), stride=extents(stride, dims),
                              pad=extents(pad, dims), num_group=groups, no_bias=not bias, name=name)


def relu(data: Symbol, name: str) -> Symbol:
    """max(data, 0)."""
    return mx.sym.Activation(data, act_type="relu", name=name)


def max_pool(data: Symbol, name: str, kernel: Extent = 3, stride: Extent = 2, pad: Extent = 0, ceil: bool = False,
             dims: int = 2) -> Symbol:
    """The largest element of each window; `ceil` adds a window where the last would leave some of the image out."""
    return mx.sym.Pooling(data, pool_type="max", kernel=extents(kernel, dims), stride=extents(stride, dims),
                          pad=extents(pad, dims), pooling_convention="full" if ceil else "valid", name=name)


def average_pool(data: Symbol, name: str, kernel: Extent = 3, stride: Extent = 1, pad: Extent = 1,
                 count_pad: bool = True) -> Symbol:
    """The mean of each window, over its padding too unless `count_pad` is False."""
    return mx.sym.Pooling(data, pool_type="avg", kernel=extents(kernel), stride=extents(stride), pad=extents(pad),
                          count_include_pad=count_pad, name=name)


def dropout(data: Symbol, name: str, p: float) -> Symbol:
    """Dropout, or `data` itself where p is 0."""
    return mx.sym.Dropout(data, p=p, name=name) if p else data


def join(*parts: Symbol, name: str) -> Symbol:
    """The parts beside each other along the channels."""
    return mx.sym.Concat(*parts, dim=1, name=name)


def classify(data: Symbol, num_classes: int, p: float = 0.0, label: Symbol | None = None) -> Symbol:
    """Global average pooling, dropout of share p, a fully connected layer `fc`, softmax."""
    data = mx.sym.Pooling(data, global_pool=True, kernel=(7, 7), pool_type="avg", name="global_pool")
    data = dropout(mx.sym.Flatten(data, name="flatten"), "dropout", p)
    logits = mx.sym.FullyConnected(data, num_hidden=num_classes, name="fc")
    given = () if label is None else (label,)
    return mx.sym.SoftmaxOutput(logits, *given, name="softmax")
