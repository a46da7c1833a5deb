"""mx.rnn: recurrent cells as symbols, sentences in buckets, and checkpoints of unrolled networks."""
from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import model, random
from .context import cpu
from .io_base import DataBatch, DataDesc, DataIter
from .ndarray import HostStorage, NDArray
from .rnn_cell import (
    BaseRNNCell,
    BidirectionalCell,
    DropoutCell,
    GRUCell,
    LSTMCell,
    RNNCell,
    RNNParams,
    SequentialRNNCell,
)
from .rnn_conv import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .rnn_fused import FusedRNNCell
from .rnn_modifier import ModifierCell, ResidualCell, ZoneoutCell
from .symbol.symbol import Symbol

__all__ = ["BaseConvRNNCell", "BaseRNNCell", "BidirectionalCell", "BucketSentenceIter", "ConvGRUCell", "ConvLSTMCell",
           "ConvRNNCell", "DropoutCell", "FusedRNNCell", "GRUCell", "LSTMCell", "ModifierCell", "RNNCell", "RNNParams",
           "ResidualCell", "SequentialRNNCell", "ZoneoutCell", "do_rnn_checkpoint", "encode_sentences",
           "load_rnn_checkpoint", "save_rnn_checkpoint"]

Cells = BaseRNNCell | Sequence[BaseRNNCell]
Params = dict[str, NDArray]


def encode_sentences(sentences: Sequence[Sequence[str]], vocab: dict[str, int] | None = None, invalid_label: int = -1,
                     invalid_key: str = "\n", start_label: int = 0, unknown_token: str | None = None,
                     ) -> tuple[list[list[int]], dict[str, int]]:
    """(sentences as numbers, the vocabulary). A vocabulary that is given is not extended: a word that it lacks counts
    as `unknown_token`, and without one raises ValueError. `invalid_label` is kept for padding."""
    extend = vocab is None
    words = {invalid_key: invalid_label} if vocab is None else vocab
    number = start_label
    result = []
    for sentence in sentences:
        coded = []
        for word in sentence:
            if word not in words and extend:
                number += number == invalid_label
                words[word] = number
                number += 1
            elif word not in words and unknown_token not in words:
                raise ValueError(f"the word {word!r} is not in the vocabulary; give an unknown_token that is")
            coded.append(words.get(word, words.get(unknown_token or "", invalid_label)))
        result.append(coded)
    return result, words


class BucketSentenceIter(DataIter):
    """Sentences of numbers in batches of one length each; the label of a word is the next word.

    `buckets` are the lengths (default: every length that fills a batch); a sentence is padded with `invalid_label` to
    the next length, and left out, with a warning, if it is longer than all. A bucket's last, incomplete batch is left
    out. Batches and sentences are shuffled at every reset. `layout` is NT or TN.
    """

    def __init__(self, sentences: Sequence[Sequence[int]], batch_size: int, buckets: Sequence[int] | None = None,
                 invalid_label: int = -1, data_name: str = "data", label_name: str = "softmax_label",
                 dtype: Any = "float32", layout: str = "NT") -> None:
        super().__init__(batch_size)
        if layout not in ("NT", "TN"):
            raise ValueError(f"Invalid layout {layout}: Must by NT (batch major) or TN (time major)")
        if not buckets:
            counts = np.bincount([len(sentence) for sentence in sentences])
            buckets = [length for length, count in enumerate(counts) if length and count >= batch_size]
        if not buckets:
            raise ValueError(f"no length has {batch_size} sentences to fill a batch; give buckets")
        self.buckets = sorted(buckets)
        self.default_bucket_key = max(buckets)
        self.invalid_label, self.dtype, self.layout = invalid_label, np.dtype(dtype), layout
        self.data_name, self.label_name = data_name, label_name
        self._rows = self._padded(sentences)
        self._order = [(bucket, first) for bucket, rows in enumerate(self._rows)
                       for first in range(0, len(rows) - batch_size + 1, batch_size)]
        self._at = 0
        self.reset()

    def _padded(self, sentences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The sentences of each bucket, (sentences, length)."""
        found: list[list[np.ndarray]] = [[] for _ in self.buckets]
        longer = 0
        for sentence in sentences:
            bucket = bisect_left(self.buckets, len(sentence))
            if bucket == len(self.buckets):
                longer += 1
                continue
            row = np.full(self.buckets[bucket], self.invalid_label, self.dtype)
            row[:len(sentence)] = sentence
            found[bucket].append(row)
        if longer:
            logging.warning("discarded %d sentences longer than the largest bucket.", longer)
        return [np.array(rows, self.dtype).reshape(-1, length)
                for rows, length in zip(found, self.buckets, strict=True)]

    def _desc(self, name: str, length: int) -> DataDesc:
        shape = (self.batch_size, length) if self.layout == "NT" else (length, self.batch_size)
        return DataDesc(name, shape, self.dtype, self.layout)

    @property
    def provide_data(self) -> list[DataDesc]:
        """The data of the largest bucket."""
        return [self._desc(self.data_name, self.default_bucket_key)]

    @property
    def provide_label(self) -> list[DataDesc]:
        """The labels of the largest bucket."""
        return [self._desc(self.label_name, self.default_bucket_key)]

    def reset(self) -> None:
        """Begin anew, in another order."""
        self._at = 0
        generator = random.generator()
        generator.shuffle(self._order)
        for rows in self._rows:
            generator.shuffle(rows)

    def next(self) -> DataBatch:
        """The next batch."""
        if self._at == len(self._order):
            raise StopIteration
        bucket, first = self._order[self._at]
        self._at += 1
        data = self._rows[bucket][first:first + self.batch_size]
        label = np.full_like(data, self.invalid_label)
        label[:, :-1] = data[:, 1:]
        length = self.buckets[bucket]
        arrays = [NDArray(HostStorage(np.array(each if self.layout == "NT" else each.T, order="C"), cpu()))
                  for each in (data, label)]
        return DataBatch(arrays[:1], arrays[1:], pad=0, bucket_key=length,
                         provide_data=[self._desc(self.data_name, length)],
                         provide_label=[self._desc(self.label_name, length)])


# -- checkpoints ---------------------------------------------------------------------------------------------
def _as_cells(cells: Cells) -> list[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else list(cells)


def save_rnn_checkpoint(cells: Cells, prefix: str, epoch: int, symbol: Symbol, arg_params: Mapping[str, NDArray],
                        aux_params: Mapping[str, NDArray]) -> None:
    """As model.save_checkpoint, with the cells' gates unpacked, so that other cells can take them up."""
    arguments: Params = dict(arg_params)
    for cell in _as_cells(cells):
        arguments = cell.unpack_weights(arguments)
    model.save_checkpoint(prefix, epoch, symbol, arguments, aux_params)


def load_rnn_checkpoint(cells: Cells, prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """(symbol, arguments, auxiliary states) of such a checkpoint, the gates packed for `cells`."""
    symbol, arguments, states = model.load_checkpoint(prefix, epoch)
    for cell in _as_cells(cells):
        arguments = cell.pack_weights(arguments)
    return symbol, arguments, states


def do_rnn_checkpoint(cells: Cells, prefix: str, period: int = 1) -> Callable:
    """An epoch callback that calls `save_rnn_checkpoint` every `period` epochs."""
    period = max(1, int(period))

    def save(epoch: int, symbol: Symbol, arg_params: Params, aux_params: Params) -> None:
        if (epoch + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, epoch + 1, symbol, arg_params, aux_params)

    return save
