"""The frame of data iterators: descriptions, batches, the base class, and iterators around others."""
from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np

from .base import MXNetError
from .ndarray import NDArray
from .settings import SettingError, whole_number


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name and shape of an input, a pair, with its `dtype` and `layout` ("N" marks the batch axis)."""

    dtype: Any
    layout: str | None

    def __new__(cls, name: str, shape: Sequence[int], dtype: Any = np.float32,
                layout: str | None = "NCHW") -> DataDesc:
        desc = super().__new__(cls, name, tuple(shape))
        desc.dtype = dtype
        desc.layout = layout
        return desc

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The axis of "N" in the layout: 0 without a layout, -1 where there is no batch axis."""
        return 0 if layout is None else layout.find("N")


class DataBatch:
    """Lists of data and label arrays, and how many of the last rows are padding (`pad`)."""

    def __init__(self, data: Sequence[NDArray], label: Sequence[NDArray] | None = None,
                 pad: int | None = None, index: Any = None, bucket_key: Any = None,
                 provide_data: Sequence[DataDesc] | None = None,
                 provide_label: Sequence[DataDesc] | None = None) -> None:
        for name, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise TypeError(f"{name} must be a list of NDArrays, got {type(arrays).__name__}")
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        labels = None if self.label is None else [each.shape for each in self.label]
        return f"DataBatch: data shapes: {[each.shape for each in self.data]} label shapes: {labels}"


class _ToDefine:
    """A member that a subclass gives as a property, or its objects have as an attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        raise NotImplementedError(f"{owner.__name__} must define {self._name}")


class DataIter:
    """The base of iterators: a subclass gives `iter_next`, `getdata`, for labels `getlabel`, and `provide_data` and
    `provide_label` (descriptions, or (name, shape) pairs) as properties or attributes.

    A subclass may override `next` alone instead.
    """

    provide_data = _ToDefine()
    provide_label = _ToDefine()

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Begin a new epoch."""

    def next(self) -> DataBatch:
        """The next batch; StopIteration at the end of the epoch."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def iter_next(self) -> bool:
        """Move on by a batch; False at the end of the epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define iter_next or next")

    def getdata(self) -> list[NDArray]:
        """Data of the present batch."""
        raise NotImplementedError(f"{type(self).__name__} must define getdata or next")

    def getlabel(self) -> list[NDArray] | None:
        """Labels of the present batch; None without any."""
        return None

    def getindex(self) -> Any:
        """Numbers of the present batch's rows in the data set, or None."""
        return None

    def getpad(self) -> int:
        """How many of the present batch's last rows are padding."""
        return 0


class ResizeIter(DataIter):
    """Another iterator with `size` batches an epoch: it begins again when it ends early.

    With `reset_internal` false the next epoch goes on where this one stopped.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        if not hasattr(data_iter, "batch_size"):
            raise SettingError(f"ResizeIter: data_iter is {data_iter!r}; it must be an iterator of batches")
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = whole_number("ResizeIter", "size", size, 0)
        self.reset_internal = reset_internal
        self.cur = 0
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    @property
    def provide_data(self) -> list[DataDesc]:
        """As of the inner iterator."""
        return self.data_iter.provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        """As of the inner iterator."""
        return self.data_iter.provide_label

    def reset(self) -> None:
        """Begin a new epoch."""
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def next(self) -> DataBatch:
        """The inner iterator's next batch, across its end."""
        if self.cur == self.size:
            raise StopIteration
        self.cur += 1
        try:
            return self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
        try:
            return self.data_iter.next()
        except StopIteration:
            raise MXNetError("the iterator inside ResizeIter gives no batch even after a reset") from None


class PrefetchingIter(DataIter):
    """One or more iterators whose next batches are made in threads while the present ones are used.

    Their data and labels are joined in order. `rename_data` and `rename_label` hold a dict of new names per
    iterator.
    """

    def __init__(self, iters: DataIter | Sequence[DataIter],
                 rename_data: Sequence[Mapping[str, str]] | None = None,
                 rename_label: Sequence[Mapping[str, str]] | None = None) -> None:
        self.iters = [iters] if isinstance(iters, DataIter) else list(iters)
        if not self.iters:
            raise ValueError("PrefetchingIter needs at least one iterator")
        super().__init__(self.iters[0].batch_size)
        self.rename_data = rename_data
        self.rename_label = rename_label
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(len(self.iters), thread_name_prefix="prefetch")
        self._pending: list[Future] = []
        self._prefetch()

    def _prefetch(self) -> None:
        self._pending = [self._threads.submit(_next_or_none, each) for each in self.iters]

    @property
    def provide_data(self) -> list[DataDesc]:
        """The iterators' descriptions, joined and renamed."""
        return _renamed([each.provide_data for each in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """The iterators' descriptions, joined and renamed."""
        return _renamed([each.provide_label for each in self.iters], self.rename_label)

    def reset(self) -> None:
        """Begin a new epoch, once the batches under way are done."""
        check_process(self, self._process)
        for future in self._pending:
            future.exception()  # waits; a failure belongs to the epoch that is given up
        for each in self.iters:
            each.reset()
        self._prefetch()

    def next(self) -> DataBatch:
        """The joined batch; an error in a thread is raised here."""
        check_process(self, self._process)
        batches = [future.result() for future in self._pending]
        if all(batch is None for batch in batches):
            raise StopIteration
        if any(batch is None for batch in batches):
            raise MXNetError("the iterators of PrefetchingIter have different numbers of batches")
        if len({batch.pad for batch in batches}) > 1:
            raise MXNetError("the iterators of PrefetchingIter have batches with different padding")
        self._prefetch()
        return DataBatch([array for batch in batches for array in batch.data],
                         [array for batch in batches for array in batch.label or ()],
                         batches[0].pad, batches[0].index, batches[0].bucket_key,
                         self.provide_data, self.provide_label)

    def close(self) -> None:
        """End the threads; the iterator is of no use afterwards."""
        self._threads.shutdown(cancel_futures=True)


def check_process(iterator: DataIter, process: int) -> None:
    """MXNetError in a process forked from the one that made an iterator, whose threads have not come along."""
    if os.getpid() != process:
        raise MXNetError(f"this {type(iterator).__name__} was made by the process {process}, from which this one was "
                         f"forked without its threads; make the iterator in the process that uses it")


def _next_or_none(iterator: DataIter) -> DataBatch | None:
    """The next batch, or None at the end: StopIteration does not pass through a future.

    Its arrays are copies, since the iterator may fill its own again while this batch is in use.
    """
    try:
        batch = iterator.next()
    except StopIteration:
        return None
    return DataBatch([array.copy() for array in batch.data], [array.copy() for array in batch.label or ()],
                     batch.pad, copy(batch.index), batch.bucket_key)


def _renamed(lists: list[list[DataDesc]], renames: Sequence[Mapping[str, str]] | None) -> list[DataDesc]:
    """The descriptions in one list, with new names where a dict has one."""
    tables: Sequence[Mapping[str, str]] = renames if renames is not None else [{}] * len(lists)
    return [DataDesc(table.get(desc.name, desc.name), desc.shape, desc.dtype, desc.layout)
            for table, descs in zip(tables, lists, strict=True) for desc in map(_described, descs)]


def _described(desc: Any) -> DataDesc:
    """A DataDesc from itself or from a (name, shape) pair."""
    return desc if isinstance(desc, DataDesc) else DataDesc(*desc)
