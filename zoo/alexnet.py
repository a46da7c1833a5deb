"""AlexNet in the two single-column forms that others report figures for.

Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural networks. NeurIPS 2012.

| variant | images | filters | local response normalisation | parameters |
| --- | --- | --- | --- | --- |
| one-tower | 224 x 224 | 64-192-384-256-256 | no | 61.1 M |
| superneurons | 227 x 227 | 96-256-384-384-256 | after the first two ReLUs | 62.4 M |

one-tower: Krizhevsky. One weird trick for parallelizing convolutional neural networks. arXiv:1404.5997; as in
torchvision, with dropout before the fully connected layers. superneurons: Wang et al. SuperNeurons. PPoPP 2018; 23
layers from the first convolution to the softmax, dropout after the fully connected layers.
"""
from __future__ import annotations

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, convolution, dropout, max_pool, relu

_CONVOLUTIONS = {
    "one-tower": ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)),
    "superneurons": ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1))}
"""(filters, kernel, stride, pad) of each."""
_POOLED = (1, 2, 5)


def get_symbol(num_classes: int = 1000, variant: str = "one-tower", hidden: int = 4096, p: float = 0.5) -> Symbol:
    """AlexNet for images (N, 3, H, W) of 63 x 63 or more; `hidden` units a layer, dropout of share `p`."""
    if variant not in _CONVOLUTIONS:
        raise MXNetError(f"alexnet: variant must be one of {', '.join(_CONVOLUTIONS)}, got {variant!r}")
    local = variant == "superneurons"
    body = mx.sym.Variable("data")
    for k, (filters, kernel, stride, pad) in enumerate(_CONVOLUTIONS[variant], start=1):
        body = relu(convolution(body, f"conv{k}", filters, kernel, stride, pad), f"relu{k}")
        if local and k <= 2:
            body = mx.sym.LRN(body, nsize=5, alpha=1e-4, beta=0.75, knorm=2, name=f"norm{k}")
        if k in _POOLED:
            body = max_pool(body, f"pool{k}")
    body = mx.sym.Flatten(body, name="flatten")
    for k in (6, 7):
        body = body if local else dropout(body, f"dropout{k}", p)
        body = relu(mx.sym.FullyConnected(body, num_hidden=hidden, name=f"fc{k}"), f"relu{k}")
        body = dropout(body, f"dropout{k}", p) if local else body
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=num_classes, name="fc8"), name="softmax")
