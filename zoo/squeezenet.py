"""SqueezeNet: fire modules, which squeeze by 1x1 convolutions and expand by 1x1 and 3x3 ones beside each other.

Iandola et al. SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size. arXiv:1602.07360.
Version 1.1 is its authors' later one, with less arithmetic.
"""
from __future__ import annotations

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, convolution, dropout, join, max_pool, relu

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""(squeezed, expanded) channels of each fire module."""
_FORMS = {"1.0": (96, 7, (0, 3, 7)), "1.1": (64, 3, (0, 2, 4))}
"""Filters and kernel of the first convolution, and the numbers of fire modules before each pooling."""


def get_symbol(num_classes: int = 1000, version: str | float = "1.1", p: float = 0.5) -> Symbol:
    """SqueezeNet for images (N, C, H, W); `version` is "1.0" or "1.1", `p` the share of dropout."""
    if str(version) not in _FORMS:
        raise MXNetError(f"squeezenet: version must be one of {', '.join(_FORMS)}, got {version!r}")
    filters, kernel, pooled = _FORMS[str(version)]
    body = relu(convolution(mx.sym.Variable("data"), "conv1", filters, kernel, 2), "relu1")
    for k, (squeezed, expanded) in enumerate(FIRES):
        if k in pooled:
            body = max_pool(body, f"pool{pooled.index(k) + 1}", ceil=True)
        body = _fire(body, f"fire{k + 2}", squeezed, expanded)
    body = relu(convolution(dropout(body, "dropout", p), "conv10", num_classes), "relu10")
    body = mx.sym.Pooling(body, global_pool=True, kernel=(7, 7), pool_type="avg", name="global_pool")
    return mx.sym.SoftmaxOutput(mx.sym.Flatten(body, name="flatten"), name="softmax")


def _fire(data: Symbol, name: str, squeezed: int, expanded: int) -> Symbol:
    body = relu(convolution(data, f"{name}_squeeze", squeezed), f"{name}_squeeze_relu")
    one = relu(convolution(body, f"{name}_1x1", expanded), f"{name}_1x1_relu")
    three = relu(convolution(body, f"{name}_3x3", expanded, 3, 1, 1), f"{name}_3x3_relu")
    return join(one, three, name=name)
