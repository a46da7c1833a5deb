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
    """A value in a numpy array, which is shared with whoever made it."""

    def __init__(self, values: np.ndarray, context: Context | None = None) -> None:
        self.array = values
        self.context = context or current_context()

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type of the array."""
        return self.array.dtype

    def read(self) -> np.ndarray:
        """The array itself."""
        return self.array

    def write(self, value: np.ndarray) -> None:
        """Copy `value` into the array."""
        np.copyto(self.array, value)


class PartStorage:
    """A basic slice of another storage; writing it writes the parent."""

    def __init__(self, parent: Storage, key: Any) -> None:
        self.parent, self.key = parent, key
        self.shape = shape_of_part(parent.shape, key)

    @property
    def dtype(self) -> np.dtype:
        return self.parent.dtype

    @property
    def context(self) -> Context:
        return self.parent.context

    def read(self) -> np.ndarray:
        return self.parent.read()[self.key]

    def write(self, value: np.ndarray) -> None:
        whole = self.parent.read().copy()
        whole[self.key] = value
        self.parent.write(whole)


class ReshapedStorage:
    """Another storage seen in a shape of as many elements; writing it writes the parent."""

    def __init__(self, parent: Storage, shape: Shape) -> None:
        self.parent, self.shape = parent, shape

    @property
    def dtype(self) -> np.dtype:
        return self.parent.dtype

    @property
    def context(self) -> Context:
        return self.parent.context

    def read(self) -> np.ndarray:
        return self.parent.read().reshape(self.shape)

    def write(self, value: np.ndarray) -> None:
        self.parent.write(value.reshape(self.parent.shape))


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
