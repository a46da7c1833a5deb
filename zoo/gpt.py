"""GPT: a transformer decoder that tells the next word from those before it.

Radford, Wu, Child, Luan, Amodei, Sutskever. Language models are unsupervised multitask learners (GPT-2). 2019. A
normalisation precedes each half of a block. The error function's GELU, and no dropout within the attention.

| size | layers | hidden | heads | parameters |
| --- | --- | --- | --- | --- |
| small | 12 | 768 | 12 | 124.4 M |
| medium | 24 | 1024 | 16 | 354.8 M |
| large | 36 | 1280 | 20 | 774.0 M |
| xl | 48 | 1600 | 25 | 1557.6 M |
"""
from __future__ import annotations

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, dropout
from .transformer import Form, add_to_all, first_rows, words_loss

SIZES = {"small": (12, 768, 12), "medium": (24, 1024, 16), "large": (36, 1280, 20), "xl": (48, 1600, 25)}
"""(layers, hidden, heads)."""


def get_symbol(num_classes: int = 50257, size: str = "small", seq_len: int = 1024, depth: int | None = None,
               hidden: int | None = None, heads: int | None = None, inner: int | None = None, places: int = 1024,
               p: float = 0.1, tied: bool = True, lengths: bool = False) -> Symbol:
    """Probabilities (N, seq_len, num_classes) of the next word, for words `data` (N, seq_len).

    `num_classes` is the number of words. `depth`, `hidden`, `heads` and `inner` (by default 4 * hidden) change the
    size; `places` are those that have a vector. `tied` makes the last layer's weight that of the words' vectors.
    Labels of -1 are ignored. With `lengths` there is an input `length` (N,), the number of words of each text.
    """
    if size not in SIZES or seq_len > places:
        raise MXNetError(f"gpt: size must be one of {', '.join(SIZES)} and seq_len at most places={places}, got "
                         f"{size!r} and {seq_len}")
    of_depth, of_hidden, of_heads = SIZES[size]
    width = hidden or of_hidden
    form = Form(width, heads or of_heads, inner or 4 * width, p, 1e-5, causal=True)
    words = mx.sym.Variable("word_weight")
    body = mx.sym.Embedding(mx.sym.Variable("data"), words, input_dim=num_classes, output_dim=width, name="word")
    rows = first_rows(mx.sym.Variable("place_weight", shape=(places, width)), seq_len, places, "place")
    body = dropout(add_to_all(body, rows, "embed_sum"), "embed_dropout", p)
    length = mx.sym.Variable("length") if lengths else None
    for k in range(depth or of_depth):
        name = f"layer{k}"
        half = form.attention(form.norm(body, f"{name}_norm1"), name, length)
        body = mx.sym.elemwise_add(body, half, name=f"{name}_sum1")
        half = form.feed_forward(form.norm(body, f"{name}_norm2"), name)
        body = mx.sym.elemwise_add(body, half, name=f"{name}_sum2")
    weight = words if tied else mx.sym.Variable("decoder_weight")
    body = mx.sym.FullyConnected(form.norm(body, "last_norm"), weight, num_hidden=num_classes, no_bias=True,
                                 flatten=False, name="decoder")
    return words_loss(body)
