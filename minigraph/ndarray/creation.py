"""New NDArrays: of given values, of one value, and of numbers in a row."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import dtype_of
from ..context import Context
from ..storage import HostStorage, as_shape
from .array import NDArray


def host(values: np.ndarray, ctx: Context | None) -> NDArray:
    """A new array around `values`, which nothing else may hold."""
    return NDArray(HostStorage(values, ctx))


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array with a copy of `source_array`: an NDArray keeps its dtype, anything else becomes float32.

    A scalar gives shape (1,). The values lie in host memory whatever the context: an executor copies them on.
    """
    values = source_array.storage.read() if isinstance(source_array, NDArray) else np.asarray(source_array)
    if dtype is None:
        dtype = values.dtype if isinstance(source_array, NDArray) else np.float32
    return host(np.array(values, dtype=dtype_of(dtype), order="C", ndmin=1), ctx)


def empty(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array whose values are not set."""
    return host(np.empty(as_shape(shape), dtype_of(dtype or np.float32)), ctx)


def zeros(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array of zeros, float32 unless `dtype` is given."""
    return host(np.zeros(as_shape(shape), dtype_of(dtype or np.float32)), ctx)


def ones(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array of ones, float32 unless `dtype` is given."""
    return host(np.ones(as_shape(shape), dtype_of(dtype or np.float32)), ctx)


def full(shape: int | Sequence[int], val: float, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array filled with `val`, float32 unless `dtype` is given."""
    return host(np.full(as_shape(shape), val, dtype_of(dtype or np.float32)), ctx)


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
           ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """start, start + step … below stop, each `repeat` times; with one argument, from 0 to it."""
    begin, end = (0, start) if stop is None else (start, stop)
    return host(np.repeat(np.arange(begin, end, step), repeat).astype(dtype_of(dtype or np.float32)), ctx)


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """The arrays joined along `axis`; a single array is returned as it is unless `always_copy`."""
    if not arrays:
        raise ValueError("concatenate needs at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return host(np.concatenate([each.storage.read() for each in arrays], axis), arrays[0].context)
