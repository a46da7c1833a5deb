"""Storages: what an NDArray's value lies in, and views of one storage through another."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .base import Shape
from .context import Context, current_context


class Storage(Protocol):
    """What holds an NDArray's value."""

    @property
    def shape(self) -> Shape:
        """Logical shape."""

    @property
    def dtype(self) -> np.dtype:
        """Element type."""

    @property
    def context(self) -> Context:
        """Where the value lives."""

    def read(self) -> np.ndarray:
        """The present value, perhaps a live view: not to be written to, nor kept past the next write."""

    def write(self, value: np.ndarray) -> None:
        """Replace the value; `value` has exactly the storage's shape and dtype, and any strides."""


class HostStorage:
    """A value in a numpy array, which is shared with whoever made it.

    Parts of it, or all, may lie in other storages, as when an executor is bound to them: `parts` has for each the view
    of the array that it is, and the storage that has the value. The array holds what was read there last.
    """

    def __init__(self, values: np.ndarray, context: Context | None = None) -> None:
        self.array = values
        self.context = context or current_context()
        self.parts: list[tuple[np.ndarray, Storage]] = []
        self._whole: Storage | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type of the array."""
        return self.array.dtype

    @property
    def whole(self) -> Storage | None:
        """The storage that has all of the value, if one has."""
        return self._whole

    def read(self) -> np.ndarray:
        """The array itself, or what the storage holds that has all of the value."""
        if self._whole is not None:
            return self._whole.read()
        self.fetch(self.array)
        return self.array

    def write(self, value: np.ndarray) -> None:
        """Copy `value` into the array, or the storage that has all of the value."""
        if self._whole is not None:
            self._whole.write(value)
        else:
            np.copyto(self.array, value)
            self.hand_on(self.array)

    def fetch(self, view: np.ndarray) -> None:
        """Have a view of the array show what lies in other storages."""
        for part, storage in self.parts:
            if np.may_share_memory(part, view):
                np.copyto(part, storage.read())

    def hand_on(self, view: np.ndarray) -> None:
        """Have other storages hold what a view of the array shows now."""
        for part, storage in self.parts:
            if np.may_share_memory(part, view):
                storage.write(part)

    def move(self, view: np.ndarray, storage: Storage) -> None:
        """Have a storage that holds the value of a view of the array be where it lies from now on."""
        if view.flags.c_contiguous and self.array.flags.c_contiguous and view.size == self.array.size:
            self._whole = storage if storage.shape == self.shape else ReshapedStorage(storage, self.shape)
            self.array = np.empty(self.shape, self.dtype)  # takes no memory until it is written to
        else:
            self.parts.append((view, storage))

    def take_back(self, storage: Storage) -> None:
        """Have the array hold what lies in a storage of `parts`, or in `whole`, again."""
        if storage is self._whole:
            self._whole, value = None, storage.read()
            np.copyto(self.array, value)
        else:
            for part, each in self.parts:
                if each is storage:
                    np.copyto(part, each.read())
            self.parts = [(part, each) for part, each in self.parts if each is not storage]


class View:
    """A view of another storage; writing it writes the parent."""

    parent: Storage
    shape: Shape

    @property
    def dtype(self) -> np.dtype:
        return self.parent.dtype

    @property
    def context(self) -> Context:
        return self.parent.context

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """The view of a value of the parent, a copy where there can be none."""
        raise NotImplementedError

    def put(self, value: np.ndarray) -> None:
        """Write the parent such that the view is `value`."""
        raise NotImplementedError

    def read(self) -> np.ndarray:
        found = locate(self)
        if found is None or found[0].whole is not None:
            return self.seen(self.parent.read())
        root, view = found
        root.fetch(view)
        return view

    def write(self, value: np.ndarray) -> None:
        found = locate(self)
        if found is None or found[0].whole is not None:
            self.put(value)
            return
        root, view = found
        if root.parts:
            value = np.array(value)  # it may be a view of the same array
            root.fetch(view)
        np.copyto(view, value)
        root.hand_on(view)


class PartStorage(View):
    """A basic slice of another storage; writing it writes the parent."""

    def __init__(self, parent: Storage, key: Any) -> None:
        self.parent, self.key = parent, key
        self.shape = shape_of_part(parent.shape, key)

    def seen(self, whole: np.ndarray) -> np.ndarray:
        return whole[self.key]

    def put(self, value: np.ndarray) -> None:
        whole = self.parent.read().copy()
        whole[self.key] = value
        self.parent.write(whole)


class ReshapedStorage(View):
    """Another storage seen in a shape of as many elements; writing it writes the parent."""

    def __init__(self, parent: Storage, shape: Shape) -> None:
        self.parent, self.shape = parent, shape

    def seen(self, whole: np.ndarray) -> np.ndarray:
        return whole.reshape(self.shape)

    def put(self, value: np.ndarray) -> None:
        self.parent.write(value.reshape(self.parent.shape))


def locate(storage: Storage) -> tuple[HostStorage, np.ndarray] | None:
    """The storage in host memory that a storage is, or is a view of, and the view of its array; None for anything else,
    and where what is seen does not lie in the array."""
    if isinstance(storage, HostStorage):
        return storage, storage.array
    found = locate(storage.parent) if isinstance(storage, View) else None
    if found is None or not isinstance(storage, View):
        return None
    root, whole = found
    view = storage.seen(whole)
    return (root, view) if view.size == 0 or np.may_share_memory(view, whole) else None


def shape_of_part(shape: Shape, key: Any) -> Shape:
    """The shape that indexing would give, found on an array that takes no memory."""
    return np.broadcast_to(np.False_, shape)[key].shape


def is_basic(key: Any) -> bool:
    """Whether `key` selects a strided part, which can be written through."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is Ellipsis
               or isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool) for part in parts)


def keep_one_axis(shape: Shape, key: Any) -> Any:
    """`key`, with its last integer made a slice of one where it would select a scalar, as in MXNet."""
    if shape == ():
        return Ellipsis
    if shape_of_part(shape, key) != ():
        return key
    *front, last = [part for part in (key if isinstance(key, tuple) else (key,)) if part is not Ellipsis]
    start = int(last) % shape[-1]
    return (*front, slice(start, start + 1))


def as_shape(shape: int | Sequence[int]) -> Shape:
    """A tuple of ints from an int or a sequence."""
    return tuple(int(n) for n in shape) if isinstance(shape, (tuple, list, np.ndarray)) else (int(shape),)  # type: ignore[arg-type]
