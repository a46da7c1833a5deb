"""Multi-layer perceptron: fully connected layers with ReLU between them.

Rumelhart, Hinton, Williams. Learning representations by back-propagating errors. Nature 323, 1986. The default
widths are those of MXNet's example `symbols/mlp.py`.
"""
from __future__ import annotations

from collections.abc import Sequence

import minigraph as mx
from minigraph.base import MXNetError


def get_symbol(num_classes: int = 10, hidden: Sequence[int] | int = (128, 64),
               act_type: str = "relu") -> mx.sym.Symbol:
    """fc1 - act - fc2 - act - ... - fc with `num_classes` outputs, for data of any shape (N, ...).

    `hidden` are the widths of the hidden layers, none or more, each 1 or more.
    """
    widths = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    if any(width < 1 for width in widths):
        raise MXNetError(f"mlp: every hidden layer must be 1 or more wide, got hidden={widths}")
    body = mx.sym.Flatten(mx.sym.Variable("data"), name="flatten")
    for k, width in enumerate(widths, start=1):
        body = mx.sym.FullyConnected(body, num_hidden=width, name=f"fc{k}")
        body = mx.sym.Activation(body, act_type=act_type, name=f"{act_type}{k}")
    body = mx.sym.FullyConnected(body, num_hidden=num_classes, name=f"fc{len(widths) + 1}")
    return mx.sym.SoftmaxOutput(body, name="softmax")
