"""The blocks of transformers: embeddings of words and places, attention with many heads, and two dense layers.

Vaswani et al. Attention is all you need. NeurIPS 2017, arXiv:1706.03762. Bodies have the shape (N, length, hidden).
"""
from __future__ import annotations

from dataclasses import dataclass

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, dropout


@dataclass(frozen=True)
class Form:
    """What all blocks of one network have in common; `p` is the share of dropout after each half of a block."""

    hidden: int
    heads: int
    inner: int
    p: float
    eps: float
    causal: bool

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise MXNetError(f"transformer: hidden={self.hidden} cannot be cut into {self.heads} heads")

    def norm(self, data: Symbol, name: str) -> Symbol:
        """Layer normalisation over the features."""
        return mx.sym.LayerNorm(data, axis=-1, eps=self.eps, name=name)

    def attention(self, data: Symbol, name: str, length: Symbol | None = None) -> Symbol:
        """Self-attention: projections, attention over the words before `length` if given, output projection."""
        parts = [dense(data, f"{name}_{part}", self.hidden) for part in ("query", "key", "value")]
        given = [] if length is None else [length]
        body = mx.sym.scaled_dot_product_attention(*parts, *given, num_heads=self.heads, causal=self.causal,
                                                   use_length=length is not None, name=f"{name}_attention")
        return dropout(dense(body, f"{name}_output", self.hidden), f"{name}_dropout", self.p)

    def feed_forward(self, data: Symbol, name: str) -> Symbol:
        """Two dense layers with the Gaussian error linear unit between them."""
        body = gelu(dense(data, f"{name}_inner", self.inner), f"{name}_gelu")
        return dropout(dense(body, f"{name}_outer", self.hidden), f"{name}_dropout2", self.p)


def dense(data: Symbol, name: str, units: int) -> Symbol:
    """A fully connected layer on the last axis."""
    return mx.sym.FullyConnected(data, num_hidden=units, flatten=False, name=name)


def gelu(data: Symbol, name: str) -> Symbol:
    """The Gaussian error linear unit, by the error function."""
    return mx.sym.LeakyReLU(data, act_type="gelu", name=name)


def first_rows(weight: Symbol, rows: int, of: int, name: str) -> Symbol:
    """The first `rows` of a weight with `of` rows."""
    return weight if rows == of else mx.sym.slice_axis(weight, axis=0, begin=0, end=rows, name=name)


def add_to_all(data: Symbol, rows: Symbol, name: str) -> Symbol:
    """data (N, length, hidden) with `rows` (length, hidden) added to every image."""
    return mx.sym.broadcast_add(data, mx.sym.expand_dims(rows, axis=0, name=f"{name}_expanded"), name=name)


def words_loss(logits: Symbol) -> Symbol:
    """Softmax over the words at each place (N, length); the loss is the mean over labels that are not -1."""
    return mx.sym.SoftmaxOutput(logits, preserve_shape=True, use_ignore=True, ignore_label=-1, normalization="valid",
                                name="softmax")
