"""Data iterators, under MXNet's names: batches of NDArrays with names, shapes and types known beforehand."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from . import random
from .base import REAL_KINDS, MXNetError, dtype_of
from .context import cpu
from .formats.idx import read_idx
from .image_iter import ImageRecordIter
from .io_base import DataBatch, DataDesc, DataIter, PrefetchingIter, ResizeIter
from .ndarray import HostStorage, NDArray, from_numpy
from .settings import whole_number

__all__ = ["CSVIter", "DataBatch", "DataDesc", "DataIter", "ImageRecordIter", "MNISTIter", "NDArrayIter",
           "PrefetchingIter", "ResizeIter", "ScaledIter"]


class _Source:
    """A named array to take rows from: an NDArray as it is then, in its dtype; of all else a copy, which gives float32,
    both as in MXNet. A memory-mapped array is not copied, for it may be larger than memory."""

    def __init__(self, name: str, values: Any) -> None:
        self.name = name
        self.values = values if isinstance(values, NDArray) else np.asanyarray(values)
        if np.dtype(self.values.dtype).kind not in REAL_KINDS:
            raise TypeError(f"{name} takes real numbers, got an array of dtype {self.values.dtype}")
        self.dtype = np.dtype(values.dtype) if isinstance(values, NDArray) else np.dtype(np.float32)
        if not isinstance(self.values, (NDArray, np.memmap)):
            wider = self.values.dtype.kind == "f" and self.values.dtype.itemsize > self.dtype.itemsize
            self.values = np.array(self.values, self.dtype if wider else None, order="C")
        self.shape = tuple(self.values.shape)
        if not self.shape or not self.shape[0]:
            raise ValueError(f"{name} has shape {self.shape}; an iterator needs at least one row")

    def array(self) -> NDArray:
        """The whole array, in the dtype of batches from now on: rows are taken from this one."""
        if isinstance(self.values, NDArray):
            return self.values
        if self.values.dtype != self.dtype or isinstance(self.values, np.memmap):
            self.values = np.array(self.values, self.dtype)
        return NDArray(HostStorage(self.values, cpu()))

    def batch(self, index: np.ndarray, convert: Callable[[np.ndarray, np.dtype], np.ndarray]) -> NDArray:
        """The rows of these numbers as `convert` gives them, in memory that is nobody else's."""
        rows = self.rows(index)
        values = convert(rows, self.dtype)
        return NDArray(HostStorage(np.array(values) if np.may_share_memory(values, self.whole()) else values, cpu()))

    def whole(self) -> np.ndarray:
        """All rows as they are now."""
        return self.values.storage.read() if isinstance(self.values, NDArray) else self.values

    def rows(self, index: np.ndarray) -> np.ndarray:
        """The rows of these numbers: a view where they are consecutive, else a copy."""
        whole = self.whole()
        first, last = int(index[0]), int(index[-1])
        if last - first == len(index) - 1 and (np.diff(index) == 1).all():
            return whole[first:last + 1]
        return whole[index]


def _sources(values: Any, default_name: str) -> list[_Source]:
    """Named arrays from an array, a list (numbered names) or a dict (sorted by name); none from an empty one."""
    if values is None or isinstance(values, (list, tuple, Mapping)) and not values:
        return []
    if isinstance(values, Mapping):
        return [_Source(name, values[name]) for name in sorted(values)]
    if isinstance(values, (list, tuple)) and values and isinstance(values[0], (NDArray, np.ndarray)):
        if len(values) == 1:
            return [_Source(default_name, values[0])]
        return [_Source(f"_{number}_{default_name}", each) for number, each in enumerate(values)]
    return [_Source(default_name, values)]


_NO_ROWS = np.empty(0, np.intp)


