"""ImageRecordIter, under MXNet's name: batches of augmented images from a RecordIO file."""
from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from .augment import Draws, split_settings
from .base import MXNetError
from .context import cpu
from .formats.recordio import RecordFile, read_index, record_offsets
from .io_base import DataDesc, DataIter, check_process
from .ndarray import HostStorage, NDArray
from .recordio import decode_image, unpack

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ACCEPTED = ("aug_seq", "verbose", "device_id", "ctx", "dtype", "shuffle_chunk_size", "shuffle_chunk_seed", "mean_img")
"""Further parameters of MXNet's, which `_refuse` looks at."""


class _Row(NamedTuple):
    """A row of a batch: which record, and the epoch whose random numbers it draws."""

    record: int
    epoch: int


class _Pending(NamedTuple):
    """A batch that threads are filling, and how many of its rows are padding."""

    data: np.ndarray
    label: np.ndarray
    ids: np.ndarray
    rows: list[Future]
    pad: int


class ImageRecordIter(DataIter):
    """Batches (N, C, H, W) in float32, red first, of the images of a `.rec` file, and their labels.

    `data_shape` is (C, H, W); grey and colour are converted to it. `path_imgidx` saves the walk through the file that
    finds its records; `path_imglist` (lines `id<TAB>label...<TAB>name`) replaces the labels in the file. A record must
    carry `label_width` labels; labels have shape (N,) for one and (N, label_width) for more. `shuffle` draws a new
    order over the whole file each epoch. Of `num_parts` nearly equal parts it reads the one numbered `part_index`. If
    the last batch is not full, `round_batch` completes it with the first rows of the next epoch, which then begins
    after them; else it is filled with zeros; either way `pad` tells how many rows were added, and `index` has the
    records' ids. All parameters of `Augmentation` and `Normalization` are taken, by their names.

    Threads (`preprocess_threads`) prepare up to `prefetch_buffer` batches ahead. Random numbers depend on `seed`
    (those of augmentation on `seed_aug` where it is given), the epoch and the record alone, so that the images do not
    depend on threads. MXNet draws other numbers from the same seed. `.npy` images need no Pillow; other formats do.
    """

    def __init__(self, path_imgrec: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 label_width: int = 1, path_imgidx: str | os.PathLike = "", path_imglist: str | os.PathLike = "",
                 shuffle: bool = False, seed: int = 0, seed_aug: int | None = None, num_parts: int = 1,
                 part_index: int = 0, preprocess_threads: int = 4, prefetch_buffer: int = 4, round_batch: bool = True,
                 data_name: str = "data", label_name: str = "softmax_label", **settings: Any) -> None:
        super().__init__(batch_size)
        self._augment, self._normalize, rest = split_settings(settings)
        _refuse(rest)
        self.data_shape = _checked_shape(data_shape)
        _check_counts(batch_size=batch_size, label_width=label_width, preprocess_threads=preprocess_threads,
                      prefetch_buffer=prefetch_buffer)
        self._labels = _read_list(path_imglist, label_width) if path_imglist else None
        self._records = Records(path_imgrec, path_imgidx, num_parts, part_index)
        self._label_width = label_width
        self._shuffle, self._round = bool(shuffle), bool(round_batch)
        self._seed = seed
        self._draws = Draws(seed if seed_aug is None else seed_aug)
        self._names = data_name, label_name
        self._ahead = prefetch_buffer
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(preprocess_threads, "ImageRecordIter")
        self._queue: deque[_Pending] = deque()
        self._current: _Pending | None = None
        self._closed = False
        self._epoch = 0
        self._used = 0
        self._begin()
        if rest.get("verbose", True):
            logging.info("ImageRecordIter: %s, %d images", self._records.path, len(self._records))

    # -- what it gives -----------------------------------------------------------------------------------------
    @property
    def provide_data(self) -> list[DataDesc]:
        """The description of the images."""
        return [DataDesc(self._names[0], (self.batch_size, *self.data_shape))]

    @property
    def provide_label(self) -> list[DataDesc]:
        """The description of the labels."""
        return [DataDesc(self._names[1], self._label_shape)]

    @property
    def _label_shape(self) -> tuple[int, ...]:
        return (self.batch_size,) if self._label_width == 1 else (self.batch_size, self._label_width)

    def iter_next(self) -> bool:
        """Move on by a batch; an error of a thread is raised here."""
        if self._closed:
            raise MXNetError("the iterator is closed; make another one")
        check_process(self, self._process)
        self._fill()
        if not self._queue:
            return False
        self._current = self._queue.popleft()
        for row in self._current.rows:
            row.result()
        self._fill()
        return True

    def _batch(self) -> _Pending:
        if self._current is None:
            raise MXNetError("there is no batch yet; call next or iter_next first")
        return self._current

    def getdata(self) -> list[NDArray]:
        """The present batch's images."""
        return [NDArray(HostStorage(self._batch().data, cpu()))]

    def getlabel(self) -> list[NDArray]:
        """The present batch's labels."""
        return [NDArray(HostStorage(self._batch().label.reshape(self._label_shape), cpu()))]

    def getindex(self) -> np.ndarray:
        """The ids in the headers of the present batch's records."""
        return self._batch().ids

    def getpad(self) -> int:
        """How many of the present batch's last rows are padding."""
        return self._batch().pad

    # -- the order of rows -------------------------------------------------------------------------------------
    def _order(self, epoch: int) -> list[_Row]:
        count = len(self._records)
        order = np.random.default_rng([self._seed % 2 ** 64, epoch]).permutation(count) if self._shuffle \
            else np.arange(count)
        return [_Row(int(record), epoch) for record in order]

    def _begin(self) -> None:
        """Lay out the epoch's rows, after those that completed the last one's last batch."""
        rows = self._order(self._epoch)[self._used:]
        self._used, self._pad = 0, -len(rows) % self.batch_size
        if self._round and self._pad:
            ahead = self._order(self._epoch + 1)
            if self._pad > len(ahead):
                raise MXNetError(f"{self._records.path} has {len(ahead)} images, which cannot complete a batch of "
                                 f"{self.batch_size}; give a smaller batch_size, or round_batch=False")
            self._used = self._pad
            rows += ahead[:self._pad]
        self._rows = rows
        self._next = 0

    def reset(self) -> None:
        """Begin the next epoch. Before the first batch was taken there is nothing to do."""
        if self._current is None:
            return
        for pending in self._queue:
            for row in pending.rows:
                row.cancel()
        self._queue.clear()
        self._current = None
        self._epoch += 1
        self._begin()

    # -- the threads' work -------------------------------------------------------------------------------------
    def _fill(self) -> None:
        """Have threads prepare batches until `prefetch_buffer` of them are under way."""
        while self._next < len(self._rows) and len(self._queue) < self._ahead:
            rows = self._rows[self._next:self._next + self.batch_size]
            self._next += len(rows)
            last = self._next >= len(self._rows)
            data = np.zeros((self.batch_size, *self.data_shape), np.float32)
            label = np.zeros((self.batch_size, self._label_width), np.float32)
            ids = np.zeros(self.batch_size, np.uint64)
            work = [self._threads.submit(self._prepare, row, data[k], label[k], ids[k:k + 1])
                    for k, row in enumerate(rows)]
            self._queue.append(_Pending(data, label, ids, work, self._pad if last else 0))

    def _prepare(self, row: _Row, data: np.ndarray, label: np.ndarray, number: np.ndarray) -> None:
        """Write one image, its labels and its id."""
        try:
            header, image = unpack(self._records.read(row.record))
            label[:] = self._labels_of(header)
            number[0] = header.id
            channels, height, width = self.data_shape
            pixels = decode_image(image, _MODES[channels])
            draw = self._draws(row.epoch, row.record)
            pixels = self._augment(pixels.reshape(*pixels.shape[:2], channels), height, width, draw)
            self._normalize(pixels, data, draw)
        except MXNetError as error:
            raise MXNetError(f"{self._records.path}: image {row.record}: {error}") from error

    def _labels_of(self, header: Any) -> Any:
        if self._labels is not None:
            if header.id not in self._labels:
                raise MXNetError(f"its id {header.id} is not in path_imglist")
            return self._labels[header.id]
        given = max(1, header.flag)
        if given != self._label_width:
            raise MXNetError(f"the record has {given} labels, but label_width is {self._label_width}")
        return header.label

    def close(self) -> None:
        """End the threads and close the file; the iterator is of no use afterwards."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)
        self._records.close()


class Records:
    """The records of a part of a file, by number, for several threads."""

    def __init__(self, path: str | os.PathLike, index: str | os.PathLike, num_parts: int, part_index: int) -> None:
        if not 0 <= part_index < num_parts:
            raise MXNetError(f"part_index must be from 0 to num_parts - 1, got {part_index} of {num_parts}")
        self.path = os.fspath(path)
        offsets = list(read_index(index).values()) if index else record_offsets(path)
        count = len(offsets)
        self._offsets = offsets[part_index * count // num_parts:(part_index + 1) * count // num_parts]
        if not self._offsets:
            raise MXNetError(f"{self.path}: part {part_index} of {num_parts} has none of the file's {count} records")
        self._file = RecordFile(path)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, number: int) -> bytes:
        record, _ = self._file.read(self._offsets[number])
        if record is None:
            raise MXNetError(f"the index has an offset of {self._offsets[number]} bytes, at the end of the file")
        return record

    def close(self) -> None:
        self._file.close()


def _read_list(path: str | os.PathLike, label_width: int) -> dict[int, np.ndarray]:
    """Labels by id from the lines `id<TAB>label...<TAB>name` of a list file."""
    labels = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                key, *values = line.split("\t")[:1 + label_width]
                labels[int(key)] = np.array(values, np.float32)
                if len(values) != label_width:
                    raise ValueError
            except ValueError as error:
                raise MXNetError(f"{os.fspath(path)}: line {number} is {line.strip()[:40]!r}; it must have an id, "
                                 f"{label_width} labels and a name, with tabs between") from error
    return labels


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[0] not in _MODES or min(shape) < 1:
        raise MXNetError(f"data_shape must be (channels, height, width) with 1, 3 or 4 channels, got {tuple(shape)}")
    channels, height, width = (int(each) for each in shape)
    return channels, height, width


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise MXNetError(f"{name} must be at least 1, got {value}")


def _refuse(rest: dict[str, Any]) -> None:
    """TypeError for unknown parameters, MXNetError for those of MXNet's that ask for what there is not."""
    unknown = sorted(set(rest) - set(_ACCEPTED))
    if unknown:
        raise TypeError(f"ImageRecordIter takes no parameter {', '.join(unknown)}")
    if rest.get("mean_img"):
        raise MXNetError(f"mean_img={rest['mean_img']!r}: mean images are not supported; give mean_r, mean_g, mean_b")
    if rest.get("aug_seq", "aug_default") != "aug_default":
        raise MXNetError(f"aug_seq={rest['aug_seq']!r}: the one sequence of augmentation is 'aug_default'")
    if rest.get("dtype") is not None and np.dtype(rest["dtype"]) != np.float32:
        raise MXNetError(f"dtype={rest['dtype']!r}: images are float32")
