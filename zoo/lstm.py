"""A language model of long short-term memory layers, unrolled in the graph.

Zaremba, Sutskever, Vinyals. Recurrent neural network regularization. arXiv:1409.2329: its medium network has 2 layers
of 650 units, its large one of 1500. Names of parameters and the order of gates are those of MXNet's `LSTMCell`; tied
weights as in Press, Wolf, arXiv:1608.05859. Sentences of many lengths: one symbol for each, by `sym_gen`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, dropout

State = tuple[Symbol, Symbol]


def get_symbol(num_classes: int = 10000, seq_len: int = 35, layers: int = 2, hidden: int = 650,
               embed: int | None = None, p: float = 0.5, tied: bool = False) -> Symbol:
    """Probabilities of the next of `num_classes` words, (N, seq_len, num_classes), for words (N, seq_len).

    `embed` is the size of a word's vector, by default `hidden`; with `tied` the last layer's weight is that of the
    words' vectors, which must then have the same size. `p` is the share of dropout between layers. A label of -1 is
    ignored. States begin with zeros.
    """
    if tied and embed not in (None, hidden):
        raise MXNetError(f"lstm: tied weights need vectors of the size of a layer, got embed={embed} and "
                         f"hidden={hidden}")
    words = mx.sym.Variable("embed_weight")
    body = mx.sym.Embedding(mx.sym.Variable("data"), words, input_dim=num_classes, output_dim=embed or hidden,
                            name="embed")
    body = dropout(body, "dropout_embed", p)
    for layer in range(layers):
        body = dropout(_layer(body, f"lstm_l{layer}", hidden, seq_len), f"dropout_l{layer}", p)
    weight = (words,) if tied else ()
    logits = mx.sym.FullyConnected(body, *weight, num_hidden=num_classes, flatten=False, name="pred")
    return mx.sym.SoftmaxOutput(logits, preserve_shape=True, use_ignore=True, ignore_label=-1, normalization="valid",
                                name="softmax")


def sym_gen(num_classes: int = 10000, **settings: Any) -> Callable[[int], tuple[Symbol, tuple[str], tuple[str]]]:
    """The function of a sentence length that gives (symbol, data names, label names), for a bucketing module."""
    return lambda seq_len: (get_symbol(num_classes, seq_len=seq_len, **settings), ("data",), ("softmax_label",))


def _layer(body: Symbol, name: str, hidden: int, seq_len: int) -> Symbol:
    """Outputs (N, seq_len, hidden) of a layer; the inputs of all its steps are multiplied at once, and both biases are
    added there, since a gate only sees their sum."""
    (weight, bias), (state_weight, state_bias) = (
        [mx.sym.Variable(f"{name}_{part}_{kind}") for kind in ("weight", "bias")] for part in ("i2h", "h2h"))
    both = mx.sym.elemwise_add(bias, state_bias, name=f"{name}_bias")
    new = mx.sym.FullyConnected(body, weight, both, num_hidden=4 * hidden, flatten=False, name=f"{name}_i2h")
    state, rows = None, []
    for t, step in enumerate(_steps(new, seq_len, f"{name}_steps")):
        state = _cell(step, state, state_weight, f"{name}_t{t}", hidden)
        rows.append(mx.sym.expand_dims(state[0], axis=1, name=f"{name}_row_t{t}"))
    return mx.sym.Concat(*rows, dim=1, name=f"{name}_rows")


def _steps(body: Symbol, seq_len: int, name: str) -> list[Symbol]:
    """(N, seq_len, features) cut into seq_len symbols (N, features)."""
    if seq_len == 1:
        return [mx.sym.Reshape(body, shape=(-3, 0), name=name)]
    return list(mx.sym.SliceChannel(body, num_outputs=seq_len, axis=1, squeeze_axis=True, name=name))


def _cell(new: Symbol, state: State | None, weight: Symbol, name: str, hidden: int) -> State:
    """One step, from its input's share in the gates: the new output and memory. None is the state before the first,
    zeros."""
    if state is None:
        one_gate = mx.sym.slice_axis(new, axis=1, begin=0, end=hidden, name=f"{name}_one_gate")
        state = (mx.sym.zeros_like(one_gate, name=f"{name}_begin"),) * 2
    old = mx.sym.FullyConnected(state[0], weight, num_hidden=4 * hidden, no_bias=True, name=f"{name}_h2h")
    output, memory = mx.sym.lstm_cell(new, old, state[1], name=f"{name}_cell")
    return output, memory