class NDArrayIter(DataIter):
    """Batches of rows of arrays in memory.

    `last_batch_handle` says what becomes of rows that fill no batch: "pad" completes them from the epoch's
    start and reports how many rows were added, "discard" drops them, "roll_over" lets them begin the next
    epoch. `shuffle` puts the rows in a new random order at the start and at every reset, drawn from
    `minigraph.random`.

    NumPy arrays are copied when the iterator is made, so that filling one again changes nothing, and give float32,
    converted one batch at a time. An NDArray is read at each batch, and keeps its dtype; a memory-mapped array is read
    at each batch, too. Batches are copies: what is written into one is written nowhere else.
    """

    def __init__(self, data: Any, label: Any = None, batch_size: int = 1, shuffle: bool = False,
                 last_batch_handle: str = "pad", data_name: str = "data", label_name: str = "softmax_label",
                 layout: str = "NCHW") -> None:
        super().__init__(batch_size)
        self._data = _sources(data, data_name)
        self._label = _sources(label, label_name)
        self._layout = layout
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self._check()
        self.num_data = self._data[0].shape[0]
        self._cursor = 0
        self._carried = _NO_ROWS
        self._order = self._sequence = _NO_ROWS
        self.hard_reset()

    def _check(self) -> None:
        if not self._data:
            raise ValueError("an iterator needs data")
        counts = {source.name: source.shape[0] for source in self._data + self._label}
        if len(set(counts.values())) > 1:
            raise ValueError(f"data and labels must have equally many rows, got {counts}")
        self.batch_size = whole_number("NDArrayIter", "batch_size", self.batch_size, 1)
        if self.last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(f"last_batch_handle must be 'pad', 'discard' or 'roll_over', got "
                             f"{self.last_batch_handle!r}")
        rows = self._data[0].shape[0]
        if self.last_batch_handle != "pad" and self.batch_size > rows:
            raise ValueError(f"batch_size {self.batch_size} is above the {rows} rows there are, and "
                             f"last_batch_handle {self.last_batch_handle!r} would never give a batch")

    @property
    def data(self) -> list[tuple[str, NDArray]]:
        """The names and whole arrays that data are taken from, in the dtype of batches."""
        return [(source.name, source.array()) for source in self._data]

    @property
    def label(self) -> list[tuple[str, NDArray]]:
        """The names and whole arrays that labels are taken from."""
        return [(source.name, source.array()) for source in self._label]

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of the data arrays."""
        return self._describe(self._data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of the label arrays."""
        return self._describe(self._label)

    def _describe(self, sources: list[_Source]) -> list[DataDesc]:
        return [DataDesc(source.name, (self.batch_size, *source.shape[1:]), source.dtype.type, self._layout)
                for source in sources]

    def hard_reset(self) -> None:
        """Begin anew, without the rows that "roll_over" kept."""
        self._carried = _NO_ROWS
        self.reset()

    def reset(self) -> None:
        """Begin the next epoch, in a new order if shuffled."""
        rows = random.generator().permutation(self.num_data) if self.shuffle else np.arange(self.num_data)
        self._order = rows
        self._sequence = np.concatenate([self._carried, rows])
        self._carried = _NO_ROWS
        self._cursor = -self.batch_size

    def iter_next(self) -> bool:
        """Move on by a batch; at the end, keep what "roll_over" keeps."""
        if self._cursor >= len(self._sequence):
            return False
        self._cursor += self.batch_size
        left = len(self._sequence) - self._cursor
        if left >= self.batch_size or left > 0 and self.last_batch_handle == "pad":
            return True
        if self.last_batch_handle == "roll_over" and left > 0:
            self._carried = self._sequence[self._cursor:]
        return False

    def getpad(self) -> int:
        """How many rows of the present batch were added to fill it."""
        return max(0, self._cursor + self.batch_size - len(self._sequence))

    def getindex(self) -> np.ndarray:
        """The present batch's row numbers, padding included."""
        rows = self._sequence[self._cursor:self._cursor + self.batch_size]
        pad = self.getpad()
        return np.concatenate([rows, np.resize(self._order, pad)]) if pad else rows

    def getdata(self) -> list[NDArray]:
        """Data of the present batch."""
        return self._take(self._data, self.convert_data)

    def getlabel(self) -> list[NDArray]:
        """Labels of the present batch."""
        return self._take(self._label, self.convert_label)

    def _take(self, sources: list[_Source], convert: Any) -> list[NDArray]:
        index = self.getindex()
        return [source.batch(index, convert) for source in sources]

    def convert_data(self, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """A batch's data from rows as they are stored; what a subclass overrides to scale them."""
        return rows.astype(dtype, copy=False)

    def convert_label(self, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """A batch's labels from rows as they are stored."""
        return rows.astype(dtype, copy=False)


class ScaledIter(NDArrayIter):
    """NDArrayIter whose data are divided by `divisor` batch by batch: pixels stay at one byte in memory."""

    def __init__(self, data: Any, label: Any = None, batch_size: int = 1, divisor: float = 255,
                 **kwargs: Any) -> None:
        self.divisor = np.float32(divisor)
        super().__init__(data, label, batch_size, **kwargs)

    def convert_data(self, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The rows divided, in float32."""
        return np.divide(rows, self.divisor, dtype=np.float32)


class MNISTIter(ScaledIter):
    """The images of an IDX file divided by 256, (N, 1, 28, 28) or with `flat` (N, 784), and the labels of
    another.

    Files may be gzipped. Rows are shuffled once, from `seed`, and rows that fill no batch are dropped. Of
    `num_parts` equal parts it reads the one numbered `part_index`. `data_shape` and `input_shape`, which old
    scripts give, must agree with `flat`.
    """

    def __init__(self, image: str | os.PathLike = "./train-images-idx3-ubyte",
                 label: str | os.PathLike = "./train-labels-idx1-ubyte", batch_size: int = 128,
                 shuffle: bool = True, flat: bool = False, seed: int = 0, silent: bool = False,
                 num_parts: int = 1, part_index: int = 0, data_name: str = "data",
                 label_name: str = "softmax_label", data_shape: Sequence[int] | None = None,
                 input_shape: Sequence[int] | None = None) -> None:
        images = _part(read_idx(image, 3), num_parts, part_index)
        labels = _part(read_idx(label, 1), num_parts, part_index)
        if len(images) != len(labels):
            raise MXNetError(f"{image} has {len(images)} images, but {label} has {len(labels)} labels")
        images = images.reshape(len(images), -1) if flat else images[:, None]
        for given in (data_shape, input_shape):
            if given is not None and tuple(given) != images.shape[1:]:
                raise ValueError(f"a data shape {tuple(given)} was given, but with flat={flat} an image of "
                                 f"{image} has shape {images.shape[1:]}")
        if shuffle:
            order = np.random.default_rng(seed).permutation(len(images))
            images, labels = images[order], labels[order]
        if not silent:
            logging.info("MNISTIter: load %d images, shuffle=%d, shape=%s", len(images), shuffle,
                         (batch_size, *images.shape[1:]))
        super().__init__(images, labels, batch_size, divisor=256, last_batch_handle="discard",
                         data_name=data_name, label_name=label_name)


def _part(rows: np.ndarray, num_parts: int, part_index: int) -> np.ndarray:
    """One of nearly equal consecutive parts."""
    if not 0 <= part_index < num_parts:
        raise ValueError(f"part_index must be in 0 to {num_parts - 1}, got {part_index}")
    return rows[len(rows) * part_index // num_parts:len(rows) * (part_index + 1) // num_parts]


class CSVIter(NDArrayIter):
    """Rows of numbers in a text file, separated by commas, each reshaped to `data_shape`; labels from another
    file.

    Without a label file labels are 0. Labels of shape (1,) give arrays (batch,). The last batch is completed
    from the file's start and says how many rows were added; with `round_batch` the next epoch begins after
    those rows, as in MXNet, without it at the start again. Data and labels are of `dtype`.
    """

    def __init__(self, data_csv: str | os.PathLike, data_shape: Sequence[int],
                 label_csv: str | os.PathLike = "NULL", label_shape: Sequence[int] = (1,),
                 batch_size: int = 1, round_batch: bool = True, data_name: str = "data",
                 label_name: str = "softmax_label", dtype: Any = "float32") -> None:
        kind = dtype_of(dtype)
        data = _read_csv(data_csv, tuple(data_shape), kind)
        rest = () if tuple(label_shape) == (1,) else tuple(label_shape)
        unlabelled = label_csv == "NULL"
        labels = np.zeros((len(data), *rest), kind) if unlabelled else _read_csv(label_csv, rest, kind)
        self.round_batch = round_batch
        super().__init__(from_numpy(data), from_numpy(labels), batch_size, data_name=data_name, label_name=label_name)

    def reset(self) -> None:
        """Begin the next epoch, after the rows that completed the last one if they are to count."""
        start = 0
        if self.round_batch and len(self._sequence):
            last = self._cursor - self.batch_size * (self._cursor >= len(self._sequence))
            start = max(0, last + self.batch_size - len(self._sequence)) % self.num_data
        super().reset()
        self._sequence = self._order[start:]


def _read_csv(path: str | os.PathLike, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """(rows, *shape) in a dtype; MXNetError naming the file if its lines do not have that many numbers."""
    try:
        rows = np.loadtxt(path, dtype, delimiter=",", ndmin=2)
    except ValueError as error:
        raise MXNetError(f"{os.fspath(path)}: not lines of numbers separated by commas ({error})") from error
    if rows.size == 0 or rows.shape[1] != prod(shape):
        raise MXNetError(f"{os.fspath(path)}: has {rows.shape[0]} lines of {rows.shape[1]} numbers; shape "
                         f"{shape} needs {prod(shape)} a line")
    return rows.reshape(-1, *shape)
