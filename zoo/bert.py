"""BERT: a transformer encoder that reads a text in both directions.

Devlin, Chang, Lee, Toutanova. BERT: pre-training of deep bidirectional transformers for language understanding. NAACL
2019, arXiv:1810.04805. Normalisation follows each half of a block. No dropout within the attention.

| size | layers | hidden | heads | parameters of the encoder, of the masked language model |
| --- | --- | --- | --- | --- |
| base | 12 | 768 | 12 | 108.9 M, 109.5 M |
| large | 24 | 1024 | 16 | 334.1 M, 335.2 M |
"""
from __future__ import annotations

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, dropout
from .transformer import Form, add_to_all, dense, first_rows, gelu, words_loss

SIZES = {"base": (12, 768, 12), "large": (24, 1024, 16)}
"""(layers, hidden, heads)."""
_SEGMENTS = 2


def get_symbol(num_classes: int | None = None, size: str = "base", seq_len: int = 128, vocabulary: int = 30522,
               depth: int | None = None, hidden: int | None = None, heads: int | None = None, inner: int | None = None,
               places: int = 512, p: float = 0.1, segments: bool = False, lengths: bool = False) -> Symbol:
    """A masked language model, or with `num_classes` a classifier of texts, for words `data` (N, seq_len).

    The language model's output is (N, seq_len, vocabulary), by the words' own vectors; labels of -1 are ignored. The
    classifier reads the first place through a dense layer with tanh. `depth`, `hidden`, `heads` and `inner` (by
    default 4 * hidden) change the size; `places` are those that have a vector. Further inputs: `segments` (N, seq_len)
    of 0 or 1, without which all are 0; with `lengths`, `length` (N,), the number of words of each text.
    """
    if size not in SIZES or seq_len > places:
        raise MXNetError(f"bert: size must be one of {', '.join(SIZES)} and seq_len at most places={places}, got "
                         f"{size!r} and {seq_len}")
    of_depth, of_hidden, of_heads = SIZES[size]
    width = hidden or of_hidden
    form = Form(width, heads or of_heads, inner or 4 * width, p, 1e-12, causal=False)
    words = mx.sym.Variable("word_weight")
    body = mx.sym.Embedding(mx.sym.Variable("data"), words, input_dim=vocabulary, output_dim=width, name="word")
    body = dropout(form.norm(_placed(body, width, seq_len, places, segments), "embed_norm"), "embed_dropout", p)
    length = mx.sym.Variable("length") if lengths else None
    for k in range(depth or of_depth):
        name = f"layer{k}"
        half = mx.sym.elemwise_add(body, form.attention(body, name, length), name=f"{name}_sum1")
        half = form.norm(half, f"{name}_norm1")
        body = mx.sym.elemwise_add(half, form.feed_forward(half, name), name=f"{name}_sum2")
        body = form.norm(body, f"{name}_norm2")
    if num_classes is None:
        body = form.norm(gelu(dense(body, "head", width), "head_gelu"), "head_norm")
        return words_loss(mx.sym.FullyConnected(body, words, num_hidden=vocabulary, flatten=False, name="decoder"))
    first = mx.sym.Reshape(mx.sym.slice_axis(body, axis=1, begin=0, end=1, name="first"), shape=(-3, 0), name="pool_in")
    pooled = mx.sym.Activation(dense(first, "pool", width), act_type="tanh", name="pool_tanh")
    return mx.sym.SoftmaxOutput(dense(dropout(pooled, "pool_dropout", p), "fc", num_classes), name="softmax")


def _placed(body: Symbol, width: int, seq_len: int, places: int, segments: bool) -> Symbol:
    """Words' vectors with those of their places and segments added."""
    rows = first_rows(mx.sym.Variable("place_weight", shape=(places, width)), seq_len, places, "place")
    kinds = mx.sym.Variable("segment_weight", shape=(_SEGMENTS, width))
    if not segments:
        kind = mx.sym.slice_axis(kinds, axis=0, begin=0, end=1, name="segment")
        return add_to_all(body, mx.sym.broadcast_add(rows, kind, name="place_segment"), "embed_sum")
    kind = mx.sym.Embedding(mx.sym.Variable("segments"), kinds, input_dim=_SEGMENTS, output_dim=width, name="segment")
    return add_to_all(mx.sym.elemwise_add(body, kind, name="word_segment"), rows, "embed_sum")
