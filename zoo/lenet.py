"""LeNet: two convolutions with tanh and max pooling, then two fully connected layers.

LeCun, Bottou, Bengio, Haffner. Gradient-based learning applied to document recognition. Proc. IEEE 86, 1998; in
the form of MXNet's example `symbols/lenet.py` (20 and 50 filters, 500 hidden units).
"""
from __future__ import annotations

from collections.abc import Sequence

import minigraph as mx
from minigraph.base import MXNetError

_SMALLEST = 16
"""Rows and columns that two unpadded 5x5 convolutions and two poolings need to leave one pixel."""


def get_symbol(num_classes: int = 10, filters: Sequence[int] = (20, 50), hidden: int = 500,
               image_shape: Sequence[int] = (1, 28, 28)) -> mx.sym.Symbol:
    """LeNet for images (N, C, H, W) of 16 x 16 or more; `image_shape` (C, H, W) only checks that they are."""
    if min(image_shape[-2:]) < _SMALLEST:
        raise MXNetError(f"lenet: images of {image_shape[-2]}x{image_shape[-1]} are too small, it needs "
                         f"{_SMALLEST}x{_SMALLEST}; enlarge them, or use resnet or mlp")
    body = mx.sym.Variable("data")
    for k, num_filter in enumerate(filters, start=1):
        body = mx.sym.Convolution(body, kernel=(5, 5), num_filter=num_filter, name=f"conv{k}")
        body = mx.sym.Activation(body, act_type="tanh", name=f"tanh{k}")
        body = mx.sym.Pooling(body, pool_type="max", kernel=(2, 2), stride=(2, 2), name=f"pool{k}")
    body = mx.sym.Flatten(body, name="flatten")
    body = mx.sym.FullyConnected(body, num_hidden=hidden, name="fc1")
    body = mx.sym.Activation(body, act_type="tanh", name=f"tanh{len(filters) + 1}")
    body = mx.sym.FullyConnected(body, num_hidden=num_classes, name="fc2")
    return mx.sym.SoftmaxOutput(body, name="softmax")
