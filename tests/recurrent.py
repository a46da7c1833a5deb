"""Recurrent networks unrolled by hand, from FullyConnected, Activation and SliceChannel."""
from __future__ import annotations

from typing import Any

import minigraph as mx


def lstm_step(x: Any, h: Any, c: Any, hidden: int, weights: dict[str, Any], name: str) -> tuple[Any, Any]:
    """The next hidden and cell state of a layer whose gates i, f, g, o lie in one product each."""
    gates = (mx.sym.FullyConnected(x, weight=weights["i2h_weight"], bias=weights["i2h_bias"], num_hidden=4 * hidden,
                                   name=f"{name}_i2h")
             + mx.sym.FullyConnected(h, weight=weights["h2h_weight"], bias=weights["h2h_bias"],
                                     num_hidden=4 * hidden, name=f"{name}_h2h"))
    i, f, g, o = mx.sym.SliceChannel(gates, num_outputs=4, name=f"{name}_slice")
    c = mx.sym.sigmoid(f) * c + mx.sym.sigmoid(i) * mx.sym.tanh(g)
    return mx.sym.sigmoid(o) * mx.sym.tanh(c), c


def lstm(length: int, hidden: int, vocabulary: int = 0, inputs: int = 0, classes: int = 0,
         lookup_each_step: bool = False) -> Any:
    """A layer over `data`, (batch, length) words or (batch, length, inputs) vectors.

    With `classes` the last state is classified by `softmax`; otherwise it is the output.
    """
    weights = {name: mx.sym.Variable(f"lstm_{name}") for name in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")}
    data = mx.sym.Variable("data")
    embedding = mx.sym.Variable("embed_weight")
    if vocabulary and not lookup_each_step:
        data = mx.sym.Embedding(data, weight=embedding, input_dim=vocabulary, output_dim=inputs, name="embed")
    steps = mx.sym.SliceChannel(data, num_outputs=length, axis=1, squeeze_axis=True, name="steps") \
        if length > 1 else [mx.sym.Reshape(data, shape=(0, -1))]
    h, c = mx.sym.Variable("h0"), mx.sym.Variable("c0")
    for t in range(length):
        x = steps[t]
        if lookup_each_step:
            x = mx.sym.Embedding(x, weight=embedding, input_dim=vocabulary, output_dim=inputs, name=f"embed{t}")
        h, c = lstm_step(x, h, c, hidden, weights, f"t{t}")
    if not classes:
        return h
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=classes, name="fc"), name="softmax")
